#include "plan/launches.h"

#include <numeric>

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

double fp8_layer_share(const Workload& work) {
  const std::vector<double>& shares = work.fp8_shares;
  if (!work.recipe || shares.empty()) return work.recipe ? 1 : 0;
  return std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
}

}  // namespace

double own_calls(const Workload& work) {
  const Shape& s = work.shape;
  const auto calls = [&](RecipeOrBf16 recipe) {
    const double again = work.recompute == Recompute::kFull ? (recipe ? 1.65 : 1.45) : 1;
    return again * calls_of_layer(recipe);
  };
  const double in_fp8 = fp8_layer_share(work);
  double layer = in_fp8 * calls(work.recipe) + (1 - in_fp8) * calls(kBf16);
  if (work.lora_rank > 0) layer *= 3;
  // Experts run one after the other: as many calls each as the MLP, half of a layer's.
  const double mlps = static_cast<double>(s.dense_layers() + s.sparse_layers() * s.experts);
  return kOutsideLayers + (static_cast<double>(s.layers) + mlps) / 2 * layer;
}

}  // namespace octavo::plan
