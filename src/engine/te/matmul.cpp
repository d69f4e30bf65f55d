#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/aten/aten.h"
#include "engine/te/linear_gemms.h"
#include "engine/te/te.h"
#include "engine/te/vectors.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;

// libtorch's GEMMs, and the library's where a bias's gradient comes out of the weight's: cuBLASLt
// sums the columns of dy while it reads them, for which libtorch has no call.
class TeMatmul final : public Matmul {
 public:
  void forward(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y) override {
    plain_->forward(x, w, bias, y);
  }
  void input_gradient(const Tensor& dy, const Tensor& w, Tensor& dx) override {
    plain_->input_gradient(dy, w, dx);
  }
  void weight_gradient(const Tensor& dy, const Tensor& x, Tensor& dw, Accumulate mode) override {
    plain_->weight_gradient(dy, x, dw, mode);
  }

  bool sums_biases() const override { return true; }
  void weight_bias_gradient(const Tensor& dy, const Tensor& x, Tensor& dw, Accumulate mode,
                            Tensor& dbias, Accumulate bias_mode) override {
    check_matrix("the gradient", dy);
    check_matrix("x", x);
    OCTAVO_ASSERT(dy.size(0) == x.size(0) && dw.size(0) == dy.size(1) && dw.size(1) == x.size(1) &&
                  dw.is_contiguous());
    if (dy.size(0) == 0) {  // the library refuses a sum over nothing
      if (mode == Accumulate::kOverwrite) dw.zero_();
      if (bias_mode == Accumulate::kOverwrite) dbias.zero_();
      return;
    }
    const OnDevice on(dy);
    const Tensor sums = vector_scratch(dy);
    const Handle a(x), b(dy), d(dw), bias(sums);
    const MatmulConfig config(/*split_accumulator=*/true, nullptr, &bias);
    const Handle working(workspace_.of(on));
    const float one = 1, old = mode == Accumulate::kAdd ? 1.0f : 0.0f;
    library().nvte_cublas_gemm_v2(false, true, &one, a, b, &old, d, d, working, config, on.stream);
    take_vector(sums, dbias, bias_mode);
  }

 private:
  std::unique_ptr<Matmul> plain_ = aten::make_matmul();
  GemmWorkspace workspace_;
};

}  // namespace

std::unique_ptr<Matmul> make_matmul() {
  return std::make_unique<TeMatmul>();
}

}  // namespace octavo::engine::te
