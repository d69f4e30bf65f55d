// FP8 GEMMs rehearsed in BF16. Every E4M3 and E5M2 value, and every such value times a power of
// two, is exactly a BF16 value, and products of two of them are exact in FP32: so a BF16 GEMM
// with FP32 sums gives what an FP8 GEMM with FP32 sums gives, up to the order of the sums.
// Scales that are powers of two are multiplied into the BF16 values; one scale per tensor that is
// not goes to the FP32 sums. What is kept for the backward pass is one-byte codes. nvfp4 likewise:
// an E2M1 value times an E4M3 scale is a BF16 value, and the scales of both matrices go to the
// sums.

#include <ATen/ATen.h>

#include <atomic>
#include <bit>

#include "base/error.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/fp4_copy.h"
#include "engine/cpu/fp8_kernels.h"
#include "engine/cpu/fp8_rows.h"
#include "engine/cpu/linear_gemms.h"
#include "engine/cpu/rows.h"

namespace octavo::engine::cpu {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Granularity;
using fp8::Recipe;

Bf16Matrix matrix_of(const Tensor& x) {
  OCTAVO_ASSERT(x.dim() == 2 && x.scalar_type() == at::kBFloat16 && x.is_contiguous());
  return {data<uint16_t>(x), x.size(0), x.size(1)};
}

bool is_per_tensor(const fp8::Side& side) {
  return side.granularity == Granularity::kTensor;
}

// The factor left to multiply the sums with: per-tensor copies carry it, others have it in their
// values.
float one_scale(const Fp8Matrix& m, Direction direction) {
  return is_per_tensor(m.side(direction)) ? *data<float>(m.copy(direction).scales) : 1.0f;
}
float sum_scale(const Fp8Matrix& a, Direction of_a, const Fp8Matrix& b, Direction of_b) {
  OCTAVO_ASSERT(is_fp4(a.side(of_a)) == is_fp4(b.side(of_b)));
  return is_fp4(a.side(of_a)) ? fp8::nvfp4_alpha(fp4_amax(a.copy(of_a)), fp4_amax(b.copy(of_b)))
                              : one_scale(a, of_a) * one_scale(b, of_b);
}

// Groups of rows are quantized on several threads at once (groups.h), and each wants to know of its
// own.
thread_local int64_t infinite_operands_here = 0;

class Rehearsal final : public Fp8Linear {
 public:
  explicit Rehearsal(GemmOperands operands) : gemms_(operands) {}

  Fp8Matrix quantize(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                     const QuantizeSpec& column) override {
    Fp8Matrix result = matrix_for(x, row, column);
    const bool shared = one_serves_both(row, column);
    if (can_be_made_together(result, row, column)) {
      both_copies(x, recipe, row, column, result);
      return result;
    }
    if (row.wanted) {
      // Values for the GEMM that comes now, codes for the one that comes later.
      result.row = one_copy(x, recipe, Direction::kRow, row, shared && column.keep);
      if (shared) result.column = result.row;
    }
    if (shared && column.keep) {
      result.column.values.reset();
      result.row.codes.reset();
    }
    if (column.wanted && !shared)
      result.column = one_copy(x, recipe, Direction::kColumn, column, column.keep);
    return result;
  }

  Fp8Copy quantize_part(const Tensor& x, Recipe recipe, Direction direction,
                        const QuantizeSpec& order) override {
    QuantizeSpec kept = order;
    kept.keep = true;
    Fp8Copy copy = one_copy(x, recipe, direction, kept, true);
    copy.values.reset();
    return copy;
  }

