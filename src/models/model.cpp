#include "models/model.h"

namespace octavo::models {

int64_t parameter_count(const Model& model) {
  int64_t count = 0;
  for (const auto& p : model.params()) count += p->master.numel();
  return count;
}

}  // namespace octavo::models
