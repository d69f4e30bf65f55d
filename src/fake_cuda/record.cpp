#include "fake_cuda/record.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fake_cuda/device.h"

namespace octavo::fake_cuda {
namespace {

constexpr std::size_t kMostGemms = 1 << 18;

struct Record {
  std::mutex mutex;
  Counters counters{};
  std::vector<Event> events;
  std::vector<Gemm> gemms;
};

Record& kept() {
  static auto* const only =
      new Record;  // never destroyed: it is written while others are being destroyed
  return *only;
}

template <typename T>
std::uint64_t copy_out(const std::vector<T>& from, T* out, std::uint64_t first,
                       std::uint64_t capacity) {
  for (std::uint64_t i = 0; i < capacity && first + i < from.size(); ++i) out[i] = from[first + i];
  return from.size();
}

void api_reset() {
  const std::lock_guard lock(kept().mutex);
  const std::uint64_t in_use = kept().counters.memory_in_use;
  kept().counters = {};
  kept().counters.memory_in_use = kept().counters.memory_peak = in_use;
  kept().events.clear();
  kept().gemms.clear();
}

void api_counters(Counters* out) {
  const std::lock_guard lock(kept().mutex);
  *out = kept().counters;
}

std::uint64_t api_events(Event* out, std::uint64_t first, std::uint64_t capacity) {
  const std::lock_guard lock(kept().mutex);
  return copy_out(kept().events, out, first, capacity);
}

std::uint64_t api_gemms(Gemm* out, std::uint64_t first, std::uint64_t capacity) {
  const std::lock_guard lock(kept().mutex);
  return copy_out(kept().gemms, out, first, capacity);
}

}  // namespace

Event make_event(Kind kind, const char* name, cudaStream_t stream, std::uint64_t bytes) {
  return {kind, current_device(), name, reinterpret_cast<std::uint64_t>(stream), bytes};
}

void record(const Event& event) {
  const std::size_t most = options().events;
  const std::lock_guard lock(kept().mutex);
  Counters& counters = kept().counters;
  const int kind = static_cast<int>(event.kind);
  ++counters.count[kind];
  counters.bytes[kind] += event.bytes;
  if (kept().events.size() < most) {
    kept().events.push_back(event);
  } else {
    ++counters.events_dropped;
  }
}

void record_gemm(const Gemm& gemm) {
  const std::lock_guard lock(kept().mutex);
  if (kept().gemms.size() < kMostGemms) {
    kept().gemms.push_back(gemm);
  } else {
    ++kept().counters.events_dropped;
  }
}

void count_blocking_copy() {
  const std::lock_guard lock(kept().mutex);
  ++kept().counters.blocking_copies;
}

void count_pageable_copy() {
  const std::lock_guard lock(kept().mutex);
  ++kept().counters.pageable_copies;
}

void count_captured_node() {
  const std::lock_guard lock(kept().mutex);
  ++kept().counters.captured_nodes;
}

void count_out_of_memory() {
  const std::lock_guard lock(kept().mutex);
  ++kept().counters.out_of_memory;
}

void change_memory_in_use(std::int64_t bytes) {
  const std::lock_guard lock(kept().mutex);
  Counters& counters = kept().counters;
  counters.memory_in_use += static_cast<std::uint64_t>(bytes);
  counters.memory_peak = std::max(counters.memory_peak, counters.memory_in_use);
}

void record_unexpected(const char* name) {
  record(make_event(Kind::kUnexpected, name));
}

}  // namespace octavo::fake_cuda

extern "C" const octavo::fake_cuda::Api* octavo_fake_cuda_api() {
  using namespace octavo::fake_cuda;
  static const Api api = {kApiVersion, api_reset, api_counters, api_events, api_gemms};
  return &api;
}

extern "C" void octavo_fake_cuda_reset() {
  octavo::fake_cuda::api_reset();
}
