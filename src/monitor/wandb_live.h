#pragma once
// The installed wandb's own uploader (`wandb beta sync --live`), which reads the run's file while
// it grows. It finds its key as wandb does; we look only whether there is one (wandb_login.h).

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "base/file.h"

namespace octavo::monitor {

class WandbLive {
 public:
  // Null, and why in the log, when there is no key, no wandb, or WANDB_MODE says offline.
  static std::unique_ptr<WandbLive> when_possible(const fs::path& run_folder);
  ~WandbLive();
  WandbLive(const WandbLive&) = delete;
  WandbLive& operator=(const WandbLive&) = delete;

  void check_running();  // whether it still runs; said and counted once when it does not
  void finish(std::chrono::seconds patience);  // waits for the end of the upload, not longer
  int64_t failures() const { return failures_; }

 private:
  explicit WandbLive(fs::path run_folder) : run_folder_(std::move(run_folder)) {}
  bool start(const std::string& program);
  bool has_ended(int* status);
  void lost(const std::string& why);

  fs::path run_folder_;
  pid_t pid_ = -1;
  bool started_ = false;
  std::string program_;
  std::atomic<int64_t> failures_{0};
};

}  // namespace octavo::monitor
