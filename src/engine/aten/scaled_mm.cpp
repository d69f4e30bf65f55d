// FP8 GEMMs by cuBLASLt through `_scaled_mm_v2` and `_scaled_addmm_`: quantized here by kernels
// of libtorch, laid out as fp8_layout.h says.

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/aten/aten.h"
#include "engine/aten/fp8_layout.h"
#include "engine/aten/fp8_quantize.h"
#include "engine/torch_version.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Granularity;
using fp8::Recipe;

using Operand = libtorch::ScaledOperand;
enum class Factor { kLeft, kRight };

int64_t scaling_of(Granularity granularity) {
  switch (granularity) {
    case Granularity::kTensor:
      return libtorch::kTensorWise;
    case Granularity::kVector:
      return libtorch::kRowWise;
    case Granularity::kBlock128:
      return libtorch::k1x128;
    case Granularity::kSquare128:
      return libtorch::k128x128;
    case Granularity::kBlock32:
      break;
    case Granularity::kBlock16:
    case Granularity::kSquare16:
      OCTAVO_ASSERT(false && "fp8::decide takes no GPU for nvfp4");
  }
  return libtorch::k1x32;
}

Operand operand(const Fp8Matrix& m, Direction direction, Factor factor, const GemmRules& rules) {
  const Fp8Copy& copy = m.copy(direction);
  const fp8::Side& side = m.side(direction);
  OCTAVO_ASSERT(copy.defined());
  Operand result;
  const Tensor codes = copy.codes.view(dtype_of(side.format));
  // K is along the columns of a row copy and of one that was transposed.
  const bool k_in_rows =
      direction == Direction::kColumn && !is_transposed(side.granularity, direction, rules);
  result.codes = k_in_rows == (factor == Factor::kLeft) ? codes.t() : codes;
  result.scaling = scaling_of(side.granularity);
  switch (side.granularity) {
    case Granularity::kTensor:
      result.scales = copy.scales;
      break;
    case Granularity::kVector:
      result.scales = copy.scales.unsqueeze(factor == Factor::kLeft ? 1 : 0);
      break;
    case Granularity::kBlock128:
    case Granularity::kSquare128:
      result.scales = copy.scales.t();
      break;
    case Granularity::kBlock32:
      result.scales = copy.scales.view(at::kFloat8_e8m0fnu);
      result.swizzle = libtorch::kSwizzle32x4x4;
      break;
    case Granularity::kBlock16:
    case Granularity::kSquare16:
      OCTAVO_ASSERT(false && "fp8::decide takes no GPU for nvfp4");
  }
  return result;
}

class ScaledMm final : public Fp8Linear {
 public:
  explicit ScaledMm(int capability) : rules_(rules_of(capability)), capability_(capability) {}

  Fp8Matrix quantize(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                     const QuantizeSpec& column) override {
    require(recipe);
    Fp8Matrix result = matrix_for(x, row, column);
    const bool shared = one_serves_both(row, column);
    PlainFp8 made;
    if (row.wanted) {
      made = quantize_plain(x, recipe, Direction::kRow, row);
      result.row = lay_out(made, row.side.granularity, Direction::kRow, rules_);
    }
    if (!column.wanted) return result;
    if (!shared) made = quantize_plain(x, recipe, Direction::kColumn, column);
    result.column = lay_out(made, column.side.granularity, Direction::kColumn, rules_);
    if (shared && column.side.granularity == Granularity::kTensor)
      result.column.scales = result.row.scales;
    return result;
  }

  void adopt_part(const Fp8Copy& whole, Direction direction, bool both,
                  Fp8Matrix& matrix) override {
    const fp8::Grid grid = matrix.grid(direction);
    const Tensor decode =
        whole.scales.scalar_type() == at::kByte ? from_e8m0(whole.scales) : whole.scales;
    const PlainFp8 plain{whole.codes, decode.reshape({grid.grid_rows, grid.grid_columns})};
    const auto lie = [&](Direction d) {
      return lay_out(plain, matrix.side(d).granularity, d, rules_);
    };
    if (both || direction == Direction::kRow) matrix.row = lie(Direction::kRow);
    if (both || direction == Direction::kColumn) matrix.column = lie(Direction::kColumn);
  }

