#include "kernels/host_launch.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <random>
#include <stdexcept>

#include "kernels/sanitizers.h"

namespace octavo::kernels {
namespace {

constexpr size_t kStack = size_t{128} << 10;

enum class Wait : int { kNothing, kBlock, kWarp, kDone };

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack{new std::byte[kStack]};  // not touched before it is used
  // Written by the fiber and read by the scheduler: atomic, since to the thread sanitizer these are
  // two threads that no barrier orders.
  std::atomic<Wait> waits_for{Wait::kDone};
  alignas(16) std::array<std::byte, FiberBlock::kExchanged> exchanged{};
  // How often it waited, for the tags below.
  size_t waits_for_block = 0, waits_for_warp = 0;
  void* sanitizer_thread = nullptr;
  void* sanitizer_stack = nullptr;
};

}  // namespace

struct FiberBlock::State {
  std::vector<std::unique_ptr<Fiber>> fibers;
  ucontext_t scheduler{};
  std::function<void(int)> body;
  std::exception_ptr error;
  // Addresses for the thread sanitizer. Two of each, in turn: a thread that is at the next barrier
  // already has told of what it did since this one.
  std::vector<std::array<char, 2>> warp_tags;
  std::array<char, 2> block_tags{};
  char done_tag = 0;
  void* scheduler_thread = nullptr;
  void* scheduler_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  size_t scheduler_size = 0;

  void resume(Fiber& fiber, bool in_order);
  void yield(Fiber& fiber);
  void live(int thread);
  void open_barriers(const std::vector<int>& order);
};

namespace {

// makecontext() passes integers.
void enter_fiber(unsigned high, unsigned low, int thread) {
  auto* state = reinterpret_cast<FiberBlock::State*>(static_cast<uintptr_t>(high) << 32 | low);
  state->live(thread);
}

void released(void* tag) {
#ifdef OCTAVO_FIBER_TSAN
  __tsan_release(tag);
#else
  (void)tag;
#endif
}
void acquired(void* tag) {
#ifdef OCTAVO_FIBER_TSAN
  __tsan_acquire(tag);
#else
  (void)tag;
#endif
}

}  // namespace

// `in_order`: what the scheduler did before is before what the fiber does, to the thread sanitizer.
void FiberBlock::State::resume(Fiber& fiber, [[maybe_unused]] bool in_order) {
#ifdef OCTAVO_FIBER_ASAN
  __sanitizer_start_switch_fiber(&scheduler_stack, fiber.stack.get(), kStack);
#endif
#ifdef OCTAVO_FIBER_TSAN
  __tsan_switch_to_fiber(fiber.sanitizer_thread, in_order ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
  swapcontext(&scheduler, &fiber.context);
#ifdef OCTAVO_FIBER_ASAN
  __sanitizer_finish_switch_fiber(scheduler_stack, nullptr, nullptr);
#endif
}

void FiberBlock::State::yield(Fiber& fiber) {
#ifdef OCTAVO_FIBER_ASAN
  __sanitizer_start_switch_fiber(&fiber.sanitizer_stack, scheduler_bottom, scheduler_size);
#endif
#ifdef OCTAVO_FIBER_TSAN
  __tsan_switch_to_fiber(scheduler_thread, __tsan_switch_to_fiber_no_sync);
#endif
  swapcontext(&fiber.context, &scheduler);
#ifdef OCTAVO_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fiber.sanitizer_stack, &scheduler_bottom, &scheduler_size);
#endif
}

// A fiber's life: the bodies of one block after the other.
void FiberBlock::State::live(int thread) {
  Fiber& fiber = *fibers[static_cast<size_t>(thread)];
#ifdef OCTAVO_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_size);
#endif
  for (;;) {
    fiber.waits_for = Wait::kNothing;
    yield(fiber);  // all fibers have begun before the first one works
    try {
      body(thread);
    } catch (...) {
      error = std::current_exception();
    }
    fiber.waits_for = Wait::kDone;
    released(&done_tag);
    yield(fiber);
  }
}

// By itself: getcontext may return twice for all that a compiler knows.
[[gnu::noinline]] static void begin_context(ucontext_t& context) {
  getcontext(&context);
}

FiberBlock::FiberBlock(int threads) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.warp_tags.resize(static_cast<size_t>(threads + kWarp - 1) / kWarp);
#ifdef OCTAVO_FIBER_TSAN
  s.scheduler_thread = __tsan_get_current_fiber();
#endif
  const auto address = reinterpret_cast<uintptr_t>(&s);
  for (int thread = 0; thread < threads; ++thread) {
    auto fiber = std::make_unique<Fiber>();
    begin_context(fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = kStack;
    makecontext(&fiber->context, reinterpret_cast<void (*)()>(&enter_fiber), 3,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address), thread);
#ifdef OCTAVO_FIBER_TSAN
    fiber->sanitizer_thread = __tsan_create_fiber(0);
#endif
    s.fibers.push_back(std::move(fiber));
  }
}

