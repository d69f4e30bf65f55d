#include "engine/ops.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace octavo::engine {

void Matmul::weight_bias_gradient(const at::Tensor&, const at::Tensor&, at::Tensor&, Accumulate,
                                  at::Tensor&, Accumulate) {
  OCTAVO_ASSERT(sums_biases());  // whoever says so has its own
}

// Whoever says that there is one has its own.
void Matmul::forward_gelu(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::Tensor&,
                          at::Tensor&) {
  OCTAVO_ASSERT(fuses_gelu());
}
void Matmul::input_gradient_gelu(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 at::Tensor&) {
  OCTAVO_ASSERT(fuses_gelu());
}

at::Tensor Rope::packed_back(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             const at::Tensor&, const at::Tensor&) {
  OCTAVO_ASSERT(packs());
  return {};
}

Attention::Parts Attention::backward_parts(const at::Tensor&, const at::Tensor&, const Forward&,
                                           const Shape&) {
  OCTAVO_ASSERT(gives_parts());
  return {};
}

at::Tensor AdamW::sums_of_squares(const std::vector<at::Tensor>& grads) {
  at::Tensor sums = at::empty({static_cast<int64_t>(grads.size())}, at::kDouble);
  auto* out = sums.mutable_data_ptr<double>();
  for (const at::Tensor& grad : grads) *out++ = sum_of_squares(grad);
  return sums;
}

}  // namespace octavo::engine
