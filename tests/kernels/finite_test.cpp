// The finite-check: every place of a NaN or an infinity, in every tensor, and nothing else.

#include "kernels/finite.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/arrays.h"
#include "kernels/host_launch.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Which of these tensors, alternately BF16 and FP32, are found to be bad.
struct Tensors {
  std::vector<Array<Bf16>> narrow;
  std::vector<Array<float>> wide;

  explicit Tensors(const std::vector<int64_t>& sizes, int shift = 0) {
    Numbers numbers(3);
    for (const int64_t n : sizes) {
      narrow.emplace_back(n, shift);
      wide.emplace_back(n, shift);
      numbers.fill(narrow.back(), 1e30f);
      numbers.fill(wide.back(), 1e30f);
      if (n == 0) continue;
      narrow.back()[n - 1] = 0x7F7F;  // the largest number
      wide.back()[0] = -std::numeric_limits<float>::max();
    }
  }
  std::vector<uint32_t> bad(uint64_t order, uint32_t before = 0) {
    std::vector<uint32_t> flags(2 * narrow.size(), before);
    std::vector<FiniteTensor> table;
    for (size_t i = 0; i < narrow.size(); ++i) {
      table.push_back({narrow[i].data(), narrow[i].size(), 0, &flags[2 * i], true});
      table.push_back({wide[i].data(), wide[i].size(), 0, &flags[2 * i + 1], false});
    }
    const auto count = static_cast<int64_t>(table.size());
    const int64_t blocks = plan_finite(table.data(), count);
    HostLauncher on{order};
    EXPECT_EQ(launch_finite(on, {table.data(), static_cast<int32_t>(count)}, blocks), 0);
    return flags;
  }
};

TEST(Finite, finds_nothing_in_numbers_and_leaves_the_flags) {
  Tensors tensors({1, 0, 7, 100, 33000, 9}, 0);
  for (const uint64_t order : kOrders) {
    EXPECT_EQ(tensors.bad(order), std::vector<uint32_t>(12, 0));
    EXPECT_EQ(tensors.bad(order, 1), std::vector<uint32_t>(12, 1));
  }
}

TEST(Finite, finds_each_kind_at_each_place) {
  for (const int shift : {0, 1})
    for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      Tensors tensors({5, 33000, 12}, shift);
      const std::vector<uint32_t> none(6, 0);
      for (size_t t = 0; t < 3; ++t) {
        const int64_t n = tensors.wide[t].size();
        for (const int64_t at : {int64_t{0}, n / 2, n - 1, std::min<int64_t>(n - 1, 3000)}) {
          const float wide_before = tensors.wide[t][at];
          tensors.wide[t][at] = value;
          std::vector<uint32_t> wanted = none;
          wanted[2 * t + 1] = 1;
          EXPECT_EQ(tensors.bad(static_cast<uint64_t>(at % 7)), wanted) << at;
          tensors.wide[t][at] = wide_before;
          const Bf16 narrow_before = tensors.narrow[t][at];
          tensors.narrow[t][at] = nearest_bf16(value);
          wanted = none;
          wanted[2 * t] = 1;
          EXPECT_EQ(tensors.bad(static_cast<uint64_t>(at % 5)), wanted) << at;
          tensors.narrow[t][at] = narrow_before;
        }
      }
    }
}

}  // namespace
}  // namespace octavo::kernels
