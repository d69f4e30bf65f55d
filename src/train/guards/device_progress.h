#pragma once
// How far the device is with what the main thread gave it: an event behind each pass of a step,
// which the watch over hangs asks when the main thread has been quiet for long. On a CPU there is
// nothing to ask.

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <mutex>
#include <optional>
#include <vector>

namespace octavo::train {

class DeviceProgress {
 public:
  explicit DeviceProgress(c10::Device device);  // on the thread that gives it its work

  void begin_step();  // all that was given has been waited for
  void after_pass();

  struct State {
    uint64_t finished = 0;  // passes, since the start
    bool works = false;     // on something that was given to it
  };
  // From another thread, and not while a graph is captured.
  State look() const;

 private:
  const std::optional<c10::Stream> stream_;  // none: a CPU
  mutable std::mutex mutex_;
  std::vector<c10::Event> passes_;  // of this step; as many as any step had
  size_t given_ = 0;                // of them
  uint64_t before_ = 0;             // passes of earlier steps
};

}  // namespace octavo::train
