#pragma once
// Where an axis has its marks, and what is written at them.

#include <string>
#include <vector>

namespace octavo::chart {

// The multiples of 1, 2 or 5 times a power of ten in [low, high], about as many as wanted.
std::vector<double> round_ticks(double low, double high, int about);

// For a logarithmic axis (0 < low <= high): powers of ten, with 2 and 5 between them where there
// is room; round_ticks when the range is too narrow for these.
std::vector<double> log_ticks(double low, double high, int about);

// One notation for all marks of an axis, with the digits that tell neighbours apart: 0.25, 40k,
// 6e-4.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

// A value as a reader wants it beside a bar or in a table: four significant digits.
std::string short_number(double value);

}  // namespace octavo::chart
