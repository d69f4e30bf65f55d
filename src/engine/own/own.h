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

// The stats of fp8/health.h of a BF16 matrix on a GPU and its codes, FP64 on its device; nothing
// where our kernels do not serve it.
std::optional<at::Tensor> fp8_stats(const at::Tensor& x, const at::Tensor& codes,
                                    const at::Tensor& decode, fp8::Format format,
                                    const fp8::Grid& grid);

}  // namespace octavo::engine::own
