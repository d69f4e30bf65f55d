#pragma once
// The three GEMMs of a linear layer, by cuBLASLt as the library calls it.

#include <ATen/core/Tensor.h>

#include <map>

#include "engine/fp8_linear.h"
#include "engine/te/layout.h"

namespace octavo::engine::te {

// Working memory of GEMMs, by device and stream: those on one stream follow each other and can
// share it.
class GemmWorkspace {
 public:
  at::Tensor of(const OnDevice& on);

 private:
  std::map<std::pair<at::DeviceIndex, cudaStream_t>, at::Tensor> memory_;
};

class LinearGemms {
 public:
  void forward(const Fp8Matrix& x, const Fp8Matrix& w, const at::Tensor& bias, at::Tensor& y);
  void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, at::Tensor& dx);
  void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, at::Tensor& dw, Accumulate mode);

 private:
  // d = b a, or b a^T …, of stored matrices: see the table in linear_gemms.cpp.
  struct Call {
    const char* name;
    const Fp8Matrix& a;
    fp8::Direction a_copy;
    bool a_transposed;
    const Fp8Matrix& b;
    fp8::Direction b_copy;
    bool b_transposed;
    int64_t rows, columns, summed;  // of the result, and of the sum; summed by both operands
    bool forward;
  };
  void multiply(const Call& call, const at::Tensor& bias, at::Tensor& d, Accumulate mode);

  GemmWorkspace workspace_;
};

}  // namespace octavo::engine::te