  void forward(const Fp8Matrix& x, const Fp8Matrix& w, const Tensor& bias, Tensor& y) override {
    gemms_.forward(values(x, Direction::kRow), values(w, Direction::kRow), bias, y,
                   sum_scale(x, Direction::kRow, w, Direction::kRow));
  }
  void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, Tensor& dx) override {
    gemms_.input_gradient(values(dy, Direction::kRow), values(w, Direction::kColumn), dx,
                          sum_scale(dy, Direction::kRow, w, Direction::kColumn));
  }
  void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, Tensor& dw,
                       Accumulate mode) override {
    const Tensor dy_values = values(dy, Direction::kColumn);
    const float scale = sum_scale(dy, Direction::kColumn, x, Direction::kColumn);
    if (!weight_gradient_from_codes(dy_values, x, dw, mode, scale))
      gemms_.weight_gradient(dy_values, values(x, Direction::kColumn), dw, mode, scale);
  }

  void update_factors(Tensor& history, Tensor& factors, const std::vector<fp8::Format>& formats,
                      fp8::AmaxAlgo algo, int64_t margin, bool recompute) override {
    update_factors_in_memory(history, factors, formats, algo, margin, recompute);
  }

  Tensor health_stats(const Tensor& x, const Fp8Matrix& quantized, Direction direction) override {
    const Fp8Copy& copy = quantized.copy(direction);
    const fp8::Side& side = quantized.side(direction);
    const float rest = is_fp4(side) ? fp4_rest(fp4_amax(copy)) : 1;
    const Tensor numbers = values(quantized, direction),
                 factors = is_fp4(side) ? fp4_block_scales(copy) * rest : decode_factors(copy),
                 before = copy.rotated ? fp4_rotated(x) : x;
    return stats_in_memory(cpu::measure(matrix_of(before), data<uint16_t>(numbers),
                                        {.format = side.format,
                                         .grid = quantized.grid(direction),
                                         .decode = data<float>(factors),
                                         .values_are_decoded = !is_per_tensor(side),
                                         .rest = rest}));
  }

  // The scale of a matrix is of its largest magnitude, and a rank has some of its rows.
  std::string_view no_parts_reason(Recipe recipe) const override {
    return fp8::is_fp4(recipe) ? "nvfp4 has a scale of all rows" : "";
  }

  int64_t infinite_operands() const override { return infinite_operands_here; }
  int64_t blocks_below_range() const override { return blocks_below_range_; }

 private:
  // `as_codes` adds codes; values are left out only when the copy is for later use alone.
  Fp8Copy one_copy(const Tensor& x, Recipe recipe, Direction direction, const QuantizeSpec& order,
                   bool as_codes) {
    if (fp8::is_fp4(recipe)) return fp4_copy(x, direction, order, as_codes);
    Fp8Copy copy = memory_for(x, direction, order, as_codes);
    const Fp8Target target = target_of(copy, order);
    if (is_per_tensor(order.side))
      per_tensor(matrix_of(x), recipe, order, target, copy.scales);
    else
      count(quantize_blocks(matrix_of(x), recipe, direction, target,
                            mutable_data<float>(copy.scales)));
    if (fp8::has_e8m0_scales(recipe) && as_codes) copy.scales = to_e8m0(copy.scales);
    return copy;
  }

  static Fp8Copy memory_for(const Tensor& x, Direction direction, const QuantizeSpec& order,
                            bool as_codes) {
    const bool as_values = direction == Direction::kRow || !order.keep;
    Fp8Copy copy;
    if (as_codes) copy.codes = at::empty(x.sizes(), x.options().dtype(at::kByte));
    if (as_values) copy.values = at::empty(x.sizes(), x.options());
    const auto grid = fp8::grid_of(order.side.granularity, direction, x.size(0), x.size(1));
    copy.scales = at::empty({grid.count()}, x.options().dtype(at::kFloat));
    return copy;
  }
  static Fp8Target target_of(Fp8Copy& copy, const QuantizeSpec& order) {
    return {order.side, mutable_data<uint8_t>(copy.codes), mutable_data<uint16_t>(copy.values)};
  }

  // Blocks along rows, and others that are several rows high.
  static bool can_be_made_together(const Fp8Matrix& m, const QuantizeSpec& row,
                                   const QuantizeSpec& column) {
    return row.wanted && column.wanted && !is_per_tensor(row.side) && !is_per_tensor(column.side) &&
           !is_fp4(row.side) && m.grid(Direction::kRow).block_rows == 1 &&
           m.grid(Direction::kColumn).block_rows > 1;
  }
  void both_copies(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                   const QuantizeSpec& column, Fp8Matrix& result) {
    result.row = memory_for(x, Direction::kRow, row, false);
    result.column = memory_for(x, Direction::kColumn, column, column.keep);
    const auto [of_rows, of_columns] = quantize_both(
        matrix_of(x), recipe, target_of(result.row, row), mutable_data<float>(result.row.scales),
        target_of(result.column, column), mutable_data<float>(result.column.scales));
    count(of_rows);
    count(of_columns);
    if (fp8::has_e8m0_scales(recipe) && column.keep)
      result.column.scales = to_e8m0(result.column.scales);
  }

  void count(const BlockCounts& blocks) {
    blocks_below_range_ += blocks.below_range;
    if (blocks.infinite > 0) ++infinite_operands_here;
  }

  // A NaN is none in E2M1: it is counted as an infinity is, for nothing after it shows it.
  static Fp8Copy fp4_copy(const Tensor& x, Direction direction, const QuantizeSpec& order,
                          bool as_codes) {
    Fp4Copy made =
        make_fp4_copy(x, direction, order, as_codes, direction == Direction::kRow || !order.keep);
    if (made.has_other_than_numbers) ++infinite_operands_here;
    return std::move(made.copy);
  }

  void per_tensor(const Bf16Matrix& x, Recipe recipe, const QuantizeSpec& order,
                  const Fp8Target& target, Tensor& scales) {
    fp8::Scale scale;
    uint16_t largest = 0;
    if (fp8::uses_history(recipe)) {
      scale = fp8::scale_from_factor(*data<float>(order.factor));
      largest = quantize_by_factor(x, scale.encode, target);
      if (order.amax.defined()) {
        Tensor slot = order.amax;
        float* recorded = mutable_data<float>(slot);
        *recorded = std::max(*recorded, amax_of_numbers(x, largest));
      }
    } else {
      largest = largest_bits(x);
      const float amax = amax_of_numbers(x, largest);
      scale = fp8::scale_from_amax(recipe, order.side.format, amax, largest > kInfinityBits);
      quantize_by_factor(x, scale.encode, target);
    }
    if (largest == kInfinityBits) ++infinite_operands_here;
    *mutable_data<float>(scales) = scale.decode;
  }

  // Exact: the scales are powers of two or NaN. A quarter of the bytes.
  static Tensor to_e8m0(const Tensor& scales) {
    Tensor bytes = at::empty(scales.sizes(), scales.options().dtype(at::kByte));
    const float* from = data<float>(scales);
    auto* to = mutable_data<uint8_t>(bytes);
    // The exponent bits are the code, of 2^-127 and NaN too.
    for (int64_t i = 0; i < scales.numel(); ++i)
      to[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(from[i]) >> 23);
    return bytes;
  }
  static Tensor decode_factors(const Fp8Copy& copy) {
    if (copy.scales.scalar_type() == at::kFloat) return copy.scales;
    Tensor factors = at::empty(copy.scales.sizes(), copy.scales.options().dtype(at::kFloat));
    const auto* from = data<uint8_t>(copy.scales);
    auto* to = mutable_data<float>(factors);
    for (int64_t i = 0; i < factors.numel(); ++i) to[i] = fp8::decode_e8m0(from[i]);
    return factors;
  }

  // Codes go straight into the order in which the GEMM reads values, where it has one.
  bool weight_gradient_from_codes(const Tensor& dy, const Fp8Matrix& x, Tensor& dw, Accumulate mode,
                                  float scale) {
    const Fp8Copy& copy = x.column;
    if (copy.values.defined()) return false;
    if (is_fp4(x.column_side)) {
      const auto write_fp4 = [&](const PairedLayout& layout, uint16_t* to) {
        write_fp4_pairs(x, layout, to);
      };
      return is_packed(copy) && gemms_.weight_gradient(dy, x.columns, write_fp4, dw, mode, scale);
    }
    const fp8::Grid grid = x.grid(Direction::kColumn);
    const Tensor factors = decode_factors(copy);
    const float* decode = is_per_tensor(x.column_side) ? nullptr : data<float>(factors);
    if (!can_decode_pairs(grid, decode)) return false;
    const auto write = [&](const PairedLayout& layout, uint16_t* to) {
      decode_pairs({data<uint8_t>(copy.codes), x.rows, x.columns, x.column_side.format}, grid,
                   decode, layout, to);
    };
    return gemms_.weight_gradient(dy, x.columns, write, dw, mode, scale);
  }

  // What a GEMM reads: as it was left, or made from the codes.
  static Tensor values(const Fp8Matrix& m, Direction direction) {
    const Fp8Copy& copy = m.copy(direction);
    const fp8::Side& side = m.side(direction);
    OCTAVO_ASSERT(copy.defined());
    if (copy.values.defined()) return copy.values;
    if (is_fp4(side)) return fp4_values(m, direction);
    Tensor made = at::empty({m.rows, m.columns}, copy.codes.options().dtype(at::kBFloat16));
    const Tensor factors = decode_factors(copy);
    decode_codes({data<uint8_t>(copy.codes), m.rows, m.columns, side.format}, m.grid(direction),
                 is_per_tensor(side) ? nullptr : data<float>(factors),
                 mutable_data<uint16_t>(made));
    return made;
  }

  LinearGemms gemms_;
  std::atomic<int64_t> blocks_below_range_ = 0;
};

}  // namespace

std::unique_ptr<Fp8Linear> make_rehearsal(GemmOperands operands) {
  return std::make_unique<Rehearsal>(operands);
}

}  // namespace octavo::engine::cpu
