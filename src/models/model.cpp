#include "models/model.h"

namespace octavo::models {

int64_t parameter_count(const Model& model) {
  return nn::count_of(model.params());
}

}  // namespace octavo::models
