#include "engine/aten/fp8_quantize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "engine/own/own.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Format;
using fp8::Recipe;
using fp8::ScaleRule;

constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kInfinityBits = 0x7F800000;

// A tensor without dimensions on the CPU goes to any device's kernel as an argument. Dividing it is
// exact everywhere; dividing by it is not: kernels multiply by the reciprocal.
Tensor argument(double value) {
  return at::scalar_tensor(value, at::kFloat);
}

// x cut into blocks: [grid_rows, block_rows, grid_columns, block_columns]; what is missing at the
// edges is zero.
Tensor in_grid(const Tensor& x, const fp8::Grid& g) {
  const int64_t rows = g.grid_rows * g.block_rows, columns = g.grid_columns * g.block_columns;
  const bool whole = x.size(0) == rows && x.size(1) == columns;
  return (whole ? x : at::constant_pad_nd(x, {0, columns - x.size(1), 0, rows - x.size(0)}))
      .view({g.grid_rows, g.block_rows, g.grid_columns, g.block_columns});
}
Tensor out_of_grid(const Tensor& blocks, int64_t rows, int64_t columns) {
  return blocks.flatten(2).flatten(0, 1).narrow(0, 0, rows).narrow(1, 0, columns).contiguous();
}

// The largest magnitude of each block, FP32 [grid_rows, 1, grid_columns, 1]; a NaN shows.
Tensor amax_with_nan(const Tensor& blocks) {
  return at::linalg_vector_norm(blocks, kInfinity, {1, 3}, /*keepdim=*/true, at::kFloat);
}
// The same of the numbers: NaN counts as zero.
Tensor amax_of_numbers(const Tensor& blocks) {
  return amax_with_nan(blocks.nan_to_num(0, kInfinity, -kInfinity));
}

Tensor power_of_two_below(const Tensor& factor) {
  return factor.view(at::kInt).bitwise_and(~int64_t{0x7FFFFF}).view(at::kFloat);
}

// As Transformer Engine: MAX / amax, 1 when amax is 0 or infinite.
Tensor transformer_engine_factor(Format format, const Tensor& amax) {
  const Tensor usual = amax.gt(0).logical_and_(amax.lt(kInfinity));
  return at::div(argument(fp8::max_value(format)), amax)
      .clamp_max_(kLargestFloat)
      .masked_fill_(usual.logical_not_(), 1);
}

// The smallest power of two at or above amax / MAX, where MAX is 1.75 times one: from the bits of
// amax alone, so that nothing is divided. Exact for amax that BF16 has, whose quotient is never
// next to a power of two. 2^-127, the least, has the highest bit of a subnormal's mantissa.
Tensor e8m0_decode(Format format, const Tensor& amax) {
  const int64_t binade = format == Format::kE4M3 ? 8 : 15;
  const Tensor bits = amax.view(at::kInt);
  return bits.add(0x1FFFFF - (binade << 23))
      .bitwise_and_(~int64_t{0x7FFFFF})
      .clamp_min_(0x400000)
      .masked_fill_(bits.eq(kInfinityBits), 0x7F000000)
      .masked_fill_(bits.gt(kInfinityBits), 0x7FC00000)
      .view(at::kFloat);
}

struct Factors {
  Tensor encode, decode;  // [grid_rows, 1, grid_columns, 1]
};

Factors factors_of(const Tensor& blocks, Recipe recipe, const QuantizeSpec& order) {
  const Format format = order.side.format;
  switch (fp8::traits_of(recipe).scale_rule) {
    case ScaleRule::kHistory: {
      const Tensor factor = order.factor.view({1, 1, 1, 1});
      return {factor, factor.reciprocal()};
    }
    case ScaleRule::kTe: {
      const Tensor factor = transformer_engine_factor(format, amax_of_numbers(blocks));
      return {factor, factor.reciprocal()};
    }
    case ScaleRule::kTePowerOfTwo: {
      const Tensor factor =
          power_of_two_below(transformer_engine_factor(format, amax_of_numbers(blocks)));
      return {factor, factor.reciprocal()};
    }
    case ScaleRule::kTorchaoPowerOfTwo: {
      const Tensor amax = amax_with_nan(blocks);
      const Tensor factor =
          power_of_two_below(at::div(argument(fp8::max_value(format)), amax.clamp_min(1e-12f)));
      // Without its mantissa a NaN would be infinity.
      const Tensor shown = at::where(amax.isnan(), amax, factor);
      return {shown, shown.reciprocal()};
    }
    case ScaleRule::kE8m0Ceil: {
      const Tensor decode = e8m0_decode(format, amax_with_nan(blocks));
      return {decode.reciprocal(), decode};
    }
    case ScaleRule::kNvfp4:  // fp8::decide takes Transformer Engine for it
      break;
  }
  OCTAVO_ASSERT(false && "all rules are above");
  return {};
}

}  // namespace

