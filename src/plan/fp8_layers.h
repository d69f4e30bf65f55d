#pragma once
// The linear layers of a model's blocks by name, told from its sizes alone, and which of them
// fp8_skip leaves in BF16.

#include <string>
#include <vector>

#include "fp8/legality.h"
#include "plan/shape.h"

namespace octavo::plan {

struct NamedLinear {
  fp8::LayerName layer;  // as src/models names it, which fp8_skip is written in
  size_t place = 0;      // in block_linears(shape)
};
// Block by block; every expert has its own.
std::vector<NamedLinear> named_linears(const Shape& shape);

// Of each of block_linears(shape) the share of its layers that an FP8 recipe has; `skip` is
// fp8_skip, where empty means the recipe's default. Empty: it has all of them.
std::vector<double> fp8_shares(const Shape& shape, const std::vector<std::string>& skip,
                               fp8::Recipe recipe);
// The same over the weights of all blocks.
double fp8_weight_share(const Shape& shape, const std::vector<double>& shares);

// What train would say of fp8_skip: that the model has no such layer; "": it has them all.
std::string fp8_skip_problem(const Shape& shape, const std::vector<std::string>& skip);

}  // namespace octavo::plan
