#pragma once
// FP8 GEMMs on the fake CUDA device: matrices are quantized and laid out on the CPU by
// the backend's own code, copied to the device, multiplied there (by the host, as cuBLASLt was
// told), and compared with the reference.

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/fp8_linear.h"

namespace octavo::gemms {

struct Shape {
  int64_t tokens, in, out;
};

enum class GemmKind { kForward, kInputGradient, kWeightGradient };
inline const char* name_of(GemmKind p) {
  return p == GemmKind::kForward         ? "forward"
         : p == GemmKind::kInputGradient ? "input gradient"
                                         : "weight gradient";
}

// One way to do the GEMMs. `quantize` works in the CPU's memory and gives what the op's GEMMs
// read once it is copied to the device.
struct Backend {
  std::string name;
  int capability = 90;
  bool is_native = true;  // not of the rehearsal: its GEMMs are BF16
  std::function<engine::Fp8Matrix(const at::Tensor& x, fp8::Recipe, const engine::QuantizeSpec& row,
                                  const engine::QuantizeSpec& column)>
      quantize;
  std::shared_ptr<engine::Fp8Linear> op;
  // Whether it has such GEMMs at all; empty: all that the recipe allows.
  std::function<bool(fp8::Recipe, const Shape&)> serves;
};
// Fails when there is no such backend.
Backend make_backend(const std::string& name, int capability);
Backend make_te_backend(int capability);

// Both operands of a GEMM on the CPU, and what the GEMM must give (FP64).
struct Problem {
  GemmKind gemm;
  fp8::Recipe recipe;
  Shape shape;
  engine::Fp8Matrix left, right;  // as forward(), input_gradient() or weight_gradient() take them
  at::Tensor bias;                // of forward, or undefined
  at::Tensor before;              // of the weight gradient: what is added to, or undefined
  at::ScalarType result = at::kBFloat16;
  at::Tensor wanted, slack;
};

// What the call must have said, in CUDA's column-major reading: see the table of the sheet.
struct WantedCall {
  int64_t m, n, k, lda, ldb;
  int32_t op_a, op_b;  // 0 N, 1 T
  int32_t type_a, type_b, type_d;
  int32_t mode_a, mode_b;  // cublasLtMatmulMatrixScale_t
  int32_t fast, epilogue;
  float beta;
};
WantedCall wanted_call(const Problem& problem, int capability);

// Which copy of each operand a GEMM reads.
fp8::Direction left_copy(GemmKind gemm);
fp8::Direction right_copy(GemmKind gemm);
std::string text_of(const Problem& problem);

// M, N and K of a GEMM out[M,N] = left[M,K] right[K,N].
struct Extents {
  int64_t m, n, k;
};
Extents extents_of(const Problem& problem);
int64_t up_to(int64_t size, int64_t multiple);

// One scale per row has no cuBLASLt GEMM above 9.0: libtorch takes a kernel of its own, which
// does not run here.
bool is_computed(const Problem& problem, const Backend& backend);

struct Tally {
  int64_t cases = 0, failed = 0, mutations = 0, caught = 0;
  void check(bool passed, const std::string& what, const std::string& found = "");
};

// Runs a problem on the device. "" when the result is right, else what is wrong; a refusal is
// wrong.
std::string run_on_device(const Backend& backend, const Problem& problem);

std::vector<Problem> problems_of(const Backend& backend);
void check_calls(const Backend& backend, const Problem& problem, Tally& tally);
void check_mutations(const Backend& backend, const Problem& problem, Tally& tally);
// The GEMMs of ops.h, in BF16.
void check_bf16_gemms(Tally& tally);

}  // namespace octavo::gemms
