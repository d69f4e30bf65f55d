#include "engine/groups.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>

namespace octavo::engine {
namespace {

const Target kOnCpu{.device = at::kCPU, .compute = at::kBFloat16};
const Target kOnGpu{.device = at::Device(at::kCUDA, 0), .compute = at::kBFloat16};

// At least so many, whatever the machine has.
class Groups : public testing::Test {
 protected:
  Groups() { at::set_num_threads(3); }
  ~Groups() override { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

TEST_F(Groups, AreFilledUpToFewNumbersOfRows) {
  std::set<int64_t> numbers;
  for (int64_t rows = 1; rows <= 8192; ++rows) {
    const int64_t filled = filled_rows(kOnCpu, rows);
    EXPECT_GE(filled, rows);
    EXPECT_LT(filled, rows + std::max<int64_t>(32, rows / 8 + 1)) << rows;
    EXPECT_EQ(filled_rows(kOnCpu, filled), filled);
    EXPECT_EQ(filled_rows(kOnGpu, rows), rows);
    numbers.insert(filled);
  }
  EXPECT_LE(numbers.size(), 64u);
}

TEST_F(Groups, RunOnceEach) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> bounds = {0};
  for (int i = 0; i < 50; ++i) bounds.push_back(bounds.back() + i % 4);
  std::vector<std::atomic<int>> runs(50);
  std::atomic<int> alone = 0, with_gradients = 0;
  for_each_group(kOnCpu, bounds, [&](size_t group) {
    ++runs[group];
    alone += at::in_parallel_region() ? 1 : 0;
    with_gradients += at::GradMode::is_enabled() ? 1 : 0;
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_EQ(alone, 50) << "a thread for each group";
  EXPECT_EQ(with_gradients, 0) << "the caller's settings are those of all threads";
}

TEST_F(Groups, HaveAllThreadsWhereOneGroupIsLarge) {
  for (const Target& target : {kOnCpu, kOnGpu}) {
    std::vector<size_t> order;  // of one thread
    for_each_group(target, std::vector<int64_t>{0, 4, 100, 104, 104}, [&](size_t group) {
      EXPECT_FALSE(at::in_parallel_region());
      order.push_back(group);
    });
    EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3}));
  }
}

TEST_F(Groups, AFailureIsTheCallers) {
  EXPECT_THROW(for_each_group(kOnCpu, std::vector<int64_t>{0, 1, 2, 3, 4},
                              [](size_t group) {
                                if (group == 2) throw std::runtime_error("no");
                              }),
               std::runtime_error);
}

}  // namespace
}  // namespace octavo::engine
