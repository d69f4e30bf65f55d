#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"

namespace octavo::checkpoint {

// Holds a thread that passes until it is opened.
class Hold {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false, open_ = false;
};

// Holds a save at a stage.
class SaveGate : public Hold {
 public:
  SaveOptions options(const std::string& stage) {
    return {.on_stage = [this, stage](std::string_view reached) {
      if (reached == stage) pass();
    }};
  }
};

}  // namespace octavo::checkpoint
