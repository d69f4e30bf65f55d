#include <ATen/ATen.h>

#include <limits>

#include "base/error.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/te/linear_gemms.h"
#include "engine/te/nvfp4.h"
#include "engine/te/quantizer.h"
#include "engine/te/te.h"
#include "engine/te/vectors.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Format;
using fp8::Recipe;

// Factors of E5M2 are those of E4M3 times this, exactly: 57344 = 448 * 2^7.
constexpr float kFormatRatio = fp8::max_value(Format::kE5M2) / fp8::max_value(Format::kE4M3);

class TeFp8Linear final : public Fp8Linear {
 public:
  Fp8Matrix quantize(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                     const QuantizeSpec& column) override {
    if (fp8::is_fp4(recipe)) return nvfp4_.quantize(x, recipe, row, column);
    return te::quantize(x, recipe, row, column);
  }

  int64_t row_multiple(fp8::Granularity granularity) const override {
    if (granularity == fp8::Granularity::kBlock16) return 32;  // of its quantizing kernel
    return granularity == fp8::Granularity::kBlock128 ? 8 : 1;
  }
  std::string_view no_parts_reason(Recipe recipe) const override {
    if (fp8::traits_of(recipe).weights == fp8::Granularity::kTensor) return {};
    return "Transformer Engine's order of block scales is of whole matrices";
  }
  void adopt_part(const Fp8Copy& whole, Direction direction, bool both,
                  Fp8Matrix& matrix) override {
    const auto lie = [&](Direction d) {
      const Layout layout =
          layout_of(matrix.side(d), d, matrix.rows, matrix.columns, facts_of(whole.codes.device()));
      return Fp8Copy{.codes = layout.transposed ? transposed(whole.codes) : whole.codes,
                     .scales = whole.scales,
                     .values = {}};
    };
    if (both || direction == Direction::kRow) matrix.row = lie(Direction::kRow);
    if (both || direction == Direction::kColumn) matrix.column = lie(Direction::kColumn);
  }

