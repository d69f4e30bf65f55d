#include "dist/wait_guard.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"

namespace octavo::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kGlooIsFirst{1000}, kLook{250};

class WaitGuard {
 public:
  int64_t begin(milliseconds timeout, GuardedWait::OnLate on_late) {
    const std::lock_guard lock(mutex_);
    waits_[++last_id_] = {steady_clock::now() + timeout + kGlooIsFirst, std::move(on_late)};
    return last_id_;
  }

  // Not before an on_late() of it has returned: it may speak of what its owner destroys next.
  void end(int64_t id) {
    std::unique_lock lock(mutex_);
    spoken_.wait(lock, [&] { return speaking_ != id; });
    waits_.erase(id);
  }

  // One per process. Never destroyed: its thread looks until the process ends.
  static WaitGuard& instance() {
    static auto* guard = new WaitGuard;
    return *guard;
  }

 private:
  struct Wait {
    steady_clock::time_point deadline;
    GuardedWait::OnLate on_late;
  };

  WaitGuard() {
    std::thread([this] {
      // Now and then: a thread that is woken for every collective would cost more than it is worth.
      for (;; std::this_thread::sleep_for(kLook))
        while (const GuardedWait::OnLate on_late = take_late()) {
          try {
            on_late();
          } catch (const std::exception& error) {  // for the thread that waits, which cannot hear
            log_warn(error.what());
          }
          end_speaking();
        }
    }).detach();
  }

  GuardedWait::OnLate take_late() {
    const std::lock_guard lock(mutex_);
    const auto now = steady_clock::now();
    for (auto& [id, wait] : waits_) {
      if (!wait.on_late || wait.deadline >= now) continue;
      speaking_ = id;
      return std::exchange(wait.on_late, nullptr);
    }
    return nullptr;
  }

  void end_speaking() {
    {
      const std::lock_guard lock(mutex_);
      speaking_ = 0;
    }
    spoken_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable spoken_;
  std::map<int64_t, Wait> waits_;
  int64_t last_id_ = 0, speaking_ = 0;  // 0: no wait
};

}  // namespace

GuardedWait::GuardedWait(milliseconds timeout, OnLate on_late)
    : id_(WaitGuard::instance().begin(timeout, std::move(on_late))) {}

GuardedWait::~GuardedWait() {
  WaitGuard::instance().end(id_);
}

}  // namespace octavo::dist
