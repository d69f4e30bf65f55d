#pragma once
// Fields of an untrusted record: what is missing or of another type is not there.

#include <optional>
#include <string>

#include "base/json.h"

namespace octavo::run_report {

std::optional<double> finite_in(const Json& object, const char* name);
// "" when it is no text; cut to `max_bytes`, as UTF-8.
std::string text_in(const Json& object, const char* name, size_t max_bytes);
// The member when it is an object, else an empty one.
const Json& object_in(const Json& object, const char* name);
const Json& array_in(const Json& object, const char* name);
// The step of a record; none: it has none, or one that no run has.
std::optional<int64_t> step_in(const Json& record);

}  // namespace octavo::run_report
