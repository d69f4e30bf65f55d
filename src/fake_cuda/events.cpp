// Events: marks on a stream. One knows when it was recorded, and by which capture.
#include <chrono>
#include <unordered_set>

#include "fake_cuda/device.h"
#include "fake_cuda/streams.h"

using namespace octavo::fake_cuda;

namespace {

using Clock = std::chrono::steady_clock;

struct EventState {
  int device;
  unsigned flags;
  bool recorded = false;
  Clock::time_point when;
  std::shared_ptr<Capture> capture;  // of the stream on which it was recorded last
};

std::unordered_set<EventState*>& marks() {
  static auto* const only = new std::unordered_set<EventState*>;  // under stream_mutex()
  return *only;
}

EventState* find_mark(cudaEvent_t handle) {
  auto* const candidate = reinterpret_cast<EventState*>(handle);
  return marks().contains(candidate) ? candidate : nullptr;
}

cudaError_t record_mark(cudaEvent_t handle, cudaStream_t stream_handle, const char* entry) {
  {
    const std::lock_guard lock(stream_mutex());
    EventState* const mark = find_mark(handle);
    Stream* stream = nullptr;
    if (mark == nullptr || !find_stream(stream_handle, &stream))
      return remember(cudaErrorInvalidResourceHandle);
    if (mark->device != (stream == nullptr ? current_device() : stream->device)) {
      return remember(cudaErrorInvalidResourceHandle);
    }
    mark->recorded = true;
    mark->when = Clock::now();
    mark->capture = stream == nullptr ? nullptr : stream->capture;
    if (mark->capture) return cudaSuccess;  // an edge of the graph, not a node
  }
  return submit(stream_handle, make_event(Kind::kEventRecord, entry, stream_handle));
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  if (availability() != cudaSuccess) return remember(availability());
  auto* const mark =
      new EventState{.device = current_device(), .flags = flags, .when = {}, .capture = nullptr};
  const std::lock_guard lock(stream_mutex());
  marks().insert(mark);
  *handle = reinterpret_cast<cudaEvent_t>(mark);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const std::lock_guard lock(stream_mutex());
  EventState* const mark = find_mark(handle);
  if (mark == nullptr) return remember(cudaErrorInvalidResourceHandle);
  marks().erase(mark);
  delete mark;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return record_mark(handle, stream, "cudaEventRecord");
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned) {
  return record_mark(handle, stream, "cudaEventRecordWithFlags");
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const std::lock_guard lock(stream_mutex());
  return find_mark(handle) == nullptr ? remember(cudaErrorInvalidResourceHandle) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  {
    const std::lock_guard lock(stream_mutex());
    const EventState* const mark = find_mark(handle);
    if (mark == nullptr) return remember(cudaErrorInvalidResourceHandle);
    if (!mark->recorded) return cudaSuccess;  // nothing to wait for
  }
  record(make_event(Kind::kEventSync, "cudaEventSynchronize"));
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(stream_mutex());
  const EventState* const first = find_mark(begin);
  const EventState* const second = find_mark(end);
  if (first == nullptr || second == nullptr || !first->recorded || !second->recorded) {
    return remember(cudaErrorInvalidResourceHandle);
  }
  // The host's time: all that a device without kernels can say.
  *milliseconds = std::chrono::duration<float, std::milli>(second->when - first->when).count();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
  {
    const std::lock_guard lock(stream_mutex());
    EventState* const mark = find_mark(handle);
    Stream* stream = nullptr;
    if (mark == nullptr || !find_stream(stream_handle, &stream))
      return remember(cudaErrorInvalidResourceHandle);
    const bool open = mark->capture && mark->capture->graph;
    if (open && stream != nullptr) {
      stream->capture = mark->capture;  // the stream joins the capture
      return cudaSuccess;
    }
    if (stream != nullptr && stream->capture) return cudaSuccess;
  }
  return submit(stream_handle, make_event(Kind::kEventWait, "cudaStreamWaitEvent", stream_handle));
}

}  // extern "C"
