#include <algorithm>

#include "engine/op_table.h"
#include "verify/kernel_checks_fp8.h"

namespace octavo::verify {
namespace {

using engine::Accumulate;
using engine::Activation;
using engine::Fp8Linear;
using engine::Fp8Matrix;
using fp8::Recipe;
using fp8::Role;

// A fused pass may quantize the FP32 number that the two passes round to BF16 first: near the
// middle between two codes it then takes the other one, up to an eighth away. Few do, in both
// directions; a wrong scale, place or order is further away by far.
constexpr double kOtherCodes = 0x1p-6;

template <class Op>
std::unique_ptr<Op> reference_of() {
  return engine::implementations<Op>().back().make();
}

class FusedChecks {
 public:
  FusedChecks(Fp8Linear& op, Fp8Linear& oracle, Recipe recipe, const Fp8Layer& layer, Bench& bench)
      : op_(op), oracle_(oracle), recipe_(recipe), layer_(layer), bench_(bench) {}

  void norms();
  void activations();
  void activation_gradients();
  void bias_sums();
  void weights();

 private:
  // `made` is of an input [T,I] whose values in BF16 are these.
  void as_input(const char* what, const Fp8Matrix& made, const at::Tensor& amax,
                const at::Tensor& values);
  // `made` is of a gradient [T,O].
  void as_gradient(const char* what, const Fp8Matrix& made, const at::Tensor& amax,
                   const at::Tensor& values);
  Fp8Matrix by_oracle(const at::Tensor& values, Role role) {
    const Orders orders = orders_for(recipe_, role, nullptr);
    return oracle_.quantize(values, recipe_, orders.row, orders.column);
  }
  void near(const char* what, const at::Tensor& found, const at::Tensor& wanted,
            const at::Tensor& terms) {
    bench_.same_within(what, found, wanted,
                       std::max(bench_.tolerance().of_sum, kOtherCodes) * terms);
  }
  void same_amax(const char* what, const at::Tensor& amax, const at::Tensor& values) {
    if (!amax.defined()) return;
    const at::Tensor largest = values.abs().max().reshape({1}).to(at::kFloat);
    bench_.same_within(what, amax, largest, 0x1p-7 * size_of(largest));  // of BF16's rounding
  }
  void weight_gradient(const char* what, const Fp8Matrix& dy, const Fp8Matrix& x,
                       const Fp8Matrix& wanted_dy, const Fp8Matrix& wanted_x,
                       const at::Tensor& terms) {
    at::Tensor wanted = at::empty(terms.sizes(), at::kFloat), found = bench_.to_device(wanted);
    oracle_.weight_gradient(wanted_dy, wanted_x, wanted, Accumulate::kOverwrite);
    op_.weight_gradient(dy, x, found, Accumulate::kOverwrite);
    near(what, found, wanted, terms);
  }

