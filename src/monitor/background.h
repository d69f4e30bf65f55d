#pragma once
// The sinks that the settings ask for, behind one queue.

#include <memory>

#include "config/settings.h"
#include "monitor/async_sink.h"

namespace octavo::monitor {

// metrics.jsonl and samples always; TensorBoard, W&B and the metrics endpoint when asked for.
// `last_step` is the step that the run goes on from.
std::unique_ptr<AsyncSink> open_background_sinks(const config::Settings& settings,
                                                 const fs::path& run_dir, int64_t last_step,
                                                 const Peaks& peaks);

}  // namespace octavo::monitor
