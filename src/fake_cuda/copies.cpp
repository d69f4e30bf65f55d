// Copies and memsets. To the host they always happen. To and on the device they happen when
// GEMMs are computed, or when they are small: the weights of a large model would otherwise make
// memory real that nobody reads.
#include <cstring>

#include "fake_cuda/device.h"
#include "fake_cuda/kernels.h"
#include "fake_cuda/memory.h"
#include "fake_cuda/record.h"
#include "fake_cuda/streams.h"

using namespace octavo::fake_cuda;

namespace {

constexpr std::size_t kSmall = 1 << 20;

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;         // of a row
  std::size_t to_pitch = 0;  // 0: one row
  std::size_t from_pitch = 0;
  std::size_t rows = 1;
};

bool on_device(const void* pointer) {
  const MemoryKind place = allocation_of(pointer).place;
  return place == MemoryKind::kDevice || place == MemoryKind::kManaged;
}

Kind kind_of(const Copy& copy, cudaMemcpyKind requested) {
  switch (requested) {
    case cudaMemcpyHostToDevice:
      return Kind::kCopyToDevice;
    case cudaMemcpyDeviceToHost:
      return Kind::kCopyToHost;
    case cudaMemcpyDeviceToDevice:
      return Kind::kCopyOnDevice;
    default:
      break;
  }
  if (!on_device(copy.to)) return Kind::kCopyToHost;
  return on_device(copy.from) ? Kind::kCopyOnDevice : Kind::kCopyToDevice;
}

void move_rows(const Copy& copy) {
  for (std::size_t row = 0; row < copy.rows; ++row) {
    std::memmove(static_cast<char*>(copy.to) + row * copy.to_pitch,
                 static_cast<const char*>(copy.from) + row * copy.from_pitch, copy.bytes);
  }
}

cudaError_t do_copy(const Copy& copy, cudaMemcpyKind requested, cudaStream_t stream,
                    const char* entry, bool waits) {
  const std::size_t total = copy.bytes * copy.rows;
  if (total == 0) return cudaSuccess;
  if (waits && capture_forbids()) return remember(cudaErrorStreamCaptureUnsupported);
  const Kind kind = kind_of(copy, requested);
  const void* const host = kind == Kind::kCopyToHost ? copy.to : copy.from;
  if (!waits && kind != Kind::kCopyOnDevice && allocation_of(host).place == MemoryKind::kUnknown) {
    count_pageable_copy();
    waits = kind == Kind::kCopyToHost;  // such a copy returns when it is done
  }
  if (waits) count_blocking_copy();
  const bool happens = kind == Kind::kCopyToHost || total <= kSmall || options().compute;
  const Event event = make_event(kind, entry, stream, total);
  return submit(stream, event, happens ? Work([copy] { move_rows(copy); }) : Work());
}

cudaError_t do_memset(void* to, int value, std::size_t pitch, std::size_t width, std::size_t rows,
                      cudaStream_t stream, const char* entry) {
  const std::size_t total = width * rows;
  if (total == 0) return cudaSuccess;
  const bool happens = total <= kSmall || options().compute;
  const auto work = [=] {
    for (std::size_t row = 0; row < rows; ++row)
      std::memset(static_cast<char*>(to) + row * pitch, value, width);
  };
  return submit(stream, make_event(Kind::kMemset, entry, stream, total),
                happens ? Work(work) : Work());
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return do_copy({to, from, bytes}, kind, nullptr, "cudaMemcpy", true);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return do_copy({to, from, bytes}, kind, stream, "cudaMemcpyAsync", false);
}

cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) {
  return do_copy({to, from, bytes}, cudaMemcpyDeviceToDevice, nullptr, "cudaMemcpyPeer", true);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return do_copy({to, from, bytes}, cudaMemcpyDeviceToDevice, stream, "cudaMemcpyPeerAsync", false);
}

cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  return do_copy({to, from, width, to_pitch, from_pitch, height}, kind, nullptr, "cudaMemcpy2D",
                 true);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return do_copy({to, from, width, to_pitch, from_pitch, height}, kind, stream, "cudaMemcpy2DAsync",
                 false);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
  void* const to = address_of_variable(symbol);
  if (to == nullptr) return remember(cudaErrorInvalidSymbol);
  return do_copy({static_cast<char*>(to) + offset, from, bytes}, kind, nullptr,
                 "cudaMemcpyToSymbol", true);
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes,
                                    std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  void* const to = address_of_variable(symbol);
  if (to == nullptr) return remember(cudaErrorInvalidSymbol);
  return do_copy({static_cast<char*>(to) + offset, from, bytes}, kind, stream,
                 "cudaMemcpyToSymbolAsync", false);
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return do_memset(to, value, 0, bytes, 1, nullptr, "cudaMemset");
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return do_memset(to, value, 0, bytes, 1, stream, "cudaMemsetAsync");
}

cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  return do_memset(to, value, pitch, width, height, stream, "cudaMemset2DAsync");
}

}  // extern "C"