  Fp8Linear &op_, &oracle_;
  Recipe recipe_;
  const Fp8Layer& layer_;
  Bench& bench_;
};

void FusedChecks::as_input(const char* what, const Fp8Matrix& made, const at::Tensor& amax,
                           const at::Tensor& values) {
  same_amax(what, amax, values);
  const Fp8Matrix wanted = by_oracle(values, Role::kInput);
  at::Tensor y = at::empty({values.size(0), layer_.w.size(0)}, values.options()),
             found = bench_.to_device(y);
  oracle_.forward(wanted, layer_.qw.wanted, {}, y);
  op_.forward(made, layer_.qw.found, {}, found);
  near(what, found, y, at::mm(size_of(values), size_of(layer_.w).t()));
  weight_gradient(what, layer_.qdy.found, made, layer_.qdy.wanted, wanted,
                  at::mm(size_of(layer_.dy).t(), size_of(values)));
}

void FusedChecks::as_gradient(const char* what, const Fp8Matrix& made, const at::Tensor& amax,
                              const at::Tensor& values) {
  same_amax(what, amax, values);
  const Fp8Matrix wanted = by_oracle(values, Role::kGradient);
  at::Tensor dx = at::empty({values.size(0), layer_.w.size(1)}, values.options()),
             found = bench_.to_device(dx);
  oracle_.input_gradient(wanted, layer_.qw.wanted, dx);
  op_.input_gradient(made, layer_.qw.found, found);
  near(what, found, dx, at::mm(size_of(values), size_of(layer_.w)));
  weight_gradient(what, made, layer_.qx.found, wanted, layer_.qx.wanted,
                  at::mm(size_of(values).t(), size_of(layer_.x)));
}

void FusedChecks::norms() {
  constexpr double kEps = 1e-5;
  const at::Tensor &x = layer_.x, delta = bench_.random(x.sizes()),
                   gamma = bench_.random_parameter({x.size(1)}),
                   beta = bench_.random_parameter({x.size(1)});
  for (const bool is_layer_norm : {true, false}) {
    const char* what = is_layer_norm ? "LayerNorm that quantizes" : "RMS norm that quantizes";
    const Orders orders = orders_for(recipe_, Role::kInput, &bench_);
    const auto made = op_.norm_quantize(
        bench_.to_device(x), bench_.to_device(delta), bench_.parameter_to_device(gamma),
        is_layer_norm ? bench_.parameter_to_device(beta) : at::Tensor(), kEps, recipe_, orders.row,
        orders.column);
    if (!made) continue;
    at::Tensor sum, normed, rstd;
    if (is_layer_norm) {
      const auto out = reference_of<engine::LayerNorm>()->forward(x, delta, gamma, beta, kEps);
      std::tie(sum, normed, rstd) = std::tie(out.sum, out.normed, out.rstd);
    } else {
      const auto out = reference_of<engine::RmsNorm>()->forward(x, delta, gamma, kEps);
      std::tie(sum, normed, rstd) = std::tie(out.sum, out.normed, out.rstd);
    }
    bench_.same_bits(what, made->sum, sum);
    bench_.same_within(what, made->rstd, rstd, 0x1p-16 * size_of(rstd));
    as_input(what, made->matrix, orders.row.amax, normed);
  }
}

void FusedChecks::activations() {
  for (const Activation activation : {Activation::kGelu, Activation::kSwiGlu}) {
    const bool gated = activation == Activation::kSwiGlu;
    const char* what = gated ? "SwiGLU that quantizes" : "GELU that quantizes";
    const at::Tensor x = bench_.random({layer_.x.size(0), layer_.x.size(1) * (gated ? 2 : 1)});
    const Orders orders = orders_for(recipe_, Role::kInput, &bench_);
    const auto made =
        op_.activate_quantize(activation, bench_.to_device(x), recipe_, orders.row, orders.column);
    if (made)
      as_input(what, *made, orders.row.amax,
               gated ? reference_of<engine::SwiGlu>()->forward(x)
                     : reference_of<engine::Gelu>()->forward(x));
  }
}

void FusedChecks::activation_gradients() {
  const int64_t rows = layer_.dy.size(0), columns = layer_.dy.size(1);
  for (const Activation activation : {Activation::kGelu, Activation::kSwiGlu}) {
    const bool gated = activation == Activation::kSwiGlu;
    const char* what = gated ? "SwiGLU's gradient, quantized" : "GELU's gradient, quantized";
    const at::Tensor x = bench_.random({rows, columns});
    at::Tensor dy = bench_.random({rows, gated ? columns / 2 : columns}, 1e-2), sums, found_sums;
    if (!gated) {
      sums = at::zeros({columns});
      found_sums = bench_.to_device(sums);
    }
    const Orders orders = orders_for(recipe_, Role::kGradient, &bench_);
    const auto made = op_.activation_gradient_quantize(
        activation, bench_.to_device(dy), bench_.to_device(x), found_sums, Accumulate::kOverwrite,
        recipe_, orders.row, orders.column);
    if (!made) continue;
    if (gated)
      dy = reference_of<engine::SwiGlu>()->backward(dy, x);
    else
      reference_of<engine::Gelu>()->backward(dy, x, sums, Accumulate::kOverwrite);
    as_gradient(what, *made, orders.row.amax, dy);
    if (!gated)  // the library gives them in BF16
      bench_.same_within(what, found_sums.to(at::kFloat), sums, 0x1p-7 * size_of(dy).sum(0));
  }
}

void FusedChecks::bias_sums() {
  const char* what = "gradient quantized with its sums";
  const at::Tensor& dy = layer_.dy;
  at::Tensor sums = bench_.to_device(at::zeros({dy.size(1)}));
  const Orders orders = orders_for(recipe_, Role::kGradient, &bench_);
  const auto made = op_.quantize_and_sum(bench_.to_device(dy), sums, Accumulate::kOverwrite,
                                         recipe_, orders.row, orders.column);
  if (!made) return;
  as_gradient(what, *made, orders.row.amax, dy);
  bench_.same_within(what, sums, dy.to(at::kFloat).sum(0), 0x1p-16 * size_of(dy).sum(0));
}

void FusedChecks::weights() {
  if (!op_.quantizes_together(recipe_)) return;
  const char* what = "weights quantized together";
  constexpr int64_t kOthers = 2;
  std::vector<Fp8Linear::Request> requests;
  for (int64_t i = 0; i <= kOthers; ++i) {
    const Orders orders = orders_for(recipe_, Role::kWeight, &bench_);
    requests.push_back({bench_.to_device(i == 1 ? layer_.w : bench_.random({128, 128})), orders.row,
                        orders.column});
  }
  const Fp8Matrix made = op_.quantize_all(requests, recipe_).at(1);
  same_amax(what, requests[1].row.amax, layer_.w);
  at::Tensor y = at::empty({layer_.x.size(0), layer_.w.size(0)}, layer_.x.options()),
             dx = at::empty_like(layer_.x), found_y = bench_.to_device(y),
             found_dx = bench_.to_device(dx);
  oracle_.forward(layer_.qx.wanted, layer_.qw.wanted, {}, y);
  op_.forward(layer_.qx.found, made, {}, found_y);
  bench_.same_sums(what, found_y, y, at::mm(size_of(layer_.x), size_of(layer_.w).t()));
  oracle_.input_gradient(layer_.qdy.wanted, layer_.qw.wanted, dx);
  op_.input_gradient(layer_.qdy.found, made, found_dx);
  bench_.same_sums(what, found_dx, dx, at::mm(size_of(layer_.dy), size_of(layer_.w)));
}

}  // namespace

void check_fused(Fp8Linear& op, Fp8Linear& oracle, Recipe recipe, const Fp8Layer& layer,
                 Bench& bench) {
  FusedChecks checks(op, oracle, recipe, layer, bench);
  checks.norms();
  checks.activations();
  checks.activation_gradients();
  checks.bias_sums();
  checks.weights();
}

}  // namespace octavo::verify
