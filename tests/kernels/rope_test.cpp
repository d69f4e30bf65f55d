// Rotation: bit for bit two products and two fused additions, and near FP64.

#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/arrays.h"
#include "kernels/host_launch.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

struct RopeShape {
  int64_t rows;
  int32_t heads, others, dim;  // others: heads of v, not rotated
  bool back;
  int shift;
};

template <class T>
void check_rope(const RopeShape& s) {
  const int64_t row = int64_t{s.heads + s.others} * s.dim, positions = 40;
  Numbers numbers(static_cast<uint64_t>(s.dim + s.heads));
  Array<T> before(s.rows * row, s.shift);
  numbers.fill(before);
  Array<float> table(positions * s.dim);
  for (int64_t p = 0; p < positions; ++p)
    for (int32_t i = 0; i < s.dim / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * i / s.dim);
      table[p * s.dim + i] = static_cast<float>(std::cos(angle));
      table[p * s.dim + s.dim / 2 + i] = static_cast<float>(std::sin(angle));
    }
  Array<int32_t> at(s.rows);
  for (int64_t r = 0; r < s.rows; ++r) at[r] = static_cast<int32_t>(numbers.bits() % positions);

  Array<T> wanted = before;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int32_t h = 0; h < s.heads; ++h)
      for (int32_t i = 0; i < s.dim / 2; ++i) {
        const int64_t first = r * row + h * s.dim + i, second = first + s.dim / 2;
        const float a = widened(before[first]), b = widened(before[second]);
        const float c = table[at[r] * s.dim + i], plus = table[at[r] * s.dim + s.dim / 2 + i];
        const float sine = s.back ? -plus : plus;
        narrow_to(std::fma(-b, sine, a * c), wanted[first]);
        narrow_to(std::fma(a, sine, b * c), wanted[second]);
        const double exact = double{a} * c - double{b} * sine;
        EXPECT_NEAR(widened(wanted[first]), exact, bf16_step(exact) + 1e-6);
      }
  for (const uint64_t order : kOrders) {
    Array<T> found = before;
    HostLauncher on{order};
    const Stored stored = std::is_same_v<T, Bf16> ? Stored::kBf16 : Stored::kFp32;
    RopeArguments arguments{.x = found.data(),
                            .positions = at.data(),
                            .table = table.data(),
                            .rows = s.rows,
                            .row = row,
                            .heads = s.heads,
                            .dim = s.dim,
                            .back = s.back,
                            .packs = {}};
    ASSERT_EQ(launch_rope(on, stored, arguments), 0);
    EXPECT_TRUE(found == wanted) << "dim " << s.dim << ", order " << order;

    // The same from q, k and v apart: k has as many heads as v.
    if (s.others == 0 || s.heads <= s.others) continue;
    const std::array<int32_t, 3> heads = {s.heads - s.others, s.others, s.others};
    std::array<Array<T>, 3> apart;
    for (int64_t part = 0, column = 0; part < 3; column += heads[part++] * s.dim) {
      const int64_t width = heads[part] * s.dim;
      apart[part] = Array<T>(s.rows * width, s.shift);
      for (int64_t r = 0; r < s.rows; ++r)
        for (int64_t c = 0; c < width; ++c)
          apart[part][r * width + c] = before[r * row + column + c];
    }
    Array<T> packed(s.rows * row, s.shift);
    arguments.x = packed.data();
    arguments.packs = {.q = apart[0].data(),
                       .k = apart[1].data(),
                       .v = apart[2].data(),
                       .q_heads = heads[0],
                       .k_heads = heads[1],
                       .v_heads = heads[2]};
    ASSERT_EQ(launch_rope(on, stored, arguments), 0);
    EXPECT_TRUE(packed == wanted) << "packed, dim " << s.dim << ", order " << order;
  }
}

TEST(Rope, is_the_plain_loop_for_every_layout) {
  for (const bool back : {false, true})
    for (const RopeShape& s : std::vector<RopeShape>{{3, 4, 2, 64, back, 0},
                                                     {2, 40, 8, 128, back, 0},
                                                     {5, 3, 1, 6, back, 0},
                                                     {4, 2, 0, 40, back, 0},
                                                     {1, 1, 1, 2, back, 0},
                                                     {2, 3, 1, 64, back, 1}}) {
      check_rope<Bf16>(s);
      check_rope<float>(s);
    }
}

TEST(Rope, refuses_what_it_has_no_kernel_for) {
  HostLauncher on;
  EXPECT_EQ(launch_rope(on, Stored::kFp8, {}), kUnsupported);
}

}  // namespace
}  // namespace octavo::kernels
