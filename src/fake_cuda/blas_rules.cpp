// What cuBLASLt refuses. The rules of FP8 GEMMs come from its documentation; other types have
// none that matter here.
#include <cublasLt.h>

#include <cstdint>

#include "fake_cuda/device.h"
#include "fake_cuda/gemm.h"

namespace octavo::fake_cuda {
namespace {

Refusal unsupported(const std::string& reason) {
  return {CUBLAS_STATUS_NOT_SUPPORTED, reason};
}
Refusal invalid(const std::string& reason) {
  return {CUBLAS_STATUS_INVALID_VALUE, reason};
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}
bool is_aligned(const GemmOperand& x) {
  return x.ld * element_bytes(x.type) % 16 == 0;
}

Refusal refusal_of_shapes(const Gemm& g) {
  const auto fits = [](const GemmOperand& x) {
    return x.ld >= (x.order == CUBLASLT_ORDER_ROW ? x.cols : x.rows);
  };
  if (!fits(g.a) || !fits(g.b) || !fits(g.d) || (g.beta != 0 && !fits(g.c)))
    return invalid("a leading dimension is too small");
  if (g.d.rows != g.m || g.d.cols != g.n) return invalid("D has another shape than op(A) op(B)");
  const std::int64_t inner_of_b = g.b.op == CUBLAS_OP_N ? g.b.rows : g.b.cols;
  if (inner_of_b != g.k) return invalid("op(A) and op(B) do not fit each other");
  for (const GemmOperand* x : {&g.a, &g.b, &g.d}) {
    if (element_bytes(x->type) == 0 && !is_fp4(x->type))
      return unsupported("an element type that the fake CUDA device does not know");
  }
  return {};
}

Refusal refusal_of_modes(const Gemm& g, int capability) {
  const int a = g.a.scale_mode;
  const int b = g.b.scale_mode;
  const auto block = [](int mode) {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
           mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  };
  if (block(a) || block(b)) {
    if (capability != 90) return unsupported("blocks of 128 exist on 9.0 only");
    if (!block(a) || !block(b)) return unsupported("blocks of 128 on one side only");
    if (a == b && a == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
      return unsupported("128x128 on both sides");
    if (a == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F && g.m % 4 != 0)
      return unsupported("m is no multiple of 4");
    if (b == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F && g.n % 4 != 0)
      return unsupported("n is no multiple of 4");
  } else if (a != b) {
    return unsupported("A and B have different scale modes");
  } else if (a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F && capability != 90) {
    return unsupported("row scales exist on 9.0 only");
  } else if (a == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 && capability < 100) {
    return unsupported("blocks of 32 need 10.0");
  } else if (a != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
             a != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F &&
             a != CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0) {
    return unsupported("a scale mode that the fake CUDA device does not know");
  }
  if (a != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) {
    if (g.a.scale == nullptr || g.b.scale == nullptr) return invalid("a scale pointer is null");
    if (!is_aligned(g.a.scale) || !is_aligned(g.b.scale))
      return invalid("a scale pointer is not aligned to 16 bytes");
    if (is_fp8(g.d.type)) return unsupported("FP8 output needs tensor scales");
  }
  return {};
}

Refusal refusal_of_pointers(const Gemm& g) {
  const void* const used[] = {g.a.data, g.b.data, g.d.data, g.beta != 0 ? g.c.data : nullptr,
                              g.bias};
  for (const void* pointer : used) {
    if (!is_aligned(pointer)) return unsupported("a pointer is not aligned to 16 bytes");
  }
  return {};
}

Refusal refusal_of_fp8(const Gemm& g, bool pointers) {
  const int capability = options().capability;
  if (capability < 89) return unsupported("FP8 needs 8.9");
  if (!is_fp8(g.a.type) || !is_fp8(g.b.type)) return unsupported("FP8 with another type");
  if (g.a.type == CUDA_R_8F_E5M2 && g.b.type == CUDA_R_8F_E5M2) return unsupported("E5M2 x E5M2");
  const bool any_layout = capability >= 100 && capability < 120;
  if (!any_layout && (g.a.op != CUBLAS_OP_T || g.b.op != CUBLAS_OP_N)) {
    return unsupported("FP8 wants A transposed and B not, on this compute capability");
  }
  if (g.compute_type != CUBLAS_COMPUTE_32F) return unsupported("FP8 accumulates in FP32");
  if (!is_aligned(g.a) || !is_aligned(g.b) || !is_aligned(g.d) ||
      (g.beta != 0 && !is_aligned(g.c))) {
    return unsupported("a leading dimension is no multiple of 16 bytes");
  }
  if (g.k % 16 != 0) return unsupported("k is no multiple of 16");
  if (Refusal refusal = refusal_of_modes(g, capability); refusal.status != CUBLAS_STATUS_SUCCESS)
    return refusal;
  return pointers ? refusal_of_pointers(g) : Refusal{};
}

// NVFP4, as cuBLASLt's documentation and Transformer Engine's calls have it.
Refusal refusal_of_fp4(const Gemm& g, bool pointers) {
  const int capability = options().capability;
  if (options().compute) return unsupported("the fake CUDA device does not compute FP4");
  if (capability < 100) return unsupported("FP4 needs 10.0");
  if (!is_fp4(g.a.type) || !is_fp4(g.b.type)) return unsupported("FP4 with another type");
  if (g.a.op != CUBLAS_OP_T || g.b.op != CUBLAS_OP_N)
    return unsupported("FP4 wants A transposed and B not");
  if (g.compute_type != CUBLAS_COMPUTE_32F) return unsupported("FP4 accumulates in FP32");
  if (g.fast_accumulate != 0) return unsupported("FP4 has no fast accumulation");
  if (g.d.type != CUDA_R_16BF && g.d.type != CUDA_R_32F)
    return unsupported("FP4 gives BF16 or FP32");
  // 16 bytes are 32 elements.
  if (g.k % 32 != 0 || g.a.ld % 32 != 0 || g.b.ld % 32 != 0)
    return unsupported("k or a leading dimension is no multiple of 32");
  if (!is_aligned(g.d) || (g.beta != 0 && !is_aligned(g.c)))
    return unsupported("a leading dimension of the result is no multiple of 16 bytes");
  for (const GemmOperand* x : {&g.a, &g.b}) {
    if (x->scale_mode != CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3)
      return unsupported("FP4 wants E4M3 scales of blocks of 16");
    if (x->scale == nullptr || !is_aligned(x->scale))
      return invalid("a scale pointer is null or not aligned to 16 bytes");
  }
  return pointers ? refusal_of_pointers(g) : Refusal{};
}

}  // namespace

Refusal refusal_of(const Gemm& gemm, bool pointers) {
  if (Refusal refusal = refusal_of_shapes(gemm); refusal.status != CUBLAS_STATUS_SUCCESS)
    return refusal;
  if (is_fp4(gemm.a.type) || is_fp4(gemm.b.type)) return refusal_of_fp4(gemm, pointers);
  if (is_fp8(gemm.a.type) || is_fp8(gemm.b.type)) return refusal_of_fp8(gemm, pointers);
  return {};
}

}  // namespace octavo::fake_cuda
