#pragma once
// One queue and one thread before the sinks that may be slow or fail. A step hands its record over
// and continues: a full queue drops the record and counts it, and never makes the step wait.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "monitor/sinks.h"

namespace octavo::monitor {

// What mfu is a share of: the time that the devices would need at their dense peaks. On a CPU,
// which nobody publishes one of, there is none.
struct Peaks {
  double flops_per_token = 0;
  double fp8_share = 0;                            // of these FLOPs, in FP8
  double bf16_per_second = 0, fp8_per_second = 0;  // FLOPs, of all devices together; 0: not known
};

std::optional<double> mfu_of(const Peaks& peaks, double tokens_per_second);

class AsyncSink final : public Sink {
 public:
  struct Limits {
    int64_t waiting = 8192;      // records; one with statistics of n tensors counts 1 + n / 16
    double seconds_to_end = 20;  // after which a sink that hangs is left behind
    std::string what = "metrics";
    std::string thread = "octavo-sinks";  // its name, which bench/sinks.py knows
    bool reads_gpus = true;               // adds StepRecord::gpus
  };
  AsyncSink(std::vector<std::unique_ptr<Sink>> sinks, const Peaks& peaks, const Limits& limits);
  // Without on_end() before it the run broke off: the sinks hear of exit code 1.
  ~AsyncSink() override;
  AsyncSink(const AsyncSink&) = delete;
  AsyncSink& operator=(const AsyncSink&) = delete;

  void on_step(const StepRecord& record) override;
  void on_eval(const EvalRecord& record) override;
  void on_task(const TaskRecord& record) override;
  void on_sample(const SampleRecord& record) override;
  void on_flag(const Flag& flag) override;
  void on_alive() override;
  // Waits until all that was handed over is written, not longer than that.
  void settle(std::chrono::milliseconds patience) const;
  // Waits until everything is written, at most Limits::seconds_to_end.
  void on_end(int exit_code) override;
  int64_t failures() const override;  // of all sinks, and dropped records
  std::string_view name() const override { return "queue"; }
  Json receipt() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  Peaks peaks_;
  double seconds_to_end_;
  int64_t start_ns_ = 0;
  double useful_seconds_ = 0;
};

}  // namespace octavo::monitor
