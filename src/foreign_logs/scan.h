#pragma once
// Numbers in the lines of text logs.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octavo::foreign_logs {

// The number at the beginning of the text, behind spaces: 4.1E+00, 1,110,094, nan, -inf.
std::optional<double> leading_number(std::string_view text);

// The whole text is one number.
std::optional<double> whole_number_text(std::string_view text);

// The number behind the first `label`; none: there is no label, or no number behind it.
std::optional<double> number_after(std::string_view line, std::string_view label);

// The same for a step.
std::optional<int64_t> step_after(std::string_view line, std::string_view label);

// The number that stands before the first `label`.
std::optional<double> number_before(std::string_view line, std::string_view label);

bool has(std::string_view line, std::string_view part);

// Without the colours of a terminal (ESC [ … m).
std::string without_colors(std::string_view line);

}  // namespace octavo::foreign_logs
