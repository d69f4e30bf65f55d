#pragma once
// A stand-in for Transformer Engine's library in the CPU's memory: the functions that src/engine/te
// calls, over the reference quantizers of src/fp8 and the CPU operations of src/engine. Copies lie
// in memory as the real library has them; the code that says how is written again here, from the
// library's documents, and shared with nobody.
//
// What differs from the real library, on purpose:
// - A norm or activation that quantizes goes through BF16, as the rehearsal does. The real one
//   quantizes the FP32 value that it has in a register.
// - Vectors (gamma, beta, biases and their gradients) may be FP32, as they are on CPUs.

#include <ATen/ATen.h>
#include <transformer_engine/transformer_engine.h>

#include <array>
#include <set>
#include <stdexcept>
#include <string>

#include "engine/fp8_linear.h"
#include "fp8/recipe.h"

namespace te_double {

using octavo::engine::Fp8Matrix;
using octavo::fp8::Direction;

int capability();  // OCTAVO_TE_DOUBLE_CAPABILITY; 90 when it is not set
// Per-tensor GEMMs take operands in any layout.
inline bool any_layout() {
  return capability() >= 100 && (capability() < 120 || capability() >= 130);
}

// Counted under the function's name; see te_double_counts.h.
void count_call(const char* name);

inline void check(bool met, const std::string& what) {
  if (!met) throw std::runtime_error("te_double: " + what);
}

struct Tensor {
  NVTEScalingMode mode = NVTE_DELAYED_TENSOR_SCALING;
  std::array<NVTEBasicTensor, kNVTENumTensorParams> params{};
  bool swizzled = false;

  const NVTEBasicTensor& of(NVTETensorParam param) const { return params[param]; }
  bool has(NVTETensorParam param) const { return params[param].data_ptr != nullptr; }
  bool is_fp8() const;
  bool is_fp4() const { return mode == NVTE_NVFP4_1D_SCALING; }
};
Tensor& tensor(NVTETensor handle);

// The memory of a tensor that is not quantized, or of one of its parts.
at::Tensor view(const NVTEBasicTensor& basic);
at::Tensor view(NVTETensor handle);  // its row data
float* number(const Tensor& t, NVTETensorParam param);

struct Sizes {
  int64_t rows, columns;
};
Sizes sizes_of(const Tensor& t);  // of the matrix that a quantized tensor stands for
octavo::fp8::Format format_of(const Tensor& t);

// Fills every copy that the tensor has room for.
void quantize(const at::Tensor& values, Tensor& out);
// NVFP4 (nvfp4.cpp): the same, by `config`; and a copy for the rehearsal's GEMMs.
struct QuantizationConfig;
void quantize_nvfp4(const at::Tensor& values, Tensor& out, const QuantizationConfig& config);
Fp8Matrix read_nvfp4(const Tensor& t, bool column_storage, Direction direction);
// The numbers to where the call wants them: BF16, or quantized.
void put(const at::Tensor& values, Tensor& out);

// The codes and scales of a copy in plain order, as the matrix's copy of `direction`.
Fp8Matrix read_copy(const Tensor& t, bool column_storage, Direction direction);

// Where column copies were written last. GEMMs of blocks of 128 as blocks of 32 are given row
// copies alone; this tells which of them are of a transposed matrix.
std::set<const void*>& column_codes();
// The scales of `in`, of blocks of 128, for the blocks of 32 of `out`.
void to_blocks_of_32(const Tensor& in, Tensor& out);

}  // namespace te_double
