#pragma once
// The sinks that the settings ask for, behind one queue.

#include <memory>

#include "config/settings.h"
#include "monitor/async_sink.h"

namespace octavo::monitor {

// metrics.jsonl and samples always; TensorBoard, W&B and the metrics endpoint when asked for.
// `last_step` is the step that the run resumes from.
std::unique_ptr<AsyncSink> open_background_sinks(const config::Settings& settings,
                                                 const fs::path& run_dir, int64_t last_step,
                                                 const Peaks& peaks);

// The console sink behind a queue of its own: whoever reads standard output may stop reading.
std::unique_ptr<AsyncSink> open_console(int64_t first_step, int64_t max_steps, int64_t log_freq);

}  // namespace octavo::monitor
