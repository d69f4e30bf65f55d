#pragma once
// Operations by our own CUDA kernels (src/kernels, liboctavo_kernels.so), which a build without
// nvcc does not have. With kernels::host_kernels() in their place the same code runs on CPU
// tensors: tests do that. On the fake CUDA device, when it is told to compute, both are called: the
// device counts the launch, the host makes the numbers.

#include <memory>
#include <optional>
#include <string>

#include "engine/op_table.h"
#include "engine/ops.h"
#include "fp8/recipe.h"
#include "kernels/kernels.h"

namespace octavo::engine::own {

// Why they do not serve a target; "" when they do.
std::string refusal(const Target& target);
std::string refusal_but_bf16(const Target& target);  // of those for BF16 alone

std::unique_ptr<AdamW> make_adamw();
std::unique_ptr<AdamW> make_adamw(const OctavoKernels& kernels);
std::unique_ptr<CrossEntropy> make_cross_entropy();
std::unique_ptr<CrossEntropy> make_cross_entropy(const OctavoKernels& kernels);

// `others` serves rows that are too narrow or too wide for our kernels.
std::unique_ptr<LayerNorm> make_layer_norm(const OctavoKernels& kernels,
                                           std::unique_ptr<LayerNorm> others);
std::unique_ptr<RmsNorm> make_rms_norm(const OctavoKernels& kernels,
                                       std::unique_ptr<RmsNorm> others);
std::unique_ptr<Rope> make_rope();
std::unique_ptr<Rope> make_rope(const OctavoKernels& kernels);

// norm(x + delta) in one launch, in BF16, in E4M3 with one scale, or both.
struct NormInput {
  const at::Tensor &x, &delta, &gamma, &beta;  // BF16; delta may be undefined; beta: of LayerNorm
  double eps;
};
struct NormOutput {
  at::Tensor sum, normed, mean, rstd;  // normed may be undefined when there are codes
  at::Tensor codes, column_codes;      // bytes: of normed * scale, and the same transposed
  at::Tensor scale, inverse, amax;     // FP32 [1]; inverse becomes 1 / scale; amax may be undefined
};
// Room for the sum and the numbers of each row; the rest is the caller's.
NormOutput prepare_norm(const at::Tensor& x, const at::Tensor& delta, bool is_layer_norm);
void add_norm(const OctavoKernels& kernels, const NormInput& in, const NormOutput& out);

// A BF16 matrix to codes of x * scale: as they lie, transposed, or both.
struct QuantizeJob {
  at::Tensor x, codes, column_codes, scale, inverse, amax;  // as NormOutput's
};
void quantize(const OctavoKernels& kernels, fp8::Format format,
              const std::vector<QuantizeJob>& jobs);
// One, and sums[C] (+)= its column sums, FP32.
void quantize_and_sum(const OctavoKernels& kernels, fp8::Format format, const QuantizeJob& job,
                      at::Tensor& sums, Accumulate mode);

// The stats of fp8/health.h of a BF16 matrix on a GPU and its codes, FP64 on its device; nothing
// where our kernels do not serve it.
std::optional<at::Tensor> fp8_stats(const at::Tensor& x, const at::Tensor& codes,
                                    const at::Tensor& decode, fp8::Format format,
                                    const fp8::Grid& grid);

}  // namespace octavo::engine::own
