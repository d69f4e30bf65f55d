// The emulator itself: it must see what a GPU would not forgive.

#include "kernels/host_launch.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "kernels/arrays.h"
#include "kernels/block_table.h"

namespace octavo::kernels {
namespace {

// Thread i gives the number of its neighbour, through shared memory.
template <bool kWaits>
struct NeighbourKernel {
  static constexpr int kThreads = 64;
  static constexpr bool kHasBarriers = true;
  struct Arguments {
    int* out;
  };
  struct Shared {
    int number[kThreads];
  };
  template <class Block>
  static void run(Block& block, Shared& shared, const Arguments& a) {
    shared.number[block.thread()] = block.thread();
    if (kWaits) block.barrier();
    a.out[block.index() * kThreads + block.thread()] =
        shared.number[(block.thread() + 1) % kThreads];
  }
};

TEST(HostLaunch, barriers_separate_what_threads_do) {
  for (const uint64_t order : kOrders) {
    std::vector<int> out(3 * 64, -1);
    run_on_host<NeighbourKernel<true>>(3, {out.data()}, order);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<int>((i + 1) % 64));
  }
}

#if !__has_feature(thread_sanitizer)  // to it, this is the race that it is
TEST(HostLaunch, a_missing_barrier_shows) {
  std::vector<int> out(64, -1);
  run_on_host<NeighbourKernel<false>>(1, {out.data()});
  EXPECT_EQ(out[0], -1);  // 0xFFFFFFFF: the neighbour had not been there
}
#endif

struct LonelyBarrierKernel {
  static constexpr int kThreads = 64;
  static constexpr bool kHasBarriers = true;
  struct Arguments {};
  struct Shared {};
  template <class Block>
  static void run(Block& block, Shared&, const Arguments&) {
    if (block.thread() != 63) block.barrier();
  }
};

TEST(HostLaunch, a_barrier_that_one_thread_misses_throws) {
  EXPECT_THROW(run_on_host<LonelyBarrierKernel>(1, {}), std::logic_error);
}

struct ShuffleKernel {
  static constexpr int kThreads = 64;
  static constexpr bool kHasBarriers = true;
  struct Arguments {
    int64_t* out;
  };
  struct Shared {
    int64_t per_warp[2];
  };
  template <class Block>
  static void run(Block& block, Shared& shared, const Arguments& a) {
    const auto add = [](int64_t x, int64_t y) { return x + y; };
    const int64_t number = block.thread();
    const int64_t four = join_lanes<4>(block, number, add);
    // Twice: the second writes where the first one's result was read.
    const int64_t once = join_threads<64>(block, shared.per_warp, number, add);
    const int64_t all = join_threads<64>(block, shared.per_warp, once / 64, add) + number;
    a.out[block.thread()] = four * 10000 + all;
  }
};

TEST(HostLaunch, lanes_and_threads_join) {
  for (const uint64_t order : kOrders) {
    std::vector<int64_t> out(64);
    run_on_host<ShuffleKernel>(1, {out.data()}, order);
    for (int64_t i = 0; i < 64; ++i)
      EXPECT_EQ(out[static_cast<size_t>(i)], (4 * (i / 4 * 4) + 6) * 10000 + 63 / 2 * 64 + i);
  }
}

struct ThrowingKernel {
  static constexpr int kThreads = 32;
  static constexpr bool kHasBarriers = true;
  struct Arguments {};
  struct Shared {};
  template <class Block>
  static void run(Block& block, Shared&, const Arguments&) {
    if (block.thread() == 5) throw std::runtime_error("five");
    block.barrier();
  }
};

TEST(HostLaunch, an_exception_leaves_the_fiber) {
  EXPECT_THROW(run_on_host<ThrowingKernel>(1, {}), std::runtime_error);
}

TEST(HostLaunch, orders_are_permutations_and_differ) {
  std::set<std::vector<int64_t>> seen;
  for (const uint64_t order : kOrders) {
    const std::vector<int64_t> drawn = shuffled(50, order);
    EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()).size(), 50u);
    seen.insert(drawn);
  }
  EXPECT_EQ(seen.size(), kOrders.size());
}

struct Entry {
  int64_t count, first_block;
};
struct FourOfBlock {
  static constexpr int64_t kElementsOfBlock = 4;
};

TEST(HostLaunch, blocks_find_their_entry_of_a_table) {
  std::vector<Entry> table = {{0, -1}, {4, -1}, {0, -1}, {0, -1}, {9, -1}, {1, -1}, {0, -1}};
  ASSERT_EQ(plan_blocks<FourOfBlock>(table.data(), 7), 5);
  const std::vector<int64_t> wanted = {4, 9, 9, 9, 1};
  for (int64_t block = 0; block < 5; ++block)
    EXPECT_EQ(entry_of_block(table.data(), 7, block).count, wanted[static_cast<size_t>(block)]);
}

}  // namespace
}  // namespace octavo::kernels
