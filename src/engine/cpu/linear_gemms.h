#pragma once
// The three GEMMs of a linear layer over BF16 operands, by oneDNN. `scale` multiplies the FP32
// sums before they are rounded or added to: the FP8 rehearsal's scales go there.

#include <ATen/core/Tensor.h>

#include "engine/cpu/gemm.h"
#include "engine/ops.h"

namespace octavo::engine::cpu {

class LinearGemms {
 public:
  explicit LinearGemms(GemmOperands operands) : gemms_(operands) {}

  // y[T,O] = scale x[T,I] w[O,I]^T + bias[O]; bias may be undefined.
  void forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& y,
               float scale = 1);
  // dx[T,I] = scale dy[T,O] w[O,I]
  void input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx, float scale = 1);
  // dw[O,I] (+)= scale dy[T,O]^T x[T,I]
  void weight_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw, Accumulate mode,
                       float scale = 1);

 private:
  void multiply(GemmShape shape, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                at::Tensor& c, float scale);

  GemmCache gemms_;
};

}  // namespace octavo::engine::cpu
