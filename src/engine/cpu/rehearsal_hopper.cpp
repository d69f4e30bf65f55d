// FP8 GEMMs rehearsed with Hopper's accumulators (key fp8_accumulate): quantized as the rehearsal
// does, multiplied code by code in plain loops (fp8/accumulator.h). Slow: for short runs, and to
// see what the narrow sums do. Forward without promotion to FP32, backward with it, as Transformer
// Engine and torchao ask cuBLAS; always with it where scales are of 128 terms.

#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"
#include "engine/parallel.h"
#include "fp8/accumulator.h"

namespace octavo::engine::cpu {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Granularity;
using fp8::Promotion;

// A copy with its sum along the rows, and what its scales multiply.
struct Operand {
  Tensor codes;    // [rows, terms]
  Tensor factors;  // FP32: [rows, blocks of 128 terms], of recipes that have such
  Tensor of_rows;  // FP32 [rows, 1]: of recipes with a scale for each
  float of_all = 1;
  fp8::Format format = fp8::Format::kE4M3;

  fp8::HopperOperand view() const {
    const auto values = [](const Tensor& t) {
      return t.defined() ? std::span(t.const_data_ptr<float>(), static_cast<size_t>(t.numel()))
                         : std::span<const float>();
    };
    return {format, std::span(codes.const_data_ptr<uint8_t>(), static_cast<size_t>(codes.numel())),
            codes.size(0), codes.size(1), values(factors)};
  }
};

// The factors of blocks of 128 terms, by operand rows; `grid` may have one for 128 rows.
Tensor block_factors(const fp8::Grid& grid, Direction direction, const Tensor& scales, int64_t rows,
                     int64_t terms) {
  const int64_t blocks = (terms + fp8::kHopperPromotion - 1) / fp8::kHopperPromotion;
  Tensor factors = at::empty({rows, blocks}, at::kFloat);
  const float* from = scales.const_data_ptr<float>();
  auto* to = factors.mutable_data_ptr<float>();
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t term = block * fp8::kHopperPromotion;
      *to++ =
          from[direction == Direction::kRow ? grid.block_of(row, term) : grid.block_of(term, row)];
    }
  return factors;
}

Operand operand_of(const Fp8Matrix& m, Direction direction) {
  const Fp8Copy& copy = m.copy(direction);
  const fp8::Side& side = m.side(direction);
  OCTAVO_ASSERT(copy.codes.defined());
  Operand made;
  made.format = side.format;
  made.codes = direction == Direction::kRow ? copy.codes : copy.codes.t().contiguous();
  const int64_t rows = made.codes.size(0), terms = made.codes.size(1);
  switch (side.granularity) {
    case Granularity::kTensor:
      made.of_all = *data<float>(copy.scales);
      return made;
    case Granularity::kVector:
      made.of_rows = copy.scales.view({rows, 1});
      return made;
    case Granularity::kBlock128:
    case Granularity::kSquare128:
      made.factors = block_factors(m.grid(direction), direction, copy.scales, rows, terms);
      return made;
    case Granularity::kBlock32:
    case Granularity::kBlock16:
    case Granularity::kSquare16:
      break;
  }
  fail(ExitCode::kUsage, "engine",
       "fp8_accumulate hopper: wanted a recipe of Hopper, found blocks of 32 or 16 (mxfp8, nvfp4); "
       "take fp8_accumulate fp32, or another fp8_recipe");
}

// FP32 [a's rows, b's rows], scaled.
Tensor multiply(const Fp8Matrix& a, Direction a_direction, const Fp8Matrix& b,
                Direction b_direction, Promotion promotion) {
  const Operand left = operand_of(a, a_direction), right = operand_of(b, b_direction);
  if (left.factors.defined() || right.factors.defined()) promotion = Promotion::kEvery128;
  const fp8::HopperOperand x = left.view(), y = right.view();
  Tensor sums = at::empty({x.rows, y.rows}, at::kFloat);
  auto* to = sums.mutable_data_ptr<float>();
  // A piece takes all of y apart anew, which a few rows of x are worth.
  constexpr int64_t kLeastRows = 8;
  parallel_for(0, x.rows, kLeastRows, [&](int64_t first, int64_t end) {
    hopper_gemm(x, y, promotion, first, end,
                std::span(to + first * y.rows, static_cast<size_t>((end - first) * y.rows)));
  });
  if (left.of_rows.defined()) sums.mul_(left.of_rows);
  if (right.of_rows.defined()) sums.mul_(right.of_rows.t());
  return sums.mul_(left.of_all * right.of_all);
}

class HopperRehearsal final : public Fp8Linear {
 public:
  Fp8Matrix quantize(const Tensor& x, fp8::Recipe recipe, const QuantizeSpec& row,
                     const QuantizeSpec& column) override {
    Fp8Matrix result = matrix_for(x, row, column);
    if (row.wanted) result.row = quantizer_->quantize_part(x, recipe, Direction::kRow, row);
    if (one_serves_both(row, column))
      result.column = result.row;
    else if (column.wanted)
      result.column = quantizer_->quantize_part(x, recipe, Direction::kColumn, column);
    return result;
  }
  Fp8Copy quantize_part(const Tensor& x, fp8::Recipe recipe, Direction direction,
                        const QuantizeSpec& order) override {
    return quantizer_->quantize_part(x, recipe, direction, order);
  }

  void forward(const Fp8Matrix& x, const Fp8Matrix& w, const Tensor& bias, Tensor& y) override {
    Tensor sums = multiply(x, Direction::kRow, w, Direction::kRow, Promotion::kNever);
    if (bias.defined()) sums += bias;
    y.copy_(sums);
  }
  void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, Tensor& dx) override {
    dx.copy_(multiply(dy, Direction::kRow, w, Direction::kColumn, Promotion::kEvery128));
  }
  void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, Tensor& dw,
                       Accumulate mode) override {
    const Tensor sums =
        multiply(dy, Direction::kColumn, x, Direction::kColumn, Promotion::kEvery128);
    dw.copy_(mode == Accumulate::kAdd ? sums + dw : sums);
  }

  void update_factors(Tensor& history, Tensor& factors, const std::vector<fp8::Format>& formats,
                      fp8::AmaxAlgo algo, int64_t margin, bool recompute) override {
    update_factors_in_memory(history, factors, formats, algo, margin, recompute);
  }
  Tensor health_stats(const Tensor& x, const Fp8Matrix& quantized, Direction direction) override {
    return quantizer_->health_stats(x, quantized, direction);
  }
  int64_t infinite_operands() const override { return quantizer_->infinite_operands(); }

 private:
  const std::unique_ptr<Fp8Linear> quantizer_ = make_rehearsal(GemmOperands::kFp32);
};

}  // namespace

std::unique_ptr<Fp8Linear> make_hopper_rehearsal() {
  return std::make_unique<HopperRehearsal>();
}

}  // namespace octavo::engine::cpu
