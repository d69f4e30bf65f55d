// Layer norm and RMS norm. The residual addition is a kernel of its own here.

#include <ATen/ATen.h>

#include <tuple>

#include "engine/aten/aten.h"
#include "engine/torch_version.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

Tensor sum_of(const Tensor& x, const Tensor& delta) {
  return delta.defined() ? at::add(x, delta) : x;
}

// The kernels give gradients in the parameters' dtype. The first of a step is taken as it is, which
// costs no launch; sums over micro-batches are in FP32.
void store(Tensor& into, const Tensor& from, Accumulate mode) {
  into = mode == Accumulate::kOverwrite ? from : at::add(into.to(at::kFloat), from);
}

// The kernel for CPUs adds the parameters' gradients up in the dtype of x.
Tensor in_fp32_on_cpu(const Tensor& t) {
  return t.is_cpu() ? t.to(at::kFloat) : t;
}

struct AtenLayerNorm final : LayerNorm {
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, const Tensor& beta,
                  double eps) override {
    const Tensor sum = sum_of(x, delta);
    const auto [normed, mean, rstd] = at::native_layer_norm(sum, {sum.size(1)}, gamma, beta, eps);
    return {sum, normed, mean.flatten(), rstd.flatten()};
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Tensor& dbeta, Accumulate mode) override {
    auto [made, made_dgamma, made_dbeta] = at::native_layer_norm_backward(
        in_fp32_on_cpu(d_normed), in_fp32_on_cpu(saved.sum), {saved.sum.size(1)},
        saved.mean.unsqueeze(1), saved.rstd.unsqueeze(1), gamma, /*bias=*/gamma,
        {true, true, true});
    Tensor dx = made.to(d_normed.scalar_type());
    store(dgamma, made_dgamma, mode);
    store(dbeta, made_dbeta, mode);
    if (d_sum.defined()) dx.add_(d_sum);
    return dx;
  }
};

struct AtenRmsNorm final : RmsNorm {
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, double eps) override {
    const Tensor sum = sum_of(x, delta);
    if (sum.is_cuda()) {
      const auto [normed, rstd] = libtorch::fused_rms_norm(sum, gamma, eps);
      return {sum, normed, rstd.flatten()};
    }
    const Tensor wide = sum.to(at::kFloat);
    const Tensor rstd = wide.square().mean(1, /*keepdim=*/true).add_(eps).rsqrt_();
    return {sum, at::mul(wide, rstd).mul_(gamma).to(x.scalar_type()), rstd.flatten()};
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Accumulate mode) override {
    auto [dx, made_dgamma] = saved.sum.is_cuda()
                                 ? fused_backward(d_normed, saved, gamma, dgamma.defined())
                                 : plain_backward(d_normed, saved, gamma, dgamma.defined());
    if (dgamma.defined()) store(dgamma, made_dgamma, mode);
    if (d_sum.defined()) dx.add_(d_sum);
    return dx;
  }

 private:
  static std::tuple<Tensor, Tensor> fused_backward(const Tensor& d_normed, const Forward& saved,
                                                   const Tensor& gamma, bool with_dgamma) {
    return libtorch::fused_rms_norm_backward(d_normed, saved.sum, saved.rstd.unsqueeze(1), gamma,
                                             with_dgamma);
  }
  // libtorch has no kernel for CPUs: the same in FP32.
  static std::tuple<Tensor, Tensor> plain_backward(const Tensor& d_normed, const Forward& saved,
                                                   const Tensor& gamma, bool with_dgamma) {
    const Tensor rstd = saved.rstd.unsqueeze(1), dn = d_normed.to(at::kFloat);
    const Tensor hat = saved.sum.to(at::kFloat).mul(rstd), g = dn.mul(gamma);
    const Tensor share = at::mul(g, hat).mean(1, /*keepdim=*/true);
    const Tensor dx = at::sub(g, at::mul(hat, share)).mul_(rstd).to(d_normed.scalar_type());
    return {dx, with_dgamma ? at::mul(dn, hat).sum(0) : Tensor()};
  }
};

}  // namespace

std::unique_ptr<LayerNorm> make_layer_norm() {
  return std::make_unique<AtenLayerNorm>();
}
std::unique_ptr<RmsNorm> make_rms_norm() {
  return std::make_unique<AtenRmsNorm>();
}

}  // namespace octavo::engine::aten
