// Streams, and graphs that are captured from them.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fake_cuda/record.h"

namespace octavo::fake_cuda {

// What a graph does when it is launched, in the order of capture.
struct Node {
  Event event;
  Work work;
};

struct Graph {
  std::vector<Node> nodes;
};

struct Capture {
  std::uint64_t id;
  std::shared_ptr<Graph> graph;  // null when the capture has ended
  void* handle;                  // of the graph
  cudaStreamCaptureMode mode;
  bool invalidated = false;
};

struct Stream {
  int device;
  int priority;
  unsigned flags;
  std::shared_ptr<Capture> capture;  // of the stream that began it and of those that joined
};

// One lock for streams, events and captures: they refer to each other.
std::mutex& stream_mutex();

// The stream behind a handle: null for a default stream. An unknown handle gives false.
bool find_stream(cudaStream_t handle, Stream** stream);
// A new stream; handles are never used twice.
cudaStream_t make_stream(int device, unsigned flags, int priority);
// Takes all streams out of a capture; the caller holds the lock.
void leave_capture(const std::shared_ptr<Capture>& capture);

// Whether a capture in progress forbids a call that waits for the device or changes its memory; the
// capture is lost then, as on a real device.
bool capture_forbids();
void begin_capture_mode(cudaStreamCaptureMode mode);
void end_capture_mode(cudaStreamCaptureMode mode);

}  // namespace octavo::fake_cuda
