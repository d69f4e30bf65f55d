#include "nn/norm.h"

#include <ATen/ATen.h>

namespace octavo::nn {

using at::Tensor;

namespace {

Tensor scale_of(const Norm& norm) {
  return norm.adds_one ? norm.gamma->compute + 1 : norm.gamma->compute;
}

}  // namespace

NormResult norm_forward(const engine::Engine& engine, const Norm& norm, const Tensor& x,
                        const Tensor& delta) {
  if (!norm.beta) {
    auto out = engine.rms_norm->forward(x, delta, scale_of(norm), norm.eps);
    return {std::move(out.sum), std::move(out.normed), {}, std::move(out.rstd)};
  }
  auto out =
      engine.layer_norm->forward(x, delta, norm.gamma->compute, norm.beta->compute, norm.eps);
  return {std::move(out.sum), std::move(out.normed), std::move(out.mean), std::move(out.rstd)};
}

Tensor norm_backward(const engine::Engine& engine, const Norm& norm, const Tensor& d_normed,
                     const Tensor& d_sum, const NormResult& forward) {
  Param& gamma = *norm.gamma;
  const auto mode = gamma.trainable ? gamma.next_write() : engine::Accumulate::kOverwrite;
  if (!norm.beta) {
    Tensor frozen;
    return engine.rms_norm->backward(d_normed, d_sum, {forward.sum, {}, forward.rstd},
                                     scale_of(norm), gamma.trainable ? gamma.grad : frozen, mode);
  }
  const engine::LayerNorm::Forward saved{forward.sum, {}, forward.mean, forward.rstd};
  Param& beta = *norm.beta;
  if (gamma.trainable) {
    beta.next_write();  // gamma and beta are always written together
    return engine.layer_norm->backward(d_normed, d_sum, saved, gamma.compute, gamma.grad, beta.grad,
                                       mode);
  }
  Tensor unused = at::empty({2, gamma.master.size(0)}, gamma.master.options());
  Tensor d_gamma = unused[0], d_beta = unused[1];
  return engine.layer_norm->backward(d_normed, d_sum, saved, gamma.compute, d_gamma, d_beta, mode);
}

}  // namespace octavo::nn
