#pragma once
// Jinja's filters.

#include "jinja/interpreter.h"

namespace octavo::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value& input, Arguments&);
struct Filter {
  std::string_view name;
  FilterFunction apply;
};
// Null for a name that is none, or that is not done here.
const Filter* find_filter(std::string_view name);

// The parts of the table.
const Filter* find_text_filter(std::string_view name);
const Filter* find_sequence_filter(std::string_view name);
const Filter* find_choosing_filter(std::string_view name);

// What `attribute="a.b"` of filters reads of an item.
Value read_path(Interpreter& run, const Value& item, const Value& path, const Value& otherwise);
// json.dumps as transformers calls it.
Value to_json(Interpreter& run, const Value& input, Arguments& arguments);

}  // namespace octavo::jinja
