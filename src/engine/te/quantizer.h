#pragma once
// Outputs of the library's quantizing kernels, alone or at the end of a norm or an activation.

#include <ATen/core/Tensor.h>

#include "engine/fp8_linear.h"
#include "engine/te/layout.h"

namespace octavo::engine::te {

// What two orders ask for, allocated and described: one call of the library fills it. Both orders
// are of one format and one kind of block (see one_call()).
class Output {
 public:
  struct Shape {
    int64_t rows, columns;
  };
  // `both`: the kernel wants a place for both copies, whatever is ordered.
  Output(const Shape& shape, fp8::Recipe recipe, const QuantizeSpec& row,
         const QuantizeSpec& column, const OnDevice& on, bool both = false);

  Handle handle;
  Fp8Matrix matrix;  // with the copies that were ordered
  // Of one scale per tensor: what a kernel of our own writes, [rows, columns] and transposed, the
  // second undefined when nobody wants it; and the numbers beside them.
  const Fp8Copy& as_it_lies() const { return unordered_.defined() ? unordered_ : matrix.row; }
  Fp8Copy transposed;
  at::Tensor factor, amax;

 private:
  void per_tensor(fp8::Recipe recipe, const QuantizeSpec& row, const QuantizeSpec& column,
                  const OnDevice& on, bool both);
  void in_blocks(const QuantizeSpec& row, const QuantizeSpec& column, const OnDevice& on);

  Fp8Copy unordered_;  // what the kernel writes and nobody reads
};

// The library's kernel needs no pass before it that finds a scale, so that others can end in it.
bool quantizes_in_one_pass(fp8::Recipe recipe);

// The two orders can be filled by one call.
bool one_call(const QuantizeSpec& row, const QuantizeSpec& column);

// x[rows, columns] is what the library's kernels take, and the device has the recipe.
void check_quantizable(const at::Tensor& x, fp8::Recipe recipe, const OnDevice& on);
// The shape is one that kernels and GEMMs take for the copies that are ordered.
void check_shape(const Output::Shape& shape, fp8::Recipe recipe, const QuantizeSpec& row,
                 const QuantizeSpec& column);

// Whether quantize_all() takes fewer launches than quantize() of each.
bool quantizes_together(fp8::Recipe recipe);
std::vector<Fp8Matrix> quantize_all(const std::vector<Fp8Linear::Request>& requests,
                                    fp8::Recipe recipe);

// By our own kernel, with the sums of the columns; nothing where it is not there or does not serve.
bool sums_columns();
std::optional<Fp8Matrix> quantize_and_sum(const at::Tensor& x, at::Tensor& sums, Accumulate mode,
                                          fp8::Recipe recipe, const QuantizeSpec& row,
                                          const QuantizeSpec& column);

Fp8Matrix quantize(const at::Tensor& x, fp8::Recipe recipe, const QuantizeSpec& row,
                   const QuantizeSpec& column);

}  // namespace octavo::engine::te
