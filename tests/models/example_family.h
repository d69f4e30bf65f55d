#pragma once
// The example of docs/internals/add-a-model.md: a family that octavo does not have.

#include "model_config/family.h"

namespace octavo::model_config {

extern const Family kTandemFamily;

}  // namespace octavo::model_config
