#include "models/model.h"

namespace octavo::models {

int64_t parameter_count(const Model& model) {
  int64_t count = 0;
  for (const auto& p : model.params()) count += c10::multiply_integers(p->sizes());
  return count;
}

}  // namespace octavo::models
