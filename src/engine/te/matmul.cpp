#include <ATen/ATen.h>

#include <initializer_list>

#include "base/error.h"
#include "engine/aten/aten.h"
#include "engine/te/linear_gemms.h"
#include "engine/te/te.h"
#include "engine/te/vectors.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;

// libtorch's GEMMs, and the library's where cuBLASLt does more, for which libtorch has no call: it
// sums the columns of dy while it reads them for a weight's gradient, and has GELU and its gradient
// at the end of a GEMM.
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

  bool fuses_gelu() const override { return true; }
  void forward_gelu(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& h,
                    Tensor& y) override {
    check_operands(x, w, x.size(1) == w.size(1));
    check_results({x.size(0), w.size(0)}, {h, y});
    check_vector("the bias", bias, y);
    if (y.numel() == 0) return;
    const OnDevice on(x);
    const Handle a(w), b(x), d(y), added(bias), kept(h);
    MatmulConfig config(/*split_accumulator=*/true, &added);
    config.set_gelu(kept);
    multiply(/*transposed_a=*/true, a, b, d, config, on);
  }
  void input_gradient_gelu(const Tensor& dy, const Tensor& w, const Tensor& h,
                           Tensor& dh) override {
    check_operands(dy, w, dy.size(1) == w.size(0));
    check_results({dy.size(0), w.size(1)}, {h, dh});
    if (dh.numel() == 0) return;
    const OnDevice on(dy);
    const Handle a(w), b(dy), d(dh), input(h);
    MatmulConfig config(/*split_accumulator=*/true, nullptr);
    config.set_gelu_gradient(input);
    multiply(/*transposed_a=*/false, a, b, d, config, on);
  }

 private:
  static void check_operands(const Tensor& rows, const Tensor& w, bool fits) {
    check_matrix("an operand", rows);
    check_matrix("the weight", w);
    OCTAVO_ASSERT(fits);
  }
  // The library does not look at them.
  static void check_results(at::IntArrayRef sizes, std::initializer_list<Tensor> results) {
    for (const Tensor& t : results) {
      check_matrix("a result", t);
      OCTAVO_ASSERT(t.sizes() == sizes);
    }
  }
  void multiply(bool transposed_a, const Handle& a, const Handle& b, const Handle& d,
                const MatmulConfig& config, const OnDevice& on) {
    const Handle working(workspace_.of(on));
    const float one = 1, none = 0;
    library().nvte_cublas_gemm_v2(transposed_a, false, &one, a, b, &none, d, d, working, config,
                                  on.stream);
  }

  std::unique_ptr<Matmul> plain_ = aten::make_matmul();
  GemmWorkspace workspace_;
};

}  // namespace

std::unique_ptr<Matmul> make_matmul() {
  return std::make_unique<TeMatmul>();
}

}  // namespace octavo::engine::te
