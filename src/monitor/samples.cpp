#include <atomic>

#include "base/error.h"
#include "base/log.h"
#include "monitor/sinks.h"

namespace octavo::monitor {
namespace {

class SamplesSink final : public Sink {
 public:
  explicit SamplesSink(fs::path folder) : folder_(std::move(folder)) {}

  void on_step(const StepRecord&) override {}
  void on_eval(const EvalRecord&) override {}

  void on_sample(const SampleRecord& r) override {
    try {
      fs::create_directories(folder_);
      write_file_atomic(folder_ / str("step-", r.step, ".txt"), r.text + "\n");
    } catch (const std::exception& error) {
      if (failures_++ == 0)
        log_warn(str("samples cannot be written to ", folder_.string(), " (", error.what(),
                     "); training continues without, and receipt.json says how many are missing"));
    }
  }

  int64_t failures() const override { return failures_; }
  std::string_view name() const override { return "samples"; }

 private:
  fs::path folder_;
  std::atomic<int64_t> failures_{0};
};

}  // namespace

std::unique_ptr<Sink> make_samples_sink(const fs::path& folder) {
  return std::make_unique<SamplesSink>(folder);
}

}  // namespace octavo::monitor
