#pragma once
// The three GEMMs of a linear layer over BF16 operands. `scale` multiplies the FP32
// sums before they are rounded or added to: the FP8 rehearsal's scales go there.

#include <ATen/core/Tensor.h>

#include <functional>

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
  // The same with an x[T,I] that is not in memory yet: write_x(layout, to) makes it where and how
  // the GEMM reads it. False when it can be read in plain rows only; then nothing was done.
  using WriteB = std::function<void(const PairedLayout& layout, uint16_t* to)>;
  bool weight_gradient(const at::Tensor& dy, int64_t inputs, const WriteB& write_x, at::Tensor& dw,
                       Accumulate mode, float scale);

 private:
  static GemmShape of_weight_gradient(const at::Tensor& dy, int64_t inputs, const at::Tensor& dw,
                                      Accumulate mode);
  void multiply(GemmShape shape, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                at::Tensor& c, float scale);

  GemmCache gemms_;
};

}  // namespace octavo::engine::cpu
