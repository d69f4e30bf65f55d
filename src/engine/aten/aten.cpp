#include "engine/aten/aten.h"

#include <ATen/ATen.h>

#include <tuple>

namespace octavo::engine::aten {
namespace {

using at::Tensor;

// ATen's CPU kernels have no FP32 result for BF16 operands: there the operands are widened first.
Tensor fp32_product(const Tensor& a, const Tensor& b) {
  if (a.is_cpu()) return at::mm(a.to(at::kFloat), b.to(at::kFloat));
  return at::mm(a, b, at::kFloat);
}

struct AtenMatmul final : Matmul {
  void forward(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y) override {
    const bool bf16_on_cpu = x.is_cpu() && x.scalar_type() == at::kBFloat16;
    if (!bias.defined())
      at::mm_out(y, x, w.t());
    else if (bf16_on_cpu)  // addmm would round the product before it adds the bias
      y.copy_(fp32_product(x, w.t()).add_(bias));
    else
      at::addmm_out(y, bias.to(x.scalar_type()), x, w.t());
  }
  void input_gradient(const Tensor& dy, const Tensor& w, Tensor& dx) override {
    at::mm_out(dx, dy, w);
  }
  void weight_gradient(const Tensor& dy, const Tensor& x, Tensor& dw, Accumulate mode) override {
    const bool add = mode == Accumulate::kAdd;
    if (dy.scalar_type() == at::kFloat)
      at::addmm_out(dw, dw, dy.t(), x, add ? 1 : 0, 1);
    else if (add)
      dw.add_(fp32_product(dy.t(), x));
    else
      dw.copy_(fp32_product(dy.t(), x));
  }
};

// The flash kernel of libtorch for CPUs. Queries, keys and values are views of the packed rows.
struct AtenAttention final : Attention {
  static std::vector<Tensor> heads_of(const Tensor& qkv, int64_t batch, int64_t heads) {
    const int64_t dim = qkv.size(1) / 3 / heads;
    return qkv.view({batch, -1, 3, heads, dim}).permute({2, 0, 3, 1, 4}).unbind(0);
  }
  Forward forward(const Tensor& qkv, int64_t batch, int64_t heads) override {
    const auto h = heads_of(qkv, batch, heads);
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(h[0], h[1], h[2], 0.0, true);
    return {out.transpose(1, 2).reshape({qkv.size(0), qkv.size(1) / 3}), lse};
  }
  Tensor backward(const Tensor& d_out, const Tensor& qkv, const Forward& saved, int64_t batch,
                  int64_t heads) override {
    const auto h = heads_of(qkv, batch, heads);
    const int64_t dim = qkv.size(1) / 3 / heads;
    const auto by_head = [&](const Tensor& t) {
      return t.view({batch, -1, heads, dim}).transpose(1, 2);
    };
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        by_head(d_out), h[0], h[1], h[2], by_head(saved.out), saved.lse, 0.0, true);
    return at::stack({dq, dk, dv}).permute({1, 3, 0, 2, 4}).reshape(qkv.sizes());
  }
};

}  // namespace

std::unique_ptr<Matmul> make_matmul() {
  return std::make_unique<AtenMatmul>();
}
std::unique_ptr<Attention> make_attention() {
  return std::make_unique<AtenAttention>();
}

}  // namespace octavo::engine::aten
