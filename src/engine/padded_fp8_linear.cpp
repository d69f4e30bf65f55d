#include "engine/padded_fp8_linear.h"

#include <ATen/ATen.h>

#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"
#include "fp8/legality.h"

namespace octavo::engine {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Recipe;

Tensor with_zero_rows(const Tensor& x, int64_t rows) {
  return rows == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, rows});
}

class PaddedFp8Linear final : public Fp8Linear {
 public:
  explicit PaddedFp8Linear(std::unique_ptr<Fp8Linear> inner) : inner_(std::move(inner)) {}

  Fp8Matrix quantize(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                     const QuantizeSpec& column) override {
    const int64_t missing = missing_rows(x, recipe, row, column);
    if (missing > 0) {
      const std::lock_guard lock(mutex_);
      ++padding_.operands;
      padding_.tokens += x.size(0);
      padding_.zero_rows += missing;
      padded_.insert({x.size(0), x.size(0) + missing});
    }
    return inner_->quantize(with_zero_rows(x, missing), recipe, row, column);
  }

  void forward(const Fp8Matrix& x, const Fp8Matrix& w, const Tensor& bias, Tensor& y) override {
    OCTAVO_ASSERT(y.dim() != 2 || y.size(1) == w.rows);  // or weights were padded
    cut(y, x, [&](Tensor& result) { inner_->forward(x, w, bias, result); });
  }
  void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, Tensor& dx) override {
    OCTAVO_ASSERT(dy.columns == w.rows);
    cut(dx, dy, [&](Tensor& result) { inner_->input_gradient(dy, w, result); });
  }
  void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, Tensor& dw,
                       Accumulate mode) override {
    inner_->weight_gradient(dy, x, dw, mode);
  }

  // Fused passes know no zeros: where some are missing it is done in two passes.
  bool has_fused_passes() const override { return inner_->has_fused_passes(); }
  std::optional<Normed> norm_quantize(const Tensor& x, const Tensor& delta, const Tensor& gamma,
                                      const Tensor& beta, double eps, Recipe recipe,
                                      const QuantizeSpec& row,
                                      const QuantizeSpec& column) override {
    if (missing_rows(x, recipe, row, column) > 0) return std::nullopt;
    return inner_->norm_quantize(x, delta, gamma, beta, eps, recipe, row, column);
  }
  bool sums_biases() const override { return inner_->sums_biases(); }
  std::optional<Fp8Matrix> quantize_and_sum(const Tensor& x, Tensor& dbias, Accumulate mode,
                                            Recipe recipe, const QuantizeSpec& row,
                                            const QuantizeSpec& column) override {
    if (missing_rows(x, recipe, row, column) > 0) return std::nullopt;
    return inner_->quantize_and_sum(x, dbias, mode, recipe, row, column);
  }
  // Of weights, whose rows fit: see fp8/legality.h.
  bool quantizes_together(Recipe recipe) const override {
    return inner_->quantizes_together(recipe);
  }
  std::vector<Fp8Matrix> quantize_all(const std::vector<Request>& requests,
                                      Recipe recipe) override {
    for (const Request& r : requests)
      OCTAVO_ASSERT(missing_rows(r.x, recipe, r.row, r.column) == 0);
    return inner_->quantize_all(requests, recipe);
  }
  std::optional<Fp8Matrix> activate_quantize(Activation activation, const Tensor& x, Recipe recipe,
                                             const QuantizeSpec& row,
                                             const QuantizeSpec& column) override {
    if (missing_rows(x, recipe, row, column) > 0) return std::nullopt;
    return inner_->activate_quantize(activation, x, recipe, row, column);
  }
  std::optional<Fp8Matrix> activation_gradient_quantize(Activation activation, const Tensor& dy,
                                                        const Tensor& x, Tensor& dbias,
                                                        Accumulate mode, Recipe recipe,
                                                        const QuantizeSpec& row,
                                                        const QuantizeSpec& column) override {
    if (missing_rows(x, recipe, row, column) > 0) return std::nullopt;
    return inner_->activation_gradient_quantize(activation, dy, x, dbias, mode, recipe, row,
                                                column);
  }

  int64_t row_multiple(fp8::Granularity granularity) const override {
    return inner_->row_multiple(granularity);
  }
  std::string_view no_parts_reason(Recipe recipe) const override {
    return inner_->no_parts_reason(recipe);
  }
  Fp8Copy quantize_part(const Tensor& x, Recipe recipe, Direction direction,
                        const QuantizeSpec& order) override {
    return inner_->quantize_part(x, recipe, direction, order);
  }
  void adopt_part(const Fp8Copy& whole, Direction direction, bool both,
                  Fp8Matrix& matrix) override {
    inner_->adopt_part(whole, direction, both, matrix);
  }

  void update_factors(Tensor& history, Tensor& factors, const std::vector<fp8::Format>& formats,
                      fp8::AmaxAlgo algo, int64_t margin, bool recompute) override {
    inner_->update_factors(history, factors, formats, algo, margin, recompute);
  }

  // Of the zeros only the number of elements knows.
  Tensor health_stats(const Tensor& x, const Fp8Matrix& quantized, Direction direction) override {
    const int64_t missing = quantized.rows - x.size(0);
    Tensor stats = inner_->health_stats(with_zero_rows(x, missing), quantized, direction);
    if (missing > 0) stats.narrow(0, 0, 1).mul_(x.size(0)).div_(quantized.rows);
    return stats;
  }

  int64_t infinite_operands() const override { return inner_->infinite_operands(); }
  int64_t blocks_below_range() const override { return inner_->blocks_below_range(); }
  const Padding& padding() const { return padding_; }
  Fp8Linear& inner() { return *inner_; }

 private:
  // Writes `result` by `run`, through a taller one when the operand has rows of zeros. Any other
  // difference of rows is a mistake, which is left to the implementation's own checks.
  template <typename Run>
  void cut(Tensor& result, const Fp8Matrix& operand, Run run) const {
    const bool is_matrix = result.defined() && result.dim() == 2;
    if (!is_matrix || !was_padded(result.size(0), operand.rows)) return run(result);
    Tensor taller = at::empty({operand.rows, result.size(1)}, result.options());
    run(taller);
    result.copy_(taller.narrow(0, 0, result.size(0)));
  }

  bool was_padded(int64_t tokens, int64_t rows) const {
    const std::lock_guard lock(mutex_);
    return padded_.contains({tokens, rows});
  }

  // The weight gradient sums over the tokens. The forward GEMM and the input gradient take any
  // number of them, unless the implementation says otherwise.
  int64_t missing_rows(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                       const QuantizeSpec& column) const {
    const bool rows_must_fit = row.wanted && inner_->row_multiple(row.side.granularity) > 1;
    return column.wanted || rows_must_fit ? fp8::padding(recipe, x.size(0)) : 0;
  }

  std::unique_ptr<Fp8Linear> inner_;
  mutable std::mutex mutex_;  // of what follows: groups of rows come from several threads
  Padding padding_;
  std::set<std::pair<int64_t, int64_t>> padded_;  // tokens, and rows with those of zeros
};

}  // namespace

std::unique_ptr<Fp8Linear> with_padding(std::unique_ptr<Fp8Linear> inner) {
  return std::make_unique<PaddedFp8Linear>(std::move(inner));
}

Fp8Linear& without_padding(Fp8Linear& op) {
  auto* padded = dynamic_cast<PaddedFp8Linear*>(&op);
  return padded != nullptr ? padded->inner() : op;
}

Padding padding_of(const Fp8Linear& op) {
  const auto* padded = dynamic_cast<const PaddedFp8Linear*>(&op);
  return padded != nullptr ? padded->padding() : Padding{};
}

}  // namespace octavo::engine