  void forward(const Fp8Matrix& x, const Fp8Matrix& w, const Tensor& bias, Tensor& y) override {
    gemms_.forward(x, w, bias, y);
  }
  void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, Tensor& dx) override {
    gemms_.input_gradient(dy, w, dx);
  }
  void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, Tensor& dw,
                       Accumulate mode) override {
    gemms_.weight_gradient(dy, x, dw, mode);
  }

  bool quantizes_together(Recipe recipe) const override { return te::quantizes_together(recipe); }
  std::vector<Fp8Matrix> quantize_all(const std::vector<Request>& requests,
                                      Recipe recipe) override {
    return te::quantize_all(requests, recipe);
  }
  bool sums_biases() const override { return sums_columns(); }
  std::optional<Fp8Matrix> quantize_and_sum(const Tensor& x, Tensor& dbias, Accumulate mode,
                                            Recipe recipe, const QuantizeSpec& row,
                                            const QuantizeSpec& column) override {
    return te::quantize_and_sum(x, dbias, mode, recipe, row, column);
  }

  // The library writes FP8 from a norm for delayed scaling. For mxfp8 it would go through cuDNN,
  // with scales that want another pass; the other recipes it refuses. It adds no residual and
  // transposes in a launch of its own, so that our kernel goes first where it serves.
  bool has_fused_passes() const override { return true; }
  std::optional<Normed> norm_quantize(const Tensor& x, const Tensor& delta, const Tensor& gamma,
                                      const Tensor& beta, double eps, Recipe recipe,
                                      const QuantizeSpec& row,
                                      const QuantizeSpec& column) override {
    if (!fp8::uses_history(recipe) || !row.wanted || !one_call(row, column) || x.size(0) == 0)
      return std::nullopt;
    const OnDevice on(x);
    check_quantizable(x, recipe, on);
    check_shape({x.size(0), x.size(1)}, recipe, row, column);
    check_vector("gamma", gamma, x);
    if (beta.defined()) check_vector("beta", beta, x);
    Output out({x.size(0), x.size(1)}, recipe, row, column, on);
    own::NormOutput made;
    if (norm_by_own(x, row, out)) {
      made = own::prepare_norm(x, delta, beta.defined());
      made.codes = out.as_it_lies().codes;
      made.inverse = out.as_it_lies().scales;
      made.column_codes = out.transposed.codes;
      made.scale = out.factor;
      made.amax = out.amax;
      own::add_norm(own::found_kernels(), {x, delta, gamma, beta, eps}, made);
    } else {
      made = own::prepare_norm(x, {}, beta.defined());
      if (delta.defined()) made.sum = at::add(x, delta);
      norm_forward(made.sum, gamma, beta, eps, out.handle, made.mean, made.rstd, on);
    }
    return Normed{made.sum, made.mean, made.rstd, std::move(out.matrix)};
  }

  std::optional<Fp8Matrix> activate_quantize(Activation activation, const Tensor& x, Recipe recipe,
                                             const QuantizeSpec& row,
                                             const QuantizeSpec& column) override {
    if (x.size(0) == 0) return std::nullopt;
    const OnDevice on(x);
    if (!fuses(activation, recipe, row, column, on.facts)) return std::nullopt;
    check_quantizable(x, recipe, on);
    const bool gated = activation == Activation::kSwiGlu;
    const Output::Shape shape{x.size(0), gated ? x.size(1) / 2 : x.size(1)};
    check_shape(shape, recipe, row, column);
    Output out(shape, recipe, row, column, on);
    const Handle in(x);
    if (gated)
      library().nvte_swiglu(in, out.handle, on.stream);
    else
      library().nvte_gelu(in, out.handle, on.stream);
    return std::move(out.matrix);
  }

  std::optional<Fp8Matrix> activation_gradient_quantize(Activation activation, const Tensor& dy,
                                                        const Tensor& x, Tensor& dbias,
                                                        Accumulate mode, Recipe recipe,
                                                        const QuantizeSpec& row,
                                                        const QuantizeSpec& column) override {
    const bool gated = activation == Activation::kSwiGlu;
    if (x.size(0) == 0 || (gated && dbias.defined())) return std::nullopt;
    const OnDevice on(x);
    if (!fuses(activation, recipe, row, column, on.facts)) return std::nullopt;
    check_quantizable(x, recipe, on);
    check_quantizable(dy, recipe, on);
    check_shape({x.size(0), x.size(1)}, recipe, row, column);
    // Below compute capability 10.0 the kernel that sums the bias gradient writes both copies.
    Output out({x.size(0), x.size(1)}, recipe, row, column, on, /*both=*/dbias.defined());
    const Handle grad(dy), in(x);
    if (gated && column.wanted && fp8::uses_history(recipe) && on.facts.capability < 100) {
      library().nvte_dswiglu_cast_transpose(grad, in, out.handle, on.stream);  // both in one pass
    } else if (gated) {
      library().nvte_dswiglu(grad, in, out.handle, on.stream);
    } else if (!dbias.defined()) {
      library().nvte_dgelu(grad, in, out.handle, on.stream);
    } else {
      const Tensor sums = vector_scratch(x);
      const Handle sums_handle(sums);
      with_workspace(on.device, [&](const Handle& workspace) {
        library().nvte_quantize_dbias_dgelu(grad, in, out.handle, sums_handle, workspace,
                                            on.stream);
      });
      take_vector(sums, dbias, mode);
    }
    return std::move(out.matrix);
  }

  // The library's update of one history takes one format and rolls every slot. Ours (see
  // fp8/scaling.h) has both formats in one history, and a slot that saw nothing stays as it is. So
  // all factors are updated as if they were E4M3's, and what must stay is put back: seven small
  // passes on the device, and no look at a number from the host.
  void update_factors(Tensor& history, Tensor& factors, const std::vector<Format>& formats,
                      fp8::AmaxAlgo algo, int64_t margin, bool recompute) override {
    OCTAVO_ASSERT(history.dim() == 2 && history.is_contiguous() && factors.is_contiguous() &&
                  static_cast<int64_t>(formats.size()) == factors.numel() &&
                  history.size(1) == factors.numel());
    if (factors.numel() == 0) return;
    const OnDevice on(history);
    const Tensor& ratios = ratios_of(formats, on.device);
    const Tensor ran = history.select(0, 0).ne(0);
    const Tensor as_e4m3 = factors / ratios, updated = at::empty_like(factors);
    const Tensor rolled = at::empty_like(history);
    {
      const Handle old_history(history), old_factors(as_e4m3), new_history(rolled),
          new_factors(updated);
      library().nvte_delayed_scaling_recipe_amax_and_scale_update(
          old_history, old_factors, new_history, new_factors,
          algo == fp8::AmaxAlgo::kMax ? "max" : "most_recent", kNVTEFloat8E4M3,
          static_cast<float>(margin), on.stream);
    }
    at::where_out(history, ran, rolled, history);
    if (!recompute) return;
    const Tensor made = (updated * ratios).clamp_max_(std::numeric_limits<float>::max());
    at::where_out(factors, ran, made, factors);
  }

  Tensor health_stats(const Tensor& x, const Fp8Matrix& quantized, Direction direction) override {
    // What was quantized is the matrix after the transform.
    const bool rotated = quantized.copy(direction).rotated;
    const Tensor before = rotated ? rotated_transposed(x, OnDevice(x)).t().contiguous() : x;
    return aten::measure_plain(before, plain_copy(quantized, direction, facts_of(x.device())),
                               quantized.side(direction), quantized.grid(direction));
  }

 private:
  static bool norm_by_own(const Tensor& x, const QuantizeSpec& row, const Output& out) {
    const int64_t most =
        out.transposed.defined() ? kernels::kMostTransposedColumns : kernels::kMostNormColumns;
    return x.is_cuda() && own::library().kernels != nullptr && x.size(1) <= most &&
           row.side.format == Format::kE4M3;
  }

  // By the library's kernel, which reads and writes many bytes at a time; libtorch's copy of single
  // bytes does not.
  static Tensor transposed(const Tensor& codes) {
    const Tensor made = at::empty({codes.size(1), codes.size(0)}, codes.options());
    if (codes.numel() == 0) return made;
    const OnDevice on(codes);
    Handle from, to;  // which of the two formats it is does not matter
    from.set(kNVTERowwiseData, codes, kNVTEFloat8E4M3);
    to.set(kNVTERowwiseData, made, kNVTEFloat8E4M3);
    library().nvte_transpose(from, to, on.stream);
    return made;
  }

  // Blocks of 128 and current scaling are refused by these kernels or want the result first. From
  // compute capability 10.0 on those of gated activations write no transposed copy, which GEMMs
  // of one scale per tensor need on 12.x: there both copies are made in a pass of their own.
  static bool fuses(Activation activation, Recipe recipe, const QuantizeSpec& row,
                    const QuantizeSpec& column, const DeviceFacts& facts) {
    if (activation == Activation::kGeGlu) return false;  // not taken from the library yet
    if (fp8::uses_history(recipe) && activation == Activation::kSwiGlu && column.wanted &&
        !facts.any_layout && facts.capability >= 100)
      return false;
    return quantizes_in_one_pass(recipe) && (row.wanted || column.wanted) && one_call(row, column);
  }

  const Tensor& ratios_of(const std::vector<Format>& formats, at::Device device) {
    if (!ratios_.defined() || ratios_.device() != device || formats != ratio_formats_) {
      Tensor ratios = at::ones({static_cast<int64_t>(formats.size())}, at::kFloat);
      for (size_t i = 0; i < formats.size(); ++i)
        if (formats[i] == Format::kE5M2) ratios.mutable_data_ptr<float>()[i] = kFormatRatio;
      ratios_ = ratios.to(device);
      ratio_formats_ = formats;
    }
    return ratios_;
  }

  LinearGemms gemms_;
  Nvfp4Quantizer nvfp4_;
  Tensor ratios_;
  std::vector<Format> ratio_formats_;
};

}  // namespace

std::unique_ptr<Fp8Linear> make_fp8_linear() {
  return std::make_unique<TeFp8Linear>();
}

}  // namespace octavo::engine::te
