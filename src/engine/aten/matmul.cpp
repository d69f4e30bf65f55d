#include <ATen/ATen.h>

#include "engine/aten/aten.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

// ATen's CPU kernels have no FP32 result for BF16 operands: there the operands are widened first.
Tensor fp32_matmul_on_cpu(const Tensor& a, const Tensor& b) {
  return at::mm(a.to(at::kFloat), b.to(at::kFloat));
}

struct AtenMatmul final : Matmul {
  void forward(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y) override {
    if (!bias.defined())
      at::mm_out(y, x, w.t());
    else if (x.is_cpu() && x.scalar_type() == at::kBFloat16)
      // addmm would round the sums before it adds the bias. cuBLASLt adds it to the FP32 sums.
      y.copy_(fp32_matmul_on_cpu(x, w.t()).add_(bias));
    else
      at::addmm_out(y, bias, x, w.t());
  }
  void input_gradient(const Tensor& dy, const Tensor& w, Tensor& dx) override {
    at::mm_out(dx, dy, w);
  }
  // One GEMM that adds to what is there, wherever there is a kernel for it.
  void weight_gradient(const Tensor& dy, const Tensor& x, Tensor& dw, Accumulate mode) override {
    const bool add = mode == Accumulate::kAdd;
    if (dy.scalar_type() == at::kBFloat16 && dy.is_cpu()) {
      const Tensor result = fp32_matmul_on_cpu(dy.t(), x);
      if (add)
        dw.add_(result);
      else
        dw.copy_(result);
    } else if (dy.scalar_type() == dw.scalar_type()) {
      if (add)
        at::addmm_out(dw, dw, dy.t(), x);
      else
        at::mm_out(dw, dy.t(), x);
    } else if (add) {
      at::addmm_out(dw, dw, dy.t(), x, at::kFloat);
    } else {
      at::mm_out(dw, dy.t(), x, at::kFloat);
    }
  }
};

}  // namespace

std::unique_ptr<Matmul> make_matmul() {
  return std::make_unique<AtenMatmul>();
}

}  // namespace octavo::engine::aten
