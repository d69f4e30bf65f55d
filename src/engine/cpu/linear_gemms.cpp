#include "engine/cpu/linear_gemms.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace octavo::engine::cpu {
namespace {

// The head's input gradient, [1024, 50304] x [50304, 768], took 146 to 187 ms with the kernel that
// oneDNN 3.2 picks for dense operands, and 120 to 140 ms in parts of 1,572 to 12,576 columns, which
// are strided and make it take another one. Only this shape was tried; where the change pays is not
// known.
constexpr int64_t kLongestSum = 12608;

}  // namespace

void LinearGemms::forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                          at::Tensor& y, float scale) {
  const int64_t inputs = x.size(1), outputs = w.size(0);
  multiply({.m = x.size(0),
            .n = outputs,
            .k = inputs,
            .lda = inputs,
            .ldb = inputs,
            .ldc = outputs,
            .b_transposed = true,
            .bias = bias.defined()},
           x, w, bias, y, scale);
}

void LinearGemms::input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx,
                                 float scale) {
  const int64_t rows = dy.size(0), outputs = dy.size(1), inputs = w.size(1);
  GemmShape shape{
      .m = rows, .n = inputs, .k = outputs, .lda = outputs, .ldb = inputs, .ldc = inputs};
  if (outputs <= kLongestSum) {
    multiply(shape, dy, w, {}, dx, scale);
    return;
  }
  at::Tensor sum = at::empty({rows, inputs}, dx.options().dtype(at::kFloat));
  shape.fp32_result = true;
  for (int64_t first = 0; first < outputs; first += kLongestSum) {
    shape.k = std::min(kLongestSum, outputs - first);
    shape.add = first > 0;
    multiply(shape, dy.narrow(1, first, shape.k), w.narrow(0, first, shape.k), {}, sum, scale);
  }
  dx.copy_(sum);
}

void LinearGemms::weight_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                                  Accumulate mode, float scale) {
  multiply(of_weight_gradient(dy, x.size(1), dw, mode), dy, x, {}, dw, scale);
}

bool LinearGemms::weight_gradient(const at::Tensor& dy, int64_t inputs, const WriteB& write_x,
                                  at::Tensor& dw, Accumulate mode, float scale) {
  GemmShape shape = of_weight_gradient(dy, inputs, dw, mode);
  shape.scaled = scale != 1;
  shape.one_thread = at::in_parallel_region();
  const Gemm& gemm = gemms_.get(shape);
  const PairedLayout* layout = gemm.layout_of_b();
  if (layout == nullptr) return false;
  at::Tensor scratch = at::empty({static_cast<int64_t>(scratch_bytes(gemm))}, at::kByte);
  write_x(*layout, static_cast<uint16_t*>(scratch.mutable_data_ptr()));
  run(gemm, dy.const_data_ptr(), nullptr, nullptr, dw.mutable_data_ptr(),
      scratch.mutable_data_ptr(), scale);
  return true;
}

GemmShape LinearGemms::of_weight_gradient(const at::Tensor& dy, int64_t inputs,
                                          const at::Tensor& dw, Accumulate mode) {
  const int64_t outputs = dy.size(1);
  return {.m = outputs,
          .n = inputs,
          .k = dy.size(0),
          .lda = outputs,
          .ldb = inputs,
          .ldc = inputs,
          .a_transposed = true,
          .fp32_result = dw.scalar_type() == at::kFloat,
          .add = mode == Accumulate::kAdd};
}

void LinearGemms::multiply(GemmShape shape, const at::Tensor& a, const at::Tensor& b,
                           const at::Tensor& bias, at::Tensor& c, float scale) {
  shape.scaled = scale != 1;
  shape.one_thread = at::in_parallel_region();  // as one of several groups: groups.h
  const Gemm& gemm = gemms_.get(shape);
  at::Tensor scratch = at::empty({static_cast<int64_t>(scratch_bytes(gemm))}, at::kByte);
  run(gemm, a.const_data_ptr(), b.const_data_ptr(),
      bias.defined() ? bias.const_data_ptr() : nullptr, c.mutable_data_ptr(),
      scratch.mutable_data_ptr(), scale);
}

}  // namespace octavo::engine::cpu
