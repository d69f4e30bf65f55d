#pragma once
// What a variant does to the tensors of one linear layer, and to its three GEMMs.

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/variant.h"
#include "engine/engine.h"
#include "nn/linear.h"

namespace octavo::diagnose {

struct TensorStats {
  fp8::Role role = fp8::Role::kInput;
  fp8::Direction direction = fp8::Direction::kRow;
  fp8::TensorHealth health;
};

// Relative to the FP32 GEMM of the numbers before they were quantized: root of the squares of
// the difference over those of its result. Of the forward GEMM each row, a token, counts the
// same: norms make tokens alike, and one with an outlier must not hide what becomes of the others.
// Of gradients the whole: a token counts as much as it would move the weights. Nothing where a
// GEMM does not run.
using GemmErrors = std::array<std::optional<double>, 3>;  // by nn::Gemm

struct VariantStats {
  Variant variant;
  std::string refusal;  // why the hardware would not run it on this layer
  std::vector<TensorStats> tensors;
  GemmErrors errors;

  double error() const;  // of all GEMMs: root of the mean square
  bool is_legal() const { return refusal.empty(); }
};

struct LayerStats {
  std::string layer;
  int64_t outputs = 0, inputs = 0;
  GemmErrors bf16;  // of plain BF16 GEMMs: the floor
  // What Hopper's accumulators change of the results in BF16 (the weight gradient's in FP32) of the
  // first variant, relative to FP32 sums; nothing where that was not asked for.
  GemmErrors hopper_sums;
  std::vector<VariantStats> variants;

  const VariantStats* best() const;  // smallest error among the legal; null when none is
  const VariantStats* find(const Variant& variant) const;
};

// The factor of delayed for a tensor of the layer; not asked for by other recipes.
using FactorOf = std::function<float(const Variant&, fp8::Role, fp8::Direction)>;

// Adds to `stats`, which has its variants: statistics of x[T,I] and w[O,I] and the error of the
// forward GEMM; then statistics of dy[T,O] and the errors of both gradients (of the weight's
// where x is defined). `engine` rehearses: any device, any recipe.
void measure_forward(const engine::Engine& engine, const at::Tensor& x, const at::Tensor& w,
                     const FactorOf& factor, LayerStats& stats);
void measure_backward(const engine::Engine& engine, const at::Tensor& dy, const at::Tensor& x,
                      const at::Tensor& w, const FactorOf& factor, LayerStats& stats);
// The same GEMMs of the first variant once more by `hopper`, which has Hopper's accumulators,
// beside `engine`, which has FP32 sums. `x` undefined: no weight gradient.
void measure_hopper_forward(const engine::Engine& engine, const engine::Engine& hopper,
                            const at::Tensor& x, const at::Tensor& w, const FactorOf& factor,
                            LayerStats& stats);
void measure_hopper_backward(const engine::Engine& engine, const engine::Engine& hopper,
                             const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                             const FactorOf& factor, LayerStats& stats);

// A layer's stats before it was looked at: which variants may run on it.
LayerStats stats_for(const std::string& layer, int64_t outputs, int64_t inputs,
                     const std::vector<Variant>& variants);

}  // namespace octavo::diagnose