FiberBlock::~FiberBlock() {
#ifdef OCTAVO_FIBER_TSAN
  for (const auto& fiber : state_->fibers) __tsan_destroy_fiber(fiber->sanitizer_thread);
#endif
}

void FiberBlock::State::open_barriers(const std::vector<int>& order) {
  const auto of = [&](int thread) -> Fiber& { return *fibers[static_cast<size_t>(thread)]; };
  std::vector<int> in_warp(warp_tags.size()), warp_size(warp_tags.size());
  size_t in_block = 0;
  for (const int thread : order) {
    const auto warp = static_cast<size_t>(thread / kWarp);
    ++warp_size[warp];
    in_warp[warp] += of(thread).waits_for == Wait::kWarp;
    in_block += of(thread).waits_for == Wait::kBlock;
  }
  bool opened = false;
  for (const int thread : order) {
    const auto warp = static_cast<size_t>(thread / kWarp);
    const Wait wait = of(thread).waits_for;
    const bool opens = (wait == Wait::kBlock && in_block == order.size()) ||
                       (wait == Wait::kWarp && in_warp[warp] == warp_size[warp]);
    if (opens) of(thread).waits_for = Wait::kNothing;
    opened |= opens;
  }
  if (!opened)
    throw std::logic_error("kernel on the host: threads wait at a barrier that others never reach");
}

void FiberBlock::run(const std::vector<int>& order, const std::function<void(int)>& body) {
  State& s = *state_;
  s.body = body;
  s.error = nullptr;
  const auto of = [&](int thread) -> Fiber& { return *s.fibers[static_cast<size_t>(thread)]; };
  for (const int thread : order) s.resume(of(thread), /*in_order=*/true);
  for (;;) {
    size_t done = 0;
    for (const int thread : order) {
      if (of(thread).waits_for == Wait::kNothing) s.resume(of(thread), /*in_order=*/false);
      done += of(thread).waits_for == Wait::kDone;
    }
    if (done == order.size()) break;
    if (s.error) break;
    s.open_barriers(order);
  }
  acquired(&s.done_tag);
  if (s.error) std::rethrow_exception(s.error);
}

void FiberBlock::wait_for_block(int thread) {
  State& s = *state_;
  Fiber& fiber = *s.fibers[static_cast<size_t>(thread)];
  char* tag = &s.block_tags[fiber.waits_for_block++ % 2];
  released(tag);
  fiber.waits_for = Wait::kBlock;
  s.yield(fiber);
  acquired(tag);
}

void FiberBlock::wait_for_warp(int thread) {
  State& s = *state_;
  Fiber& fiber = *s.fibers[static_cast<size_t>(thread)];
  char* tag = &s.warp_tags[static_cast<size_t>(thread / kWarp)][fiber.waits_for_warp++ % 2];
  released(tag);
  fiber.waits_for = Wait::kWarp;
  s.yield(fiber);
  acquired(tag);
}

std::byte* FiberBlock::exchanged(int thread) {
  return state_->fibers[static_cast<size_t>(thread)]->exchanged.data();
}

std::vector<int64_t> shuffled(int64_t count, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (seed != 0) std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

}  // namespace octavo::kernels