at::ScalarType dtype_of(Format format) {
  return format == Format::kE4M3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
}

Tensor values_of(const Tensor& codes, Format format, at::ScalarType type) {
  if (format == Format::kE2M1) {
    Tensor values = at::empty({static_cast<int64_t>(fp8::kE2M1ByteValues.size())}, at::kFloat);
    std::ranges::copy(fp8::kE2M1ByteValues, values.mutable_data_ptr<float>());
    return values.to(codes.device(), type)
        .index_select(0, codes.flatten().to(at::kInt))
        .view(codes.sizes());
  }
  return codes.view(dtype_of(format)).to(type);
}

Tensor spread(const Tensor& per_block, const fp8::Grid& g, int64_t rows, int64_t columns) {
  return out_of_grid(per_block.reshape({g.grid_rows, 1, g.grid_columns, 1})
                         .expand({g.grid_rows, g.block_rows, g.grid_columns, g.block_columns}),
                     rows, columns);
}

Tensor to_e8m0(const Tensor& decode) {
  return decode.view(at::kInt).bitwise_right_shift(23).to(at::kByte);
}

Tensor from_e8m0(const Tensor& codes) {
  // 2^-127 has no exponent bits, and NaN needs a mantissa: both have the bit below the exponent.
  const Tensor wide = codes.to(at::kInt);
  const Tensor odd = wide.eq(0).logical_or_(wide.eq(fp8::kE8M0Nan)).to(at::kInt);
  return wide.bitwise_left_shift(23).add_(odd, 0x400000).view(at::kFloat);
}

PlainFp8 quantize_plain(const Tensor& x, Recipe recipe, Direction direction,
                        const QuantizeSpec& order) {
  const fp8::Grid grid = fp8::grid_of(order.side.granularity, direction, x.size(0), x.size(1));
  const Tensor blocks = in_grid(x, grid);
  const Factors factors = factors_of(blocks, recipe, order);
  if (fp8::uses_history(recipe) && order.amax.defined()) {
    Tensor slot = order.amax;
    at::maximum_out(slot, slot, amax_of_numbers(blocks).view({1}));
  }
  const double most = fp8::max_value(order.side.format);
  // The cast itself does other things with what is beyond the largest value.
  const Tensor codes =
      at::mul(blocks, factors.encode).clamp_(-most, most).to(dtype_of(order.side.format));
  return {out_of_grid(codes.view(at::kByte), x.size(0), x.size(1)),
          factors.decode.reshape({grid.grid_rows, grid.grid_columns})};
}

