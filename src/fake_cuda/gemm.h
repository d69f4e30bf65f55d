// GEMMs: what is refused, what is recorded, and the host's way to compute one.
#pragma once
#include <cublas_v2.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fake_cuda/fake_cuda.h"

namespace octavo::fake_cuda {

inline constexpr int kBlock = 128;  // elements of an FP32 block scale
inline constexpr int kMxBlock = 32;

bool is_fp8(int type);
bool is_fp4(int type);        // recorded and judged, never computed
int element_bytes(int type);  // 0: a type that is unknown here, or has half a byte

// Numbers of every type that a GEMM can have, one at a time.
float load_element(const void* data, int type, std::int64_t index);
void store_element(void* data, int type, std::int64_t index, float value);

// How an operand's stored elements are reached: `outer` counts rows of op(A) or columns of op(B),
// `inner` the contracted dimension.
struct Strides {
  std::int64_t outer_stride, inner_stride;
};
Strides left_strides(const GemmOperand& a);   // op(A)
Strides right_strides(const GemmOperand& b);  // op(B)

// What an operand's scales say; sizes are those of the operand, not padded.
struct ScaleView {
  const void* data;
  int mode;
  std::int64_t outer, inner;

  float whole(std::int64_t at) const;  // factor of a whole row: tensor and row scales
  float block(std::int64_t at, std::int64_t inner_block) const;  // factor of a block of 128
  float mx_block(std::int64_t at,
                 std::int64_t inner_block) const;  // factor of a block of 32, from the tiled layout
  // Scales of padding take part in the GEMM as 0 * scale: a NaN there is a NaN in the result.
  bool padding_is_nan(std::int64_t at) const;
};

// Why real cuBLASLt would refuse, by its documentation; empty when it would not. `pointers` asks
// for their alignment too, which a heuristic cannot see.
struct Refusal {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  std::string reason;
};
Refusal refusal_of(const Gemm& gemm, bool pointers);

// Records the GEMM and, when the device computes, does it; on a stream under capture both wait
// for the launch.
cublasStatus_t submit_gemm(const Gemm& gemm);

// D = epilogue(alpha * op(A) op(B) + beta * C), accumulated in FP32.
void compute_gemm(const Gemm& gemm);

}  // namespace octavo::fake_cuda