  void forward(const Fp8Matrix& x, const Fp8Matrix& w, const Tensor& bias, Tensor& y) override {
    multiply(operand(x, Direction::kRow, Factor::kLeft, rules_),
             operand(w, Direction::kRow, Factor::kRight, rules_), bias, y, /*fast=*/true);
  }
  void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, Tensor& dx) override {
    multiply(operand(dy, Direction::kRow, Factor::kLeft, rules_),
             operand(w, Direction::kColumn, Factor::kRight, rules_), Tensor(), dx, /*fast=*/false);
  }
  void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, Tensor& dw,
                       Accumulate mode) override {
    const Operand a = operand(dy, Direction::kColumn, Factor::kLeft, rules_),
                  b = operand(x, Direction::kColumn, Factor::kRight, rules_);
    const bool add = mode == Accumulate::kAdd;
    if (!libtorch::kHasScaledAddmm || (a.scaling == libtorch::kRowWise && !rules_.adds_by_row)) {
      if (!add) return multiply(a, b, Tensor(), dw, /*fast=*/false);
      Tensor result = at::empty(dw.sizes(), dw.options().dtype(at::kFloat));
      multiply(a, b, Tensor(), result, /*fast=*/false);
      dw.add_(result);
      return;
    }
    libtorch::scaled_addmm(a, b, add, dw);
  }

  void update_factors(Tensor& history, Tensor& factors, const std::vector<fp8::Format>& formats,
                      fp8::AmaxAlgo algo, int64_t margin, bool recompute) override {
    update_.run(history, factors, formats, algo, margin, recompute);
  }

  Tensor health_stats(const Tensor& x, const Fp8Matrix& quantized, Direction direction) override {
    const fp8::Side& side = quantized.side(direction);
    const Fp8Copy& copy = quantized.copy(direction);
    PlainFp8 plain;
    if (side.granularity == Granularity::kTensor) {
      const bool turned = is_transposed(side.granularity, direction, rules_);
      plain = {(turned ? copy.codes.t() : copy.codes).contiguous(), copy.scales.view({1, 1})};
    } else {
      // The same once more, in the order in which it was before it was laid out.
      plain = quantize_plain(x, fp8::recipe_with(side.granularity), direction, {.side = side});
    }
    return measure_plain(x, plain, side, quantized.grid(direction));
  }

 private:
  void require(Recipe recipe) const {
    const Granularity blocks = fp8::traits_of(recipe).activations;
    const bool of_32 = blocks == Granularity::kBlock32, of_128 = blocks == Granularity::kBlock128;
    if ((of_32 && !rules_.has_blocks_of_32) || (of_128 && !rules_.has_blocks_of_128))
      fail(ExitCode::kEnvironment, "engine", "fp8_recipe ", config::name_of(recipe),
           " by cuBLASLt: wanted compute capability ", of_32 ? "10.x" : "9.0", ", found ",
           capability_ / 10, ".", capability_ % 10,
           "; take another recipe, or fp8_execution rehearse");
  }

  // Fewer bits in the sums of a GEMM make it faster: forward only, where cuBLASLt has it.
  static void multiply(const Operand& a, const Operand& b, const Tensor& bias, Tensor& out,
                       bool fast) {
    const bool can_be_fast = a.scaling == libtorch::kTensorWise || a.scaling == libtorch::kRowWise;
    const auto biased = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
    const auto run = [&](Tensor& into) {
      libtorch::scaled_mm(a, b, biased, fast && can_be_fast, into);
    };
    if (a.codes.size(0) == out.size(0)) return run(out);
    // Rows were added to make a multiple of 4.
    Tensor wider = at::empty({a.codes.size(0), out.size(1)}, out.options());
    run(wider);
    out.copy_(wider.narrow(0, 0, out.size(0)));
  }

  GemmRules rules_;
  int capability_;
  FactorUpdate update_;
};

}  // namespace

std::unique_ptr<Fp8Linear> make_scaled_mm(int capability) {
  if (!libtorch::kHasScaledAddmm)
    log_info("FP8 GEMMs: torch " TORCH_VERSION
             " cannot add to a weight gradient in the GEMM itself, 2.15 can: every micro-batch "
             "after the first costs a launch and a temporary more for each layer");
  return std::make_unique<ScaledMm>(capability);
}

}  // namespace octavo::engine::aten
