// The products of a linear layer in BF16, by oneDNN. Weight gradients accumulate in
// place, into FP32 or BF16.

#include <ATen/ATen.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/linear_products.h"

namespace octavo::engine::cpu {
namespace {

class OnednnMatmul final : public Matmul {
 public:
  explicit OnednnMatmul(GemmOperands operands) : products_(operands) {}

  void forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
               at::Tensor& y) override {
    products_.forward(x, w, bias, y);
  }
  void input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx) override {
    products_.input_gradient(dy, w, dx);
  }
  void weight_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                       Accumulate mode) override {
    products_.weight_gradient(dy, x, dw, mode);
  }

 private:
  LinearProducts products_;
};

}  // namespace

std::unique_ptr<Matmul> make_onednn_matmul(GemmOperands operands) {
  return std::make_unique<OnednnMatmul>(operands);
}

}  // namespace octavo::engine::cpu
