#pragma once
// What norms and activations share: vectors beside a matrix, which the library takes and gives in
// the matrix's dtype. (In the CPU's memory, with a stand-in for the library, vectors are FP32: see
// ops.h.)

#include <ATen/core/Tensor.h>

#include "engine/ops.h"
#include "engine/te/library.h"
#include "engine/te/tensor.h"

namespace octavo::engine::te {

// A BF16 matrix on the library's device, contiguous and aligned; fails otherwise.
void check_matrix(const char* what, const at::Tensor& x);
// A vector of x's columns, in the dtype that the library takes.
void check_vector(const char* what, const at::Tensor& vector, const at::Tensor& x);
// Room for a vector of x's columns, in the dtype that the library gives.
at::Tensor vector_scratch(const at::Tensor& x);
// What the library gave, into an FP32 gradient.
void store_vector(const at::Tensor& made, at::Tensor& gradient, Accumulate mode);
// As libtorch's norms do it: the first gradient of a step is taken as it is on a GPU, which costs
// no launch; sums over micro-batches are in FP32.
void take_vector(const at::Tensor& made, at::Tensor& gradient, Accumulate mode);

// beta undefined: an RMS norm, and no mean. `normed` may be of FP8.
void norm_forward(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps,
                  const Handle& normed, const at::Tensor& mean, const at::Tensor& rstd,
                  const OnDevice& on);

}  // namespace octavo::engine::te
