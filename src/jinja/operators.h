#pragma once
// Python's operators on values.

#include "jinja/tree.h"

namespace octavo::jinja {

Value binary(Budget& budget, Operator sign, const Value& a, const Value& b);
bool compares(Budget& budget, Operator sign, const Value& a, const Value& b);
Value negative(const Value& value);
Value positive(const Value& value);
// Whether `value` is in `container`.
bool contains(Budget& budget, const Value& container, const Value& value);
// container[begin:end:step]; each may be none.
Value slice(Budget& budget, const Value& container, const Value& begin, const Value& end,
            const Value& step);
// The item of a sequence or the character of a text; missing when the index is beyond.
Value item_at(Budget& budget, const Value& sequence, int64_t index);
// text % values
std::string percent_format(Budget& budget, const std::string& text, const Value& values);
// &, <, >, ' and " as HTML spells them.
std::string escape_html(std::string_view text);

}  // namespace octavo::jinja
