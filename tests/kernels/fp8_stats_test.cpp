// Statistics of a quantized matrix, against the incidents of fp8/quantize.h and sums in FP64.

#include "kernels/fp8_stats.h"

#include <gtest/gtest.h>

#include <limits>

#include "fp8/health.h"
#include "fp8/quantize.h"
#include "kernels/arrays.h"
#include "kernels/host_launch.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

struct StatsCase {
  fp8::Format format;
  int64_t rows;
  int32_t columns, block_rows, block_columns;
  int shift;
};

struct StatsProblem {
  StatsCase of;
  int32_t grid_columns;
  Array<Bf16> x;
  Array<uint8_t> codes;
  Array<float> decode;

  explicit StatsProblem(const StatsCase& c)
      : of(c),
        grid_columns((c.columns + c.block_columns - 1) / c.block_columns),
        x(c.rows * c.columns, c.shift),
        codes(c.rows * c.columns, c.shift),
        decode((c.rows + c.block_rows - 1) / c.block_rows * grid_columns) {
    Numbers numbers(static_cast<uint64_t>(c.columns));
    for (int64_t i = 0; i < decode.size(); ++i) decode[i] = std::exp2(numbers.normal(4));
    decode[0] = 1;  // so that the first element is the tie at the largest value
    for (int64_t i = 0; i < x.size(); ++i) {
      // From far below the smallest code to beyond the largest, with zeros and what is no number.
      x[i] = nearest_bf16(numbers.normal() * std::exp2(numbers.normal(9)));
      const uint32_t kind = numbers.bits() % 50;
      if (kind == 0) x[i] = 0;
      if (kind == 1) x[i] = 0x8000;
      if (kind == 2 && i % 7 == 0) x[i] = 0x7FC0;
      if (kind == 3 && i % 11 == 0 && c.columns % 2 == 0) x[i] = 0xFF80;
      if (i == 0) x[i] = nearest_bf16(c.format == fp8::Format::kE4M3 ? 464.0f : 61440.0f);
      codes[i] = fp8::encode(c.format, widened(x[i]) * scale(i).encode);
    }
  }
  fp8::Scale scale(int64_t i) const {
    const int64_t row = i / of.columns, column = i % of.columns;
    return fp8::scale_from_decode(
        decode[row / of.block_rows * grid_columns + column / of.block_columns]);
  }

  std::vector<double> run(uint64_t order) const {
    std::vector<double> stats(kStats, -1);
    Array<Fp8Stats> parts(fp8_stats_parts(of.rows));
    HostLauncher on{order};
    EXPECT_EQ(launch_fp8_stats(on, of.format,
                               {.x = x.data(),
                                .codes = codes.data(),
                                .decode = decode.data(),
                                .parts = parts.data(),
                                .rows = of.rows,
                                .columns = of.columns,
                                .block_rows = of.block_rows,
                                .block_columns = of.block_columns,
                                .grid_columns = grid_columns},
                               stats.data()),
              0);
    return stats;
  }

  fp8::TensorHealth wanted() const {
    fp8::TensorHealth h;
    bool any = false;
    for (int64_t i = 0; i < x.size(); ++i) {
      const float value = widened(x[i]);
      ++h.elements;
      h.nonzero += value != 0;
      h.incidents.add(fp8::incident_of(of.format, value, scale(i)));
      if (std::isnan(value)) continue;
      if (!any || std::abs(value) > h.amax) {
        h.amax = std::abs(value);
        h.factor = scale(i).encode;
        any = true;
      }
      if (std::isinf(value)) continue;
      const double difference = double{value} - fp8::decode(of.format, codes[i]) * scale(i).decode;
      h.signal += double{value} * value;
      h.noise += difference * difference;
    }
    return h;
  }
};

TEST(Fp8Stats, counts_as_the_reference_in_every_order) {
  for (const fp8::Format format : {fp8::Format::kE4M3, fp8::Format::kE5M2})
    for (const StatsCase& c : std::vector<StatsCase>{{format, 5, 300, 5, 300, 0},
                                                     {format, 7, 260, 1, 128, 0},
                                                     {format, 130, 16, 128, 16, 0},
                                                     {format, 40, 37, 32, 1, 0},
                                                     {format, 3, 2500, 1, 32, 0},
                                                     {format, 530, 5, 530, 5, 0},
                                                     {format, 3, 64, 3, 64, 1}}) {
      const StatsProblem problem(c);
      const auto wanted = fp8::to_stats(problem.wanted());
      const std::vector<double> first = problem.run(0);
      for (size_t i = 0; i < 8; ++i) EXPECT_EQ(first[i], wanted[i]) << i << ": " << c.columns;
      for (size_t i = 8; i < 10; ++i) EXPECT_NEAR(first[i] / wanted[i], 1, 1e-12) << i;
      if (c.rows > 20) continue;  // its time is in its blocks
      for (const uint64_t order : kOrders) EXPECT_EQ(problem.run(order), first) << order;
    }
}

TEST(Fp8Stats, of_two_equal_magnitudes_the_first_has_the_factor) {
  StatsProblem problem({fp8::Format::kE4M3, 4, 4096, 1, 8, 0});
  for (int64_t i = 0; i < problem.x.size(); ++i) problem.x[i] = 0x3F80;  // 1
  for (const uint64_t order : kOrders)
    EXPECT_EQ(problem.run(order)[7], problem.scale(0).encode) << order;
}

TEST(Fp8Stats, refuses_more_elements_than_its_counters_hold) {
  HostLauncher on;
  Fp8StatsArguments large{};
  large.rows = int64_t{1} << 31;
  large.columns = 2;
  EXPECT_EQ(launch_fp8_stats(on, fp8::Format::kE4M3, large, nullptr), kUnsupported);
}

}  // namespace
}  // namespace octavo::kernels
