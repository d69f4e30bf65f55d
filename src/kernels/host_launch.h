#pragma once
// Kernel bodies on the host, one CUDA thread after the other: for tests, and for the fake CUDA
// device. Every thread of a block is a fiber that runs until it waits for others, at a barrier or a
// shuffle; then another one runs. The order of blocks and of threads is ascending, or drawn from a
// seed, so that a body which needs a barrier that is not there gives another result.
//
// Shared memory begins as bytes 0xFF (NaN as floats). A barrier that some threads never reach
// throws std::logic_error. The thread sanitizer is told of fibers and barriers: two threads of a
// block that touch one place without a barrier between them are a data race to it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/reduce.h"

namespace octavo::kernels {

// The threads of one block after the other.
class FiberBlock {
 public:
  explicit FiberBlock(int threads);
  ~FiberBlock();
  FiberBlock(const FiberBlock&) = delete;
  FiberBlock& operator=(const FiberBlock&) = delete;

  // Calls body(thread) in a fiber of its own for each of `order`, which has every thread once.
  void run(const std::vector<int>& order, const std::function<void(int)>& body);

  // From inside a fiber: waits for all threads of the block, or of the warp.
  void wait_for_block(int thread);
  void wait_for_warp(int thread);

  static constexpr size_t kExchanged = 64;  // bytes that a lane can show the others
  std::byte* exchanged(int thread);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// What a kernel's body sees of its block.
class HostBlock {
 public:
  HostBlock(FiberBlock* fibers, int64_t index, int64_t count, int thread)
      : fibers_(fibers), index_(index), count_(count), thread_(thread) {}

  int64_t index() const { return index_; }
  int64_t count() const { return count_; }
  int thread() const { return thread_; }
  void barrier() { fibers_->wait_for_block(thread_); }

  template <class T>
  T shuffle_xor(T value, int mask) {
    static_assert(sizeof(T) <= FiberBlock::kExchanged);
    std::memcpy(fibers_->exchanged(thread_), &value, sizeof(T));
    fibers_->wait_for_warp(thread_);
    std::memcpy(&value, fibers_->exchanged(thread_ ^ mask), sizeof(T));
    fibers_->wait_for_warp(thread_);  // before the next value takes its place
    return value;
  }

  // Fibers of one host thread take turns only where they wait.
  void atomic_max(uint32_t* at, uint32_t value) {
    __atomic_store_n(at, std::max(__atomic_load_n(at, __ATOMIC_RELAXED), value), __ATOMIC_RELAXED);
  }
  uint32_t atomic_add(uint32_t* at, uint32_t value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
  }
  void fence() {}  // blocks run one after the other

 private:
  FiberBlock* fibers_;  // null in kernels without barriers
  int64_t index_, count_;
  int thread_;
};

// 0 to count - 1: ascending when the seed is 0.
std::vector<int64_t> shuffled(int64_t count, uint64_t seed);

template <class Kernel>
void run_on_host(int64_t blocks, const typename Kernel::Arguments& arguments, uint64_t seed = 0) {
  using Shared = typename Kernel::Shared;
  std::unique_ptr<FiberBlock> fibers;
  if constexpr (Kernel::kHasBarriers) fibers = std::make_unique<FiberBlock>(Kernel::kThreads);
  alignas(16) std::byte bytes[sizeof(Shared)];
  auto& shared = *reinterpret_cast<Shared*>(bytes);
  for (const int64_t index : shuffled(blocks, seed)) {
    std::memset(bytes, 0xFF, sizeof bytes);
    const std::vector<int64_t> drawn =
        shuffled(Kernel::kThreads, seed == 0 ? 0 : seed + static_cast<uint64_t>(index) + 1);
    const std::vector<int> order(drawn.begin(), drawn.end());
    const auto body = [&](int thread) {
      HostBlock block(fibers.get(), index, blocks, thread);
      Kernel::run(block, shared, arguments);
    };
    if constexpr (Kernel::kHasBarriers)
      fibers->run(order, body);
    else
      for (const int thread : order) body(thread);
  }
}

// A Launcher (kernels.h) that computes on the host before it returns.
struct HostLauncher {
  uint64_t seed = 0;

  template <class Kernel>
  int32_t launch(int64_t blocks, const typename Kernel::Arguments& arguments) {
    run_on_host<Kernel>(blocks, arguments, seed);
    return 0;
  }
};

}  // namespace octavo::kernels
