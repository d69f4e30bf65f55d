// Codes, transposed codes, the largest magnitude and the scale's inverse bit for bit as the
// reference's; sums of columns against FP64.

#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "kernels/arrays.h"
#include "kernels/host_launch.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

constexpr float kScale = 3.5f;

struct Matrix {
  int32_t rows, columns;
  Array<Bf16> x;
  Array<uint8_t> codes, column_codes;
  uint32_t amax = 1;
  float inverse = 0;

  Matrix(int32_t r, int32_t c, int shift = 0)
      : rows(r), columns(c), x(int64_t{r} * c, shift), codes(x.size()), column_codes(x.size()) {
    Numbers numbers(static_cast<uint64_t>(1000 * r + c));
    numbers.fill(x, 40);
  }
  bool records = true;  // the largest magnitude

  QuantizeTensor entry(bool row, bool column) {
    return {.x = x.data(),
            .codes = row ? codes.data() : nullptr,
            .column_codes = column ? column_codes.data() : nullptr,
            .scale = &kScale,
            .inverse = &inverse,
            .amax = records ? &amax : nullptr,
            .rows = rows,
            .columns = columns};
  }
  void check(fp8::Format format, bool row, bool column) const {
    float largest = std::bit_cast<float>(1u);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const float value = widened(x[r * columns + c]);
        if (!std::isnan(value)) largest = std::max(largest, std::abs(value));
        const uint8_t wanted = fp8::encode(format, value * kScale);
        ASSERT_EQ(codes[r * columns + c], row ? wanted : 0) << r << ", " << c;
        ASSERT_EQ(column_codes[c * rows + r], column ? wanted : 0) << r << ", " << c;
      }
    EXPECT_EQ(std::bit_cast<float>(amax), records ? largest : std::bit_cast<float>(1u));
    EXPECT_EQ(inverse, 1 / kScale);
  }
};

void launch(fp8::Format format, QuantizeArguments& a, uint64_t order) {
  const int64_t blocks = plan_quantize(a);
  HostLauncher on{order};
  ASSERT_EQ(launch_quantize(on, format, a, blocks), 0);
}

TEST(Quantize, many_matrices_in_one_launch) {
  const std::vector<std::pair<int32_t, int32_t>> shapes = {{128, 128}, {16, 16},   {300, 144},
                                                           {1, 130},   {256, 384}, {9, 7}};
  for (const auto format : {fp8::Format::kE4M3, fp8::Format::kE5M2})
    for (const auto& [row, column] :
         std::vector<std::pair<bool, bool>>{{true, true}, {true, false}, {false, true}})
      for (const uint64_t order : {0, 6}) {
        std::vector<Matrix> matrices;
        for (const auto& [r, c] : shapes) matrices.emplace_back(r, c, r == 256 ? 1 : 0);
        matrices[2].x[5] = 0x7FC0;  // NaN
        matrices[0].records = matrices[4].records = false;
        QuantizeArguments a{};
        for (Matrix& m : matrices) a.tensors[a.count++] = m.entry(row, column);
        launch(format, a, order);
        for (const Matrix& m : matrices) m.check(format, row, column);
      }
}

TEST(Quantize, the_largest_magnitude_may_be_infinite) {
  Matrix m(32, 32);
  m.x[70] = 0xFF80;
  QuantizeArguments a{};
  a.tensors[a.count++] = m.entry(true, true);
  launch(fp8::Format::kE5M2, a, 0);
  EXPECT_EQ(std::bit_cast<float>(m.amax), std::numeric_limits<float>::infinity());
  EXPECT_EQ(m.codes[70], 0xFB);  // saturated
}

TEST(Quantize, sums_of_columns_are_near_fp64_and_the_same_in_every_order) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int32_t, int32_t>>{{700, 272}, {16, 16}, {128, 1000}, {3, 5}})
    for (const bool adds : {false, true}) {
      Array<float> first;
      for (const uint64_t order : {0, 1, 7}) {
        Matrix m(rows, columns);
        const Scratch wanted = quantize_scratch(rows, columns);
        Array<float> sums(columns), parts(wanted.floats);
        Array<uint32_t> tickets(wanted.tickets);
        for (int64_t c = 0; c < columns; ++c) sums[c] = static_cast<float>(c);
        QuantizeArguments a{};
        a.tensors[a.count++] = m.entry(true, true);
        a.adds = adds;
        a.sums = sums.data();
        a.parts = parts.data();
        a.tickets = tickets.data();
        launch(fp8::Format::kE5M2, a, order);
        m.check(fp8::Format::kE5M2, true, true);
        EXPECT_EQ(tickets, Array<uint32_t>(wanted.tickets));  // ready for the next launch
        for (int64_t c = 0; c < columns; ++c) {
          double total = adds ? static_cast<double>(c) : 0;
          for (int64_t r = 0; r < rows; ++r) total += widened(m.x[r * columns + c]);
          ASSERT_NEAR(sums[c], total, 2e-2) << c;
        }
        if (order == 0) first = sums;
        EXPECT_EQ(sums, first) << "order " << order;
      }
    }
}

TEST(Quantize, refuses_sums_of_several_matrices) {
  HostLauncher on;
  QuantizeArguments a{};
  float sum = 0;
  a.count = 2;
  a.sums = &sum;
  EXPECT_EQ(launch_quantize(on, fp8::Format::kE4M3, a, 1), kUnsupported);
}

}  // namespace
}  // namespace octavo::kernels
