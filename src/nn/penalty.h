#pragma once
// Penalties on activations, aimed at the outliers that break FP8. They are added where the model's
// blocks hand over to each other; the forward value is untouched, the backward pass adds the
// penalty's gradient.

#include <ATen/core/Tensor.h>

namespace octavo::nn {

enum class PenaltyKind {
  kActivationL2,  // mean square of the activations
  kKurtosis,      // mean over tokens of E[x^4] / E[x^2]^2: 3 for a Gaussian, large with outliers
};

struct Penalty {
  PenaltyKind kind = PenaltyKind::kActivationL2;
  double gradient_scale = 0;  // weight * tokens of this micro-batch / tokens of the step
  at::Tensor total;           // FP64 scalar: the penalty's value so far, for the metrics
};

// `share` is this place's part of the penalty: 1 / number of places.
at::Tensor penalize(const at::Tensor& x, Penalty& penalty, double share);

}  // namespace octavo::nn