namespace {

// Of fp8/health.h's stats.
constexpr size_t kNan = 2, kInf = 3, kAmax = 6;

struct Measured {
  Tensor x;
  PlainFp8 quantized;
  fp8::Grid grid;
};

// An odd number of rows, so that it has no factor in common with the length of the sequences: each
// position of them comes up.
int64_t rows_apart(const Tensor& x) {
  const int64_t every = (x.numel() + kMostMeasured - 1) / kMostMeasured;
  return every <= 1 ? 1 : every | 1;
}
Measured part_of(const Tensor& x, const PlainFp8& quantized, const fp8::Grid& grid, int64_t every) {
  const int64_t first = std::min(every / 2, x.size(0) - 1);
  const auto rows = [&](const Tensor& t) { return t.slice(0, first, t.size(0), every); };
  const Tensor blocks =
      rows(at::arange(x.size(0), x.options().dtype(at::kLong))).div(grid.block_rows, "floor");
  fp8::Grid part = grid;  // each row by itself
  part.block_rows = 1;
  part.grid_rows = blocks.size(0);
  const Tensor decode = quantized.decode.reshape({grid.grid_rows, grid.grid_columns});
  return {rows(x), {rows(quantized.codes), decode.index_select(0, blocks)}, part};
}

// In the order of fp8/health.h, each a number of its own.
std::vector<Tensor> stats_of(const Measured& m, const fp8::Side& side) {
  const int64_t rows = m.x.size(0), columns = m.x.size(1);
  const Tensor value = m.x.to(at::kFloat), finite = value.isfinite();
  const Tensor decode = spread(m.quantized.decode, m.grid, rows, columns);
  const Tensor encode = decode.reciprocal().clamp_max_(kLargestFloat);
  // What rounds past the largest value, and to zero: the ties go to the even code.
  const bool e4m3 = side.format == Format::kE4M3, e2m1 = side.format == Format::kE2M1;
  const Tensor scaled = at::mul(value, encode).abs_();
  const Tensor counts = finite.logical_and(value.ne(0)).logical_and_(encode.ne(0));
  // A scale of NVFP4 may be zero: what is in such a block is lost below, not above.
  const Tensor past = e2m1   ? scaled.ge(7).logical_and_(decode.ne(0))
                      : e4m3 ? scaled.gt(464)
                             : scaled.ge(61440);
  const Tensor values = values_of(m.quantized.codes, side.format, at::kFloat).to(at::kDouble);
  // Stochastic rounding makes zeros of larger values too.
  const Tensor below = e2m1 ? at::mul(values, decode).eq(0) : scaled.le(e4m3 ? 0x1p-10 : 0x1p-17);
  const Tensor wide = value.to(at::kDouble).masked_fill_(finite.logical_not(), 0);
  const Tensor meant = values.mul_(decode).masked_fill_(finite.logical_not(), 0);
  // By rows first: the order of a sum of everything depends on the number of threads.
  const auto total = [](const Tensor& t) { return t.sum(1, false, at::kDouble).sum(0); };
  const Tensor magnitude = value.abs().nan_to_num_(0, kInfinity, -kInfinity).flatten();
  const Tensor where = magnitude.argmax();
  const auto elements = static_cast<double>(value.numel());
  return {at::full({}, elements, wide.options()),
          total(value.ne(0)),
          total(value.isnan()),
          total(value.isinf()),
          total(past.logical_and(counts)),
          total(below.logical_and(counts)),
          magnitude.max().to(at::kDouble),
          encode.flatten().index_select(0, where.view({1})).squeeze(0).to(at::kDouble),
          total(wide.square()),
          total(at::sub(wide, meant).square_())};
}

}  // namespace

Tensor measure_plain(const Tensor& x, const PlainFp8& quantized, const fp8::Side& side,
                     const fp8::Grid& grid) {
  if (const auto stats = own::fp8_stats(x, quantized.codes, quantized.decode, side.format, grid))
    return *stats;
  const int64_t every = rows_apart(x);
  if (every == 1) return at::stack(stats_of({x, quantized, grid}, side));
  std::vector<Tensor> stats = stats_of(part_of(x, quantized, grid, every), side);
  // Outliers are few: these three must not be missed.
  const Tensor largest =
      at::linalg_vector_norm(x, kInfinity, {0, 1}, /*keepdim=*/false, at::kFloat).to(at::kDouble);
  const Tensor is_nan = largest.isnan();
  stats[kNan] = at::maximum(stats[kNan], is_nan);
  stats[kInf] = at::maximum(stats[kInf], largest.isinf());
  stats[kAmax] = at::where(is_nan, stats[kAmax], largest);
  return at::stack(stats);
}

const Tensor& FactorUpdate::largest_values(const std::vector<Format>& formats, int64_t margin,
                                           const Tensor& like) {
  if (largest_.defined() && largest_.device() == like.device() && margin == margin_ &&
      formats == formats_)
    return largest_;
  Tensor values = at::empty({static_cast<int64_t>(formats.size())}, at::kFloat);
  for (size_t i = 0; i < formats.size(); ++i)
    values.mutable_data_ptr<float>()[i] =
        std::ldexp(fp8::max_value(formats[i]), -static_cast<int>(margin));
  largest_ = values.to(like.device());
  formats_ = formats;
  margin_ = margin;
  return largest_;
}

void FactorUpdate::run(Tensor& history, Tensor& factors, const std::vector<Format>& formats,
                       fp8::AmaxAlgo algo, int64_t margin, bool recompute) {
  const int64_t length = history.size(0);
  const Tensor newest = history[0].clone(), ran = newest.ne(0);
  if (recompute) {
    const Tensor amax = algo == fp8::AmaxAlgo::kMax ? history.amax(0) : newest;
    const Tensor made =
        at::div(largest_values(formats, margin, history), amax).clamp_max_(kLargestFloat);
    // Finite and not zero; a NaN is neither.
    const Tensor usable = ran.logical_and(amax.gt(0)).logical_and_(amax.lt(kInfinity));
    at::where_out(factors, usable, made, factors);
  }
  std::vector<Tensor> rows = {at::zeros_like(history.narrow(0, 0, 1))};
  if (length > 2) rows.push_back(history.narrow(0, 2, length - 2));
  if (length > 1) rows.push_back(newest.unsqueeze(0));
  at::where_out(history, ran, at::cat(rows), history);
}

}  // namespace octavo::engine::aten
