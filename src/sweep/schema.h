#pragma once

#include <string>

namespace octavo::sweep {

std::string json_schema();  // configs/sweep.schema.json, for editors

}  // namespace octavo::sweep
