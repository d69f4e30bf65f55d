#pragma once
// TensorBoard event files: scalars, histograms of FP8 scales and magnitudes, samples as text.

#include <memory>

#include "monitor/sinks.h"

namespace octavo::monitor {

// A new file in `folder`. After a resume TensorBoard forgets what earlier files say of steps after
// `last_step`.
std::unique_ptr<Sink> make_tensorboard_sink(const fs::path& folder, int64_t last_step);

}  // namespace octavo::monitor
