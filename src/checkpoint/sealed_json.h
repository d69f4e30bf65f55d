#pragma once
// JSON text whose first field is the hash of the rest of the text, so that a flipped bit anywhere
// in it is seen. Private to this module.

#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

#include "base/json.h"

namespace octavo::checkpoint {

// Refuses what would not read back equal (numbers that are not finite, strings that are not UTF-8)
// or is too large to be read back. `what` names the text in messages.
std::string sealed_text(const Json& json, std::string_view what);

// Checks the hash and parses.
Json unsealed(std::string_view text, const std::string& source);

// Fields of such a text, checked.
uint64_t unsigned_field(const Json& object, const char* name, const std::string& source);
std::string hash_field(const Json& object, const char* name, const std::string& source);
// A short string that may be printed.
std::string label_field(const Json& object, const char* name, const std::string& source);
// Sizes >= 0 whose product does not overflow.
std::vector<int64_t> shape_field(const Json& object, const char* name, const std::string& source);
at::ScalarType dtype_field(const Json& object, const char* name, const std::string& source);

}  // namespace octavo::checkpoint
