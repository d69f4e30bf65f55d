#pragma once
// Private to this module.

#include "checkpoint/manifest.h"

namespace octavo::checkpoint {

Json index_to_json(const Index& index);
Index index_from_json(const Json& groups, size_t ranks, const std::string& source);

}  // namespace octavo::checkpoint
