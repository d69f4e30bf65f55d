// The GEMMs of a linear layer in BF16. Weight gradients accumulate in place, into FP32 or BF16.

#include <ATen/ATen.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/linear_gemms.h"

namespace octavo::engine::cpu {
namespace {

class CpuMatmul final : public Matmul {
 public:
  explicit CpuMatmul(GemmOperands operands) : gemms_(operands) {}

  void forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
               at::Tensor& y) override {
    gemms_.forward(x, w, bias, y);
  }
  void input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx) override {
    gemms_.input_gradient(dy, w, dx);
  }
  void weight_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                       Accumulate mode) override {
    gemms_.weight_gradient(dy, x, dw, mode);
  }

 private:
  LinearGemms gemms_;
};

}  // namespace

std::unique_ptr<Matmul> make_matmul(GemmOperands operands) {
  return std::make_unique<CpuMatmul>(operands);
}

}  // namespace octavo::engine::cpu
