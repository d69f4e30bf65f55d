// FP8 GEMMs rehearsed in BF16 on any device: see cpu/rehearsal.cpp for why that is exact. A GPU
// without FP8 units has a BF16 GEMM with an FP32 result; scales that are no powers of two are
// multiplied into it, and it is rounded once.

#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/aten/aten.h"
#include "engine/aten/fp8_quantize.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Recipe;

bool has_one_scale(const fp8::Side& side) {
  return side.granularity == fp8::Granularity::kTensor;
}

class AtenRehearsal final : public Fp8Linear {
 public:
  Fp8Matrix quantize(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                     const QuantizeSpec& column) override {
    Fp8Matrix result = matrix_for(x, row, column);
    const bool shared = one_serves_both(row, column);
    PlainFp8 made;
    if (row.wanted) {
      made = quantize_plain(x, recipe, Direction::kRow, row);
      result.row = copy_of(made, result, Direction::kRow, recipe, false);
    }
    if (!column.wanted) return result;
    if (!shared) made = quantize_plain(x, recipe, Direction::kColumn, column);
    result.column = shared && !column.keep
                        ? result.row
                        : copy_of(made, result, Direction::kColumn, recipe, column.keep);
    return result;
  }

  void forward(const Fp8Matrix& x, const Fp8Matrix& w, const Tensor& bias, Tensor& y) override {
    const Operands o = operands(x, Direction::kRow, w, Direction::kRow);
    store(o.a, o.b.t(), o.scale, bias, y);
  }
  void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, Tensor& dx) override {
    const Operands o = operands(dy, Direction::kRow, w, Direction::kColumn);
    store(o.a, o.b, o.scale, Tensor(), dx);
  }
  void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, Tensor& dw,
                       Accumulate mode) override {
    const Operands o = operands(dy, Direction::kColumn, x, Direction::kColumn);
    if (!o.scale.defined() && !o.a.is_cpu()) {
      matmul_->weight_gradient(o.a, o.b, dw, mode);  // one GEMM that adds
    } else {
      store(o.a.t(), o.b, o.scale, mode == Accumulate::kAdd ? dw : Tensor(), dw);
    }
  }

  void update_factors(Tensor& history, Tensor& factors, const std::vector<fp8::Format>& formats,
                      fp8::AmaxAlgo algo, int64_t margin, bool recompute) override {
    update_.run(history, factors, formats, algo, margin, recompute);
  }

  Tensor health_stats(const Tensor& x, const Fp8Matrix& quantized, Direction direction) override {
    const Fp8Copy& copy = quantized.copy(direction);
    const fp8::Side& side = quantized.side(direction);
    const fp8::Grid grid = quantized.grid(direction);
    const Tensor decode = decode_factors(copy);
    Tensor codes = copy.codes;
    if (!codes.defined()) {
      // Exact: the values are codes times powers of two.
      Tensor values = copy.values.to(at::kFloat);
      if (!has_one_scale(side)) values.div_(spread(decode, grid, x.size(0), x.size(1)));
      codes = values.to(dtype_of(side.format)).view(at::kByte);
    }
    return measure_plain(x, {codes, decode}, side, grid);
  }

 private:
  struct Operands {
    Tensor a, b, scale;  // scale: FP32 [1], or undefined
  };

  // Values for a GEMM that comes now, codes for one that comes later.
  static Fp8Copy copy_of(const PlainFp8& made, const Fp8Matrix& m, Direction direction,
                         Recipe recipe, bool keep) {
    Fp8Copy copy;
    copy.scales = made.decode.flatten();
    if (keep) {
      copy.codes = made.codes;
      if (fp8::has_e8m0_scales(recipe)) copy.scales = to_e8m0(copy.scales);
    } else {
      copy.values = decoded(made.codes, made.decode, m, direction);
    }
    return copy;
  }

  static Tensor decoded(const Tensor& codes, const Tensor& decode, const Fp8Matrix& m,
                        Direction direction) {
    const fp8::Side& side = m.side(direction);
    if (has_one_scale(side)) return values_of(codes, side.format, at::kBFloat16);
    return values_of(codes, side.format, at::kFloat)
        .mul_(spread(decode, m.grid(direction), m.rows, m.columns))
        .to(at::kBFloat16);
  }

  static Tensor decode_factors(const Fp8Copy& copy) {
    return copy.scales.scalar_type() == at::kByte ? from_e8m0(copy.scales) : copy.scales;
  }

  static Tensor values(const Fp8Matrix& m, Direction direction) {
    const Fp8Copy& copy = m.copy(direction);
    OCTAVO_ASSERT(copy.defined());
    if (copy.values.defined()) return copy.values;
    return decoded(copy.codes, decode_factors(copy), m, direction);
  }

  static Operands operands(const Fp8Matrix& a, Direction of_a, const Fp8Matrix& b, Direction of_b) {
    Operands result{values(a, of_a), values(b, of_b), {}};
    OCTAVO_ASSERT(has_one_scale(a.side(of_a)) == has_one_scale(b.side(of_b)));
    if (has_one_scale(a.side(of_a)))
      result.scale = at::mul(a.copy(of_a).scales, b.copy(of_b).scales);
    return result;
  }

  // out = a b scale + added, rounded once. Whatever is undefined is left out.
  static void store(const Tensor& a, const Tensor& b, const Tensor& scale, const Tensor& added,
                    Tensor& out) {
    if (!scale.defined() && !a.is_cpu() && out.scalar_type() == a.scalar_type()) {
      if (added.defined())
        at::addmm_out(out, added, a, b);
      else
        at::mm_out(out, a, b);
      return;
    }
    // libtorch has no FP32 result of BF16 operands on CPUs.
    const Tensor result =
        a.is_cpu() ? at::mm(a.to(at::kFloat), b.to(at::kFloat)) : at::mm(a, b, at::kFloat);
    if (scale.defined() && added.defined())
      at::addcmul_out(out, added, result, scale);
    else if (scale.defined())
      at::mul_out(out, result, scale);
    else if (added.defined())
      at::add_out(out, result, added);
    else
      out.copy_(result);
  }

  std::unique_ptr<Matmul> matmul_ = make_matmul();
  FactorUpdate update_;
};

}  // namespace

std::unique_ptr<Fp8Linear> make_rehearsal() {
  return std::make_unique<AtenRehearsal>();
}

}  // namespace octavo::engine::aten
