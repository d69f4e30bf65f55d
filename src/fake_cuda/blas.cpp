// cuBLAS: handles, and the GEMMs that ATen asks of it.
#include "fake_cuda/device.h"
#include "fake_cuda/gemm.h"
#include "fake_cuda/record.h"

using namespace octavo::fake_cuda;

struct cublasContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  std::size_t workspace = 0;
};

namespace octavo::fake_cuda {

cublasStatus_t submit_gemm(const Gemm& gemm) {
  const auto stream = reinterpret_cast<cudaStream_t>(gemm.stream);
  Event event = make_event(Kind::kGemm, gemm.entry, stream);
  event.device = gemm.device;
  Gemm kept = gemm;
  kept.computed = options().compute ? 1 : 0;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &capture);
  kept.captured = capture == cudaStreamCaptureStatusNone ? 0 : 1;
  if (kept.captured == 1) record_gemm(kept);  // and again at each launch, then as one that ran
  const cudaError_t error = submit(stream, event, [ran = kept]() mutable {
    ran.captured = 0;
    record_gemm(ran);
    if (ran.computed == 1) compute_gemm(ran);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace octavo::fake_cuda

namespace {

struct Plain {
  cublasOperation_t op_a, op_b;
  std::int64_t m, n, k;
  const void *alpha, *beta;
  cublasComputeType_t compute;
  std::int64_t batch_count = 1;
};

template <typename Pointer>
struct Matrix {
  Pointer data;
  int type;
  std::int64_t ld;
  std::int64_t stride = 0;
};

template <typename Pointer>
GemmOperand operand_of(const Matrix<Pointer>& x, cublasOperation_t op, std::int64_t rows,
                       std::int64_t cols) {
  GemmOperand result{};
  result.data = x.data;
  result.type = x.type;
  result.ld = x.ld;
  result.batch_stride = x.stride;
  result.op = op == CUBLAS_OP_N ? CUBLAS_OP_N : CUBLAS_OP_T;
  result.rows = op == CUBLAS_OP_N ? rows : cols;
  result.cols = op == CUBLAS_OP_N ? cols : rows;
  return result;
}

// A scalar in device memory is readable here as well as one of the host: the device's memory is the
// host's.
float scalar(const void* pointer, cublasComputeType_t compute) {
  if (pointer == nullptr) return 0;
  if (compute == CUBLAS_COMPUTE_64F)
    return static_cast<float>(*static_cast<const double*>(pointer));
  if (compute == CUBLAS_COMPUTE_16F) return load_element(pointer, CUDA_R_16F, 0);
  return *static_cast<const float*>(pointer);
}

cublasStatus_t multiply(const char* entry, cublasHandle_t handle, const Plain& p,
                        const Matrix<const void*>& a, const Matrix<const void*>& b,
                        const Matrix<void*>& c) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (p.m < 0 || p.n < 0 || p.k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (p.m == 0 || p.n == 0 || p.batch_count == 0) return CUBLAS_STATUS_SUCCESS;
  Gemm gemm{};
  gemm.entry = entry;
  gemm.stream = reinterpret_cast<std::uint64_t>(handle->stream);
  gemm.device = handle->device;
  gemm.compute_type = p.compute;
  gemm.m = p.m;
  gemm.n = p.n;
  gemm.k = p.k;
  gemm.batch_count = p.batch_count;
  gemm.a = operand_of(a, p.op_a, p.m, p.k);
  gemm.b = operand_of(b, p.op_b, p.k, p.n);
  gemm.c = gemm.d = operand_of(c, CUBLAS_OP_N, p.m, p.n);
  gemm.output = c.data;
  gemm.alpha = scalar(p.alpha, p.compute);
  gemm.beta = scalar(p.beta, p.compute);
  gemm.epilogue = 1;
  gemm.workspace = handle->workspace;
  const Refusal refusal = refusal_of(gemm, true);
  if (refusal.status != CUBLAS_STATUS_SUCCESS) {
    say(std::string(entry) + " refused: " + refusal.reason);
    return refusal.status;
  }
  return submit_gemm(gemm);
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (options().devices == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext{.device = current_device()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->workspace = 0;  // as cuBLAS does: back to its own
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void*, std::size_t bytes) {
  handle->workspace = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle->math_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = handle->pointer_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                            int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  return multiply("cublasGemmEx", handle, {op_a, op_b, m, n, k, alpha, beta, compute},
                  {a, a_type, lda}, {b, b_type, ldb}, {c, c_type, ldc});
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int lda, long long a_stride, const void* b,
                                          cudaDataType b_type, int ldb, long long b_stride,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long c_stride, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  return multiply("cublasGemmStridedBatchedEx", handle,
                  {op_a, op_b, m, n, k, alpha, beta, compute, count}, {a, a_type, lda, a_stride},
                  {b, b_type, ldb, b_stride}, {c, c_type, ldc, c_stride});
}

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                             int m, int n, int k, const float* alpha, const void* a,
                             cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                             int ldb, const float* beta, void* c, cudaDataType c_type, int ldc) {
  return multiply("cublasSgemmEx", handle, {op_a, op_b, m, n, k, alpha, beta, CUBLAS_COMPUTE_32F},
                  {a, a_type, lda}, {b, b_type, ldb}, {c, c_type, ldc});
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                              int m, int n, int k, const float* alpha, const float* a, int lda,
                              const float* b, int ldb, const float* beta, float* c, int ldc) {
  return multiply("cublasSgemm", handle, {op_a, op_b, m, n, k, alpha, beta, CUBLAS_COMPUTE_32F},
                  {a, CUDA_R_32F, lda}, {b, CUDA_R_32F, ldb}, {c, CUDA_R_32F, ldc});
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a,
                                         cublasOperation_t op_b, int m, int n, int k,
                                         const float* alpha, const float* a, int lda,
                                         long long a_stride, const float* b, int ldb,
                                         long long b_stride, const float* beta, float* c, int ldc,
                                         long long c_stride, int count) {
  return multiply("cublasSgemmStridedBatched", handle,
                  {op_a, op_b, m, n, k, alpha, beta, CUBLAS_COMPUTE_32F, count},
                  {a, CUDA_R_32F, lda, a_stride}, {b, CUDA_R_32F, ldb, b_stride},
                  {c, CUDA_R_32F, ldc, c_stride});
}

}  // extern "C"
