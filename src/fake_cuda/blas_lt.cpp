// cuBLASLt. Descriptors and layouts are made by the real library, which keeps and checks their
// attributes without a device; they are read back here when a GEMM is asked for.
#include <cublasLt.h>
#include <dlfcn.h>

#include <cstring>
#include <type_traits>

#include "fake_cuda/device.h"
#include "fake_cuda/gemm.h"
#include "fake_cuda/record.h"

using namespace octavo::fake_cuda;

namespace {

struct RealLibrary {
  decltype(&cublasLtMatmulDescGetAttribute) desc_attribute = nullptr;
  decltype(&cublasLtMatrixLayoutGetAttribute) layout_attribute = nullptr;
};

// Whoever calls cuBLASLt has loaded it.
const RealLibrary& real() {
  static const RealLibrary library = [] {
    RealLibrary found;
    void* const handle = dlopen("libcublasLt.so.13", RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
      say("wanted libcublasLt.so.13 in this process for its descriptors, found none");
      std::abort();
    }
    found.desc_attribute = reinterpret_cast<decltype(found.desc_attribute)>(
        dlsym(handle, "cublasLtMatmulDescGetAttribute"));
    found.layout_attribute = reinterpret_cast<decltype(found.layout_attribute)>(
        dlsym(handle, "cublasLtMatrixLayoutGetAttribute"));
    return found;
  }();
  return library;
}

template <typename T>
T attribute_of(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  const cublasStatus_t status =
      real().desc_attribute(desc, attribute, &value, sizeof value, &written);
  if (status != CUBLAS_STATUS_SUCCESS)
    record_unexpected("cublasLtMatmulDesc, an attribute could not be read");
  return value;
}

template <typename T>
T attribute_of(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute) {
  T value{};
  std::size_t written = 0;
  const cublasStatus_t status =
      real().layout_attribute(layout, attribute, &value, sizeof value, &written);
  if (status != CUBLAS_STATUS_SUCCESS)
    record_unexpected("cublasLtMatrixLayout, an attribute could not be read");
  return value;
}

GemmOperand operand_of_layout(cublasLtMatrixLayout_t layout, const void* data) {
  GemmOperand x{};
  x.data = data;
  x.type =
      static_cast<std::int32_t>(attribute_of<std::uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE));
  x.order = attribute_of<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER);
  x.rows =
      static_cast<std::int64_t>(attribute_of<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS));
  x.cols =
      static_cast<std::int64_t>(attribute_of<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS));
  x.ld = attribute_of<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD);
  x.batch_stride = attribute_of<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  return x;
}

// The type of the bias, when the descriptor leaves it open.
std::int32_t usual_bias_type(const Gemm& g) {
  if (!is_fp8(g.a.type)) return g.d.type;
  return g.d.type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
}

void read_epilogue(cublasLtMatmulDesc_t desc, Gemm* g) {
  g->epilogue =
      static_cast<std::int32_t>(attribute_of<std::uint32_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE));
  g->bias_type = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  if (g->bias_type < 0) g->bias_type = usual_bias_type(*g);
  g->aux_type = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE);
  if (g->aux_type < 0) g->aux_type = g->d.type;
  if (g->epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
  g->bias = attribute_of<void*>(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  g->aux = attribute_of<void*>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  g->aux_ld = attribute_of<std::int64_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
}

struct Layouts {
  cublasLtMatrixLayout_t a, b, c, d;
};
struct Pointers {
  const void *a = nullptr, *b = nullptr, *c = nullptr, *d = nullptr;
};

Gemm read_gemm(const char* entry, cublasLtMatmulDesc_t desc, const Layouts& layouts,
               const Pointers& pointers) {
  Gemm g{};
  g.entry = entry;
  g.device = current_device();
  g.a = operand_of_layout(layouts.a, pointers.a);
  g.b = operand_of_layout(layouts.b, pointers.b);
  g.c = operand_of_layout(layouts.c, pointers.c);
  g.d = operand_of_layout(layouts.d, pointers.d);
  g.batch_count = attribute_of<std::int32_t>(layouts.d, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  g.a.op = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_N
               ? CUBLAS_OP_N
               : CUBLAS_OP_T;
  g.b.op = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_N
               ? CUBLAS_OP_N
               : CUBLAS_OP_T;
  g.m = g.a.op == CUBLAS_OP_N ? g.a.rows : g.a.cols;
  g.k = g.a.op == CUBLAS_OP_N ? g.a.cols : g.a.rows;
  g.n = g.b.op == CUBLAS_OP_N ? g.b.cols : g.b.rows;
  g.compute_type = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  g.a.scale_mode = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
  g.b.scale_mode = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
  g.a.scale = attribute_of<const void*>(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
  g.b.scale = attribute_of<const void*>(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  g.c.scale = attribute_of<const void*>(desc, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER);
  g.d.scale = attribute_of<const void*>(desc, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
  g.amax_d = attribute_of<void*>(desc, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER);
  g.fast_accumulate = attribute_of<std::int8_t>(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
  read_epilogue(desc, &g);
  return g;
}

float read_scalar(const void* pointer, int scale_type) {
  return pointer == nullptr ? 0 : load_element(pointer, scale_type, 0);
}

}  // namespace

struct cublasLtContext {
  int device;
};

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (options().devices == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}  // it may be a cuBLAS handle

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  const Refusal refusal =
      refusal_of(read_gemm("cublasLtMatmulAlgoGetHeuristic", desc, {a, b, c, d}, {}), false);
  if (refusal.status != CUBLAS_STATUS_SUCCESS) {
    say("cublasLtMatmulAlgoGetHeuristic refused: " + refusal.reason);
    return refusal.status;
  }
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  std::memset(results, 0, sizeof *results);
  results->state = CUBLAS_STATUS_SUCCESS;
  results->wavesCount = 1;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  Gemm gemm =
      read_gemm("cublasLtMatmul", desc, {a_layout, b_layout, c_layout, d_layout}, {a, b, c, d});
  gemm.stream = reinterpret_cast<std::uint64_t>(stream);
  gemm.output = d;
  gemm.workspace = workspace_bytes;
  const auto mode = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE);
  if (mode != CUBLASLT_POINTER_MODE_HOST && mode != CUBLASLT_POINTER_MODE_DEVICE) {
    record_unexpected("cublasLtMatmul with a vector of alphas");
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto scale_type = attribute_of<std::int32_t>(desc, CUBLASLT_MATMUL_DESC_SCALE_TYPE);
  gemm.alpha = read_scalar(alpha, scale_type);
  gemm.beta = read_scalar(beta, scale_type);
  const Refusal refusal = refusal_of(gemm, true);
  if (refusal.status != CUBLAS_STATUS_SUCCESS) {
    say("cublasLtMatmul refused: " + refusal.reason);
    return refusal.status;
  }
  return submit_gemm(gemm);
}

// Algorithms are all alike here.
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t,
                                      cudaDataType_t, cudaDataType_t, cudaDataType_t,
                                      cudaDataType_t, int, cublasLtMatmulAlgo_t* algo) {
  std::memset(algo, 0, sizeof *algo);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t*,
                                       cublasLtMatmulHeuristicResult_t* result) {
  std::memset(result, 0, sizeof *result);
  result->wavesCount = 1;
  result->state =
      refusal_of(read_gemm("cublasLtMatmulAlgoCheck", desc, {a, b, c, d}, {}), false).status;
  return result->state;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* value, std::size_t bytes,
                                                    std::size_t* written) {
  if (value != nullptr) std::memset(value, 0, bytes);
  if (written != nullptr) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
