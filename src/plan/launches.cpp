#include "plan/launches.h"

namespace octavo::plan {
namespace {

constexpr double kOutsideLayers = 53;  // embedding, loss, optimizer, statistics

// Of one layer without recomputation and adapters: kernels and twelve GEMMs.
double calls_of_layer(RecipeOrBf16 recipe) {
  if (!recipe) return 23;
  const fp8::RecipeTraits& traits = fp8::traits_of(*recipe);
  if (traits.scale_rule == fp8::ScaleRule::kHistory) return 32;  // one cast for both copies
  if (fp8::is_fp4(*recipe)) return 125;  // amax, rotation, codes and swizzled scales of each copy
  if (!traits.in_transformer_engine) return 130;  // libtorch's casts, several for each matrix
  return traits.activations == fp8::Granularity::kTensor ? 88 : 53;
}

}  // namespace

double own_calls(const Workload& work) {
  const Shape& s = work.shape;
  double layer = calls_of_layer(work.recipe);
  if (work.recompute == Recompute::kFull) layer *= work.recipe ? 1.65 : 1.45;
  if (work.lora_rank > 0) layer *= 3;
  // Experts run one after the other: as many calls each as the MLP, half of a layer's.
  const double mlps = static_cast<double>(s.dense_layers() + s.sparse_layers() * s.experts);
  return kOutsideLayers + (static_cast<double>(s.layers) + mlps) / 2 * layer;
}

}  // namespace octavo::plan
