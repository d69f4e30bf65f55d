#include "fake_cuda/streams.h"

#include <unordered_set>

#include "fake_cuda/device.h"

namespace octavo::fake_cuda {
namespace {

struct Streams {
  std::mutex mutex;
  std::unordered_set<Stream*> alive;
  std::vector<std::shared_ptr<Capture>> captures;
};

Streams& streams() {
  static auto* const only = new Streams;
  return *only;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
thread_local int captures_of_thread = 0;
int captures_global = 0;  // under the lock

bool is_default(cudaStream_t handle) {
  return handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

cudaError_t synchronize(cudaStream_t handle, const char* entry) {
  Stream* stream = nullptr;
  {
    const std::lock_guard lock(stream_mutex());
    if (!find_stream(handle, &stream)) return remember(cudaErrorInvalidResourceHandle);
    if (stream != nullptr && stream->capture) {
      stream->capture->invalidated = true;
      return remember(cudaErrorStreamCaptureUnsupported);
    }
  }
  record(make_event(Kind::kStreamSync, entry, handle));
  return cudaSuccess;
}

}  // namespace

std::mutex& stream_mutex() {
  return streams().mutex;
}

bool find_stream(cudaStream_t handle, Stream** stream) {
  *stream = nullptr;
  if (is_default(handle)) return true;
  auto* const candidate = reinterpret_cast<Stream*>(handle);
  if (!streams().alive.contains(candidate)) return false;
  *stream = candidate;
  return true;
}

cudaStream_t make_stream(int device, unsigned flags, int priority) {
  auto* const stream =
      new Stream{device, priority, flags, nullptr};  // kept for ever: a handle is never used twice
  const std::lock_guard lock(stream_mutex());
  streams().alive.insert(stream);
  return reinterpret_cast<cudaStream_t>(stream);
}

void leave_capture(const std::shared_ptr<Capture>& capture) {
  for (Stream* const stream : streams().alive) {
    if (stream->capture == capture) stream->capture = nullptr;
  }
}

void begin_capture_mode(cudaStreamCaptureMode mode) {
  if (mode == cudaStreamCaptureModeGlobal) ++captures_global;
  if (mode != cudaStreamCaptureModeRelaxed) ++captures_of_thread;
}

void end_capture_mode(cudaStreamCaptureMode mode) {
  if (mode == cudaStreamCaptureModeGlobal) --captures_global;
  if (mode != cudaStreamCaptureModeRelaxed) --captures_of_thread;
}

bool capture_forbids() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  const std::lock_guard lock(stream_mutex());
  const bool forbidden =
      captures_of_thread > 0 || (thread_mode == cudaStreamCaptureModeGlobal && captures_global > 0);
  if (!forbidden) return false;
  for (Stream* const stream : streams().alive) {
    if (stream->capture) stream->capture->invalidated = true;
  }
  return true;
}

cudaError_t submit(cudaStream_t handle, const Event& event, const Work& work) {
  if (!is_default(handle)) {
    const std::lock_guard lock(stream_mutex());
    Stream* stream = nullptr;
    if (!find_stream(handle, &stream)) return remember(cudaErrorInvalidResourceHandle);
    if (event.kind == Kind::kLaunch && stream->device != current_device()) {
      return remember(
          cudaErrorInvalidResourceHandle);  // a kernel goes to a stream of the current device
    }
    if (stream->capture) {
      stream->capture->graph->nodes.push_back({event, work});
      count_captured_node();
      return cudaSuccess;
    }
  }
  record(event);
  if (work) work();
  return cudaSuccess;
}

}  // namespace octavo::fake_cuda

using namespace octavo::fake_cuda;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  if (availability() != cudaSuccess) return remember(availability());
  use_device(current_device());
  *handle = make_stream(current_device(), flags, priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* handle) {
  return cudaStreamCreateWithPriority(handle, 0, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const std::lock_guard lock(stream_mutex());
  Stream* stream = nullptr;
  if (!find_stream(handle, &stream) || stream == nullptr)
    return remember(cudaErrorInvalidResourceHandle);
  streams().alive.erase(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return synchronize(handle, "cudaStreamSynchronize");
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::lock_guard lock(stream_mutex());
  Stream* stream = nullptr;
  return find_stream(handle, &stream) ? cudaSuccess : remember(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  const std::lock_guard lock(stream_mutex());
  Stream* stream = nullptr;
  if (!find_stream(handle, &stream)) return remember(cudaErrorInvalidResourceHandle);
  *priority = stream == nullptr ? 0 : stream->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  const std::lock_guard lock(stream_mutex());
  Stream* stream = nullptr;
  if (!find_stream(handle, &stream)) return remember(cudaErrorInvalidResourceHandle);
  *flags = stream == nullptr ? 0 : stream->flags;
  return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  const std::lock_guard lock(stream_mutex());
  Stream* stream = nullptr;
  if (!find_stream(handle, &stream)) return remember(cudaErrorInvalidResourceHandle);
  *device = stream == nullptr ? current_device() : stream->device;
  return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  *id = reinterpret_cast<unsigned long long>(handle);
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return submit(handle, make_event(Kind::kHostFunction, "cudaLaunchHostFunc", handle),
                [=] { function(data); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  return submit(handle, make_event(Kind::kHostFunction, "cudaStreamAddCallback", handle),
                [=] { callback(handle, cudaSuccess, data); });
}

}  // extern "C"
