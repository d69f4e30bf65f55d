#include "bench/step_bench.h"

#include <c10/util/Exception.h>

#include <memory>

#include "base/first_line.h"
#include "base/log.h"
#include "train/device.h"
#include "train/random_run.h"
#include "train/step.h"

namespace octavo::bench {
namespace {

constexpr int64_t kWarmUpSteps = 2;

config::Settings step_settings(config::Settings s, bool in_fp8) {
  s.use_fp8 = false;
  s.mixed_precision = in_fp8 ? config::Precision::kFp8 : config::Precision::kBf16;
  s.init_from = "random";
  s.fp8_stats_freq = 0;
  s.auto_batch_size = false;
  s.cuda_graph = false;
  return s;
}

class StepRunner {
 public:
  StepRunner(const config::Settings& settings, bool in_fp8) {
    train::start_on_random_tokens(run_, step_settings(settings, in_fp8));
    for (int64_t i = 0; i < kWarmUpSteps; ++i) train::train_step(run_);
  }
  double step() { return train::train_step(run_).seconds; }
  std::string precision() const { return run_.trained.precision(); }

 private:
  train::Run run_;
};

}  // namespace

StepTimes time_steps(const config::Settings& settings,
                     const std::function<void(const std::string& note)>& said) {
  StepTimes times{.steps = settings.bench_steps,
                  .in_turns = !train::device_of(settings).is_cuda(),
                  .bf16 = {},
                  .fp8 = {},
                  .ratio = {},
                  .fp8_precision = {},
                  .problem = {}};
  std::vector<double> bf16, fp8, ratios;
  try {
    said("whole steps, BF16");
    auto first = std::make_unique<StepRunner>(settings, false);
    if (!times.in_turns) {
      for (int64_t i = 0; i < times.steps; ++i) bf16.push_back(first->step());
      first.reset();
    }
    said("whole steps, FP8");
    StepRunner second(settings, true);
    times.fp8_precision = second.precision();
    for (int64_t i = 0; i < times.steps; ++i) {
      if (times.in_turns) bf16.push_back(first->step());
      fp8.push_back(second.step());
      ratios.push_back(bf16[static_cast<size_t>(i)] / fp8.back());
    }
  } catch (const c10::OutOfMemoryError& error) {
    times.problem = "the memory is full: " + first_line(error.what_without_backtrace()) +
                    "; take a smaller batch_size";
  }
  if (times.problem.empty()) {
    times.bf16 = spread_of(bf16);
    times.fp8 = spread_of(fp8);
    times.ratio = spread_of(ratios);
  } else {
    log_warn("whole steps were not timed: " + times.problem);
  }
  return times;
}

}  // namespace octavo::bench
