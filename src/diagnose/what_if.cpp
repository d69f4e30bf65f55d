#include "diagnose/what_if.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "fp8/legality.h"

namespace octavo::diagnose {
namespace {

using at::Tensor;
using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;
using fp8::Role;
using nn::Gemm;

Fp8Matrix quantized(const engine::Engine& engine, const Tensor& tensor, const Variant& variant,
                    Role role, const FactorOf& factor) {
  const auto order = [&](Direction direction) {
    const fp8::Options options = options_of(variant);
    QuantizeSpec made{.side = side_of(options, role, direction),
                      .wanted = true,
                      .keep = false,
                      .factor = {},
                      .amax = {}};
    made.rotate = is_rotated(options, role, direction);
    made.rounding = {.stochastic = is_stochastic(options, role),
                     .stream = static_cast<uint64_t>(direction)};
    if (fp8::uses_history(variant.recipe))
      made.factor =
          at::full({1}, factor(variant, role, direction), tensor.options().dtype(at::kFloat));
    return made;
  };
  return engine.fp8_linear->quantize(tensor, variant.recipe, order(Direction::kRow),
                                     order(Direction::kColumn));
}

void add_health(const engine::Engine& engine, const Tensor& tensor, const Fp8Matrix& made,
                Role role, VariantStats& stats) {
  const bool same = made.row_side == made.column_side && is_symmetric(made.row_side.granularity);
  for (const Direction direction : {Direction::kRow, Direction::kColumn})
    if (direction == Direction::kRow || !same)
      stats.tensors.push_back(
          {role, direction, engine.fp8_linear->measure(tensor, made, direction)});
}

double relative_error(const Tensor& found, const Tensor& wanted) {
  const double size = wanted.norm().item<double>();
  const double off = (found.to(at::kFloat) - wanted).norm().item<double>();
  return size > 0 ? off / size : off;
}

// Every row that is not zero counts the same.
double relative_row_error(const Tensor& found, const Tensor& wanted) {
  const Tensor size = wanted.square().sum(1), off = (found.to(at::kFloat) - wanted).square().sum(1);
  const Tensor counted = size > 0;
  const double rows = counted.sum().item<double>();
  if (rows == 0) return off.sum().sqrt().item<double>();
  return std::sqrt(at::where(counted, off / size, 0).sum().item<double>() / rows);
}

// The GEMM in FP32 is the truth, and that in BF16 the least that quantizing adds to.
struct Comparison {
  Gemm gemm;
  Tensor wanted, result;  // result: where implementations write
  std::optional<double>& of(GemmErrors& errors) const { return errors[static_cast<size_t>(gemm)]; }
  void take(GemmErrors& errors) const {
    of(errors) = gemm == Gemm::kForward ? relative_row_error(result, wanted)
                                        : relative_error(result, wanted);
  }
};

Comparison comparison(Gemm gemm, const Tensor& left, const Tensor& right, at::ScalarType type) {
  Tensor wanted = at::mm(left.to(at::kFloat), right.to(at::kFloat));
  Tensor result = at::empty(wanted.sizes(), wanted.options().dtype(type));
  return {gemm, std::move(wanted), std::move(result)};
}

Tensor in_bf16(const Tensor& tensor) {
  return tensor.detach().to(at::kBFloat16).contiguous();
}

}  // namespace

double VariantStats::error() const {
  double squares = 0;
  int count = 0;
  for (const auto& error : errors)
    if (error) {
      squares += *error * *error;
      ++count;
    }
  return count > 0 ? std::sqrt(squares / count) : 0;
}

const VariantStats* LayerStats::best() const {
  const VariantStats* found = nullptr;
  for (const VariantStats& v : variants)
    if (v.is_legal() && (found == nullptr || v.error() < found->error())) found = &v;
  return found;
}

const VariantStats* LayerStats::find(const Variant& variant) const {
  const auto found =
      std::ranges::find_if(variants, [&](const auto& v) { return v.variant == variant; });
  return found == variants.end() ? nullptr : &*found;
}

LayerStats stats_for(const std::string& layer, int64_t outputs, int64_t inputs,
                     const std::vector<Variant>& variants) {
  LayerStats stats{.layer = layer,
                   .outputs = outputs,
                   .inputs = inputs,
                   .bf16 = {},
                   .hopper_sums = {},
                   .variants = {}};
  for (const Variant& variant : variants)
    stats.variants.push_back({variant, fp8::refusal(variant.recipe, outputs, inputs), {}, {}});
  return stats;
}

void measure_forward(const engine::Engine& engine, const Tensor& x, const Tensor& w,
                     const FactorOf& factor, LayerStats& stats) {
  const at::NoGradGuard no_grad;
  const Tensor input = in_bf16(x), weight = in_bf16(w);
  Comparison y = comparison(Gemm::kForward, input, weight.t(), at::kBFloat16);
  engine.matmul->forward(input, weight, {}, y.result);
  y.take(stats.bf16);
  for (VariantStats& v : stats.variants) {
    if (!v.is_legal()) continue;
    const Fp8Matrix made_x = quantized(engine, input, v.variant, Role::kInput, factor),
                    made_w = quantized(engine, weight, v.variant, Role::kWeight, factor);
    add_health(engine, input, made_x, Role::kInput, v);
    add_health(engine, weight, made_w, Role::kWeight, v);
    engine.fp8_linear->forward(made_x, made_w, {}, y.result);
    y.take(v.errors);
  }
}

void measure_backward(const engine::Engine& engine, const Tensor& dy, const Tensor& x,
                      const Tensor& w, const FactorOf& factor, LayerStats& stats) {
  using engine::Accumulate;
  const at::NoGradGuard no_grad;
  const Tensor gradient = in_bf16(dy), weight = in_bf16(w);
  const Tensor input = x.defined() ? in_bf16(x) : Tensor();
  Comparison dx = comparison(Gemm::kInputGradient, gradient, weight, at::kBFloat16);
  engine.matmul->input_gradient(gradient, weight, dx.result);
  dx.take(stats.bf16);
  std::optional<Comparison> dw;
  if (input.defined()) {
    dw = comparison(Gemm::kWeightGradient, gradient.t(), input, at::kFloat);
    engine.matmul->weight_gradient(gradient, input, dw->result, Accumulate::kOverwrite);
    dw->take(stats.bf16);
  }
  for (VariantStats& v : stats.variants) {
    if (!v.is_legal()) continue;
    const Fp8Matrix made = quantized(engine, gradient, v.variant, Role::kGradient, factor);
    add_health(engine, gradient, made, Role::kGradient, v);
    engine.fp8_linear->input_gradient(
        made, quantized(engine, weight, v.variant, Role::kWeight, factor), dx.result);
    dx.take(v.errors);
    if (!dw) continue;
    engine.fp8_linear->weight_gradient(made,
                                       quantized(engine, input, v.variant, Role::kInput, factor),
                                       dw->result, Accumulate::kOverwrite);
    dw->take(v.errors);
  }
}

namespace {

// Whether the first variant can be looked at, and its recipe is one of Hopper's.
bool has_hopper_sums(const LayerStats& stats) {
  constexpr int kHopper = 90;
  return !stats.variants.empty() && stats.variants.front().is_legal() &&
         fp8::traits_of(stats.variants.front().variant.recipe).native.has(kHopper);
}

// Runs `gemm` by both, each over what it quantized itself: `gemm` is given an engine and where to
// write, [rows, columns].
template <class Run>
void compare_sums(Gemm gemm, const engine::Engine& engine, const engine::Engine& hopper,
                  at::IntArrayRef sizes, at::ScalarType type, const Run& run, LayerStats& stats) {
  Tensor wide = at::empty(sizes, type), narrow = at::empty(sizes, type);
  run(engine, wide);
  run(hopper, narrow);
  Comparison{gemm, wide.to(at::kFloat), narrow}.take(stats.hopper_sums);
}

}  // namespace

void measure_hopper_forward(const engine::Engine& engine, const engine::Engine& hopper,
                            const Tensor& x, const Tensor& w, const FactorOf& factor,
                            LayerStats& stats) {
  const at::NoGradGuard no_grad;
  if (!has_hopper_sums(stats)) return;
  const Variant& variant = stats.variants.front().variant;
  const Tensor input = in_bf16(x), weight = in_bf16(w);
  compare_sums(
      Gemm::kForward, engine, hopper, {input.size(0), weight.size(0)}, at::kBFloat16,
      [&](const engine::Engine& by, Tensor& y) {
        by.fp8_linear->forward(quantized(by, input, variant, Role::kInput, factor),
                               quantized(by, weight, variant, Role::kWeight, factor), {}, y);
      },
      stats);
}

void measure_hopper_backward(const engine::Engine& engine, const engine::Engine& hopper,
                             const Tensor& dy, const Tensor& x, const Tensor& w,
                             const FactorOf& factor, LayerStats& stats) {
  const at::NoGradGuard no_grad;
  if (!has_hopper_sums(stats)) return;
  const Variant& variant = stats.variants.front().variant;
  const Tensor gradient = in_bf16(dy), weight = in_bf16(w);
  compare_sums(
      Gemm::kInputGradient, engine, hopper, {gradient.size(0), weight.size(1)}, at::kBFloat16,
      [&](const engine::Engine& by, Tensor& dx) {
        by.fp8_linear->input_gradient(quantized(by, gradient, variant, Role::kGradient, factor),
                                      quantized(by, weight, variant, Role::kWeight, factor), dx);
      },
      stats);
  if (!x.defined()) return;
  const Tensor input = in_bf16(x);
  compare_sums(
      Gemm::kWeightGradient, engine, hopper, weight.sizes(), at::kFloat,
      [&](const engine::Engine& by, Tensor& dw) {
        by.fp8_linear->weight_gradient(quantized(by, gradient, variant, Role::kGradient, factor),
                                       quantized(by, input, variant, Role::kInput, factor), dw,
                                       engine::Accumulate::kOverwrite);
      },
      stats);
}

}  // namespace octavo::diagnose
