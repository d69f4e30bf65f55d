// Graphs captured from streams: a list of what would have happened, which happens at each launch.
#include <unordered_map>

#include "fake_cuda/device.h"
#include "fake_cuda/streams.h"

using namespace octavo::fake_cuda;

namespace {

// Handles to shared graphs; an instantiated graph outlives the one it came from.
struct Graphs {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<Graph>> by_handle;
  std::uint64_t next = 0x6ab50000;
  std::uint64_t next_capture = 1;
};

Graphs& graphs() {
  static auto* const only = new Graphs;
  return *only;
}

void* add_handle(std::shared_ptr<Graph> graph) {
  const std::lock_guard lock(graphs().mutex);
  void* const handle = reinterpret_cast<void*>(graphs().next += 16);
  graphs().by_handle[handle] = std::move(graph);
  return handle;
}

std::shared_ptr<Graph> find_graph(void* handle) {
  const std::lock_guard lock(graphs().mutex);
  const auto found = graphs().by_handle.find(handle);
  return found == graphs().by_handle.end() ? nullptr : found->second;
}

cudaError_t drop_handle(void* handle) {
  const std::lock_guard lock(graphs().mutex);
  return graphs().by_handle.erase(handle) == 1 ? cudaSuccess : remember(cudaErrorInvalidValue);
}

cudaError_t begin_capture(cudaStream_t handle, cudaStreamCaptureMode mode, void* graph) {
  const std::lock_guard lock(stream_mutex());
  Stream* stream = nullptr;
  if (!find_stream(handle, &stream)) return remember(cudaErrorInvalidResourceHandle);
  if (stream == nullptr) return remember(cudaErrorStreamCaptureUnsupported);  // a default stream
  if (stream->capture) return remember(cudaErrorIllegalState);
  stream->capture =
      std::make_shared<Capture>(Capture{graphs().next_capture++, find_graph(graph), graph, mode});
  begin_capture_mode(mode);
  return cudaSuccess;
}

cudaError_t instantiate(cudaGraphExec_t* exec, cudaGraph_t handle) {
  const std::shared_ptr<Graph> graph = find_graph(handle);
  if (!graph) return remember(cudaErrorInvalidValue);
  *exec = static_cast<cudaGraphExec_t>(add_handle(std::make_shared<Graph>(*graph)));
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return begin_capture(handle, mode, add_handle(std::make_shared<Graph>()));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph,
                                          const cudaGraphNode_t*, const cudaGraphEdgeData*,
                                          std::size_t, cudaStreamCaptureMode mode) {
  return find_graph(graph) ? begin_capture(handle, mode, graph) : remember(cudaErrorInvalidValue);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::lock_guard lock(stream_mutex());
  Stream* stream = nullptr;
  if (!find_stream(handle, &stream)) return remember(cudaErrorInvalidResourceHandle);
  if (stream == nullptr || !stream->capture) return remember(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = stream->capture;
  leave_capture(capture);
  end_capture_mode(capture->mode);
  capture->graph = nullptr;
  if (capture->invalidated) return remember(cudaErrorStreamCaptureInvalidated);
  *graph = static_cast<cudaGraph_t>(capture->handle);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(stream_mutex());
  Stream* stream = nullptr;
  if (!find_stream(handle, &stream)) return remember(cudaErrorInvalidResourceHandle);
  *status = cudaStreamCaptureStatusNone;
  if (stream != nullptr && stream->capture) {
    *status = stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  const cudaError_t error = cudaStreamIsCapturing(handle, status);
  if (error != cudaSuccess) return error;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  if (*status == cudaStreamCaptureStatusNone) return cudaSuccess;
  std::shared_ptr<Capture> capture;
  {
    const std::lock_guard lock(stream_mutex());
    Stream* stream = nullptr;
    if (find_stream(handle, &stream) && stream != nullptr) capture = stream->capture;
  }
  if (!capture) return cudaSuccess;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = static_cast<cudaGraph_t>(capture->handle);
  return cudaSuccess;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t*,
                                                const cudaGraphEdgeData*, std::size_t, unsigned) {
  return cudaSuccess;  // the order of capture is kept, which is stricter
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  *graph = static_cast<cudaGraph_t>(add_handle(std::make_shared<Graph>()));
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return instantiate(exec, graph);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long) {
  return instantiate(exec, graph);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count) {
  const std::shared_ptr<Graph> graph = find_graph(handle);
  if (!graph) return remember(cudaErrorInvalidValue);
  if (nodes != nullptr) {
    for (std::size_t i = 0; i < *count; ++i)
      nodes[i] =
          i < graph->nodes.size() ? reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]) : nullptr;
  }
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  const std::shared_ptr<Graph> graph = find_graph(handle);
  if (!graph) return remember(cudaErrorInvalidResourceHandle);
  record(make_event(Kind::kGraphLaunch, "cudaGraphLaunch", stream));
  for (const Node& node : graph->nodes) {
    record(node.event);
    if (node.work) node.work();
  }
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  return drop_handle(handle);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  return drop_handle(handle);
}

}  // extern "C"
