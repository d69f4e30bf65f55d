#pragma once
// libtorch's waits go by the clock of the day: when that is set back, Gloo's time-outs come later
// by as much. This guard counts by the monotonic clock, and leaves Gloo a second to be first.

#include <chrono>
#include <functional>

namespace octavo::dist {

// A wait for other ranks, as long as this lives. `on_late` is called once, on the guard's own
// thread, when it takes longer than the time-out; it may throw.
class GuardedWait {
 public:
  using OnLate = std::function<void()>;
  GuardedWait(std::chrono::milliseconds timeout, OnLate on_late);
  ~GuardedWait();
  GuardedWait(const GuardedWait&) = delete;
  GuardedWait& operator=(const GuardedWait&) = delete;

 private:
  const int64_t id_;
};

}  // namespace octavo::dist
