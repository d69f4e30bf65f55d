#include "engine/fp8_linear.h"

#include <ATen/ATen.h>

namespace octavo::engine {

int64_t bytes_of(const Fp8Matrix& matrix) {
  int64_t bytes = 0;
  std::vector<const void*> seen;
  for (const Fp8Copy* copy : {&matrix.row, &matrix.column})
    for (const at::Tensor* t : {&copy->codes, &copy->scales, &copy->values}) {
      if (!t->defined() || std::ranges::find(seen, t->const_data_ptr()) != seen.end()) continue;
      seen.push_back(t->const_data_ptr());
      bytes += static_cast<int64_t>(t->nbytes());
    }
  return bytes;
}

}  // namespace octavo::engine
