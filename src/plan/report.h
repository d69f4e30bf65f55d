#pragma once
// A forecast as a table, as JSON and as a picture. Each says that it is a forecast and how wrong it
// may be.

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "plan/accuracy.h"
#include "plan/forecast.h"

namespace octavo::plan {

std::string answer_of(const Forecast& forecast);  // what to know, in a dozen lines
std::string text_of(const Forecast& forecast);    // with every table
nlohmann::ordered_json json_of(const Forecast& forecast);
std::string picture_of(const Forecast& forecast);  // SVG

// The lines that all texts begin with: which run this is of.
std::string head_of(const Forecast& forecast);

// Tokens/s of a GPU within which nine of ten held-out measurements of such a program, and of such a
// GPU, lay.
struct SpeedRange {
  double low = 0, high = 0;
};
SpeedRange speed_range(const Forecast& forecast);
// "20, half within 13%, nine tenths within 20%", or "none".
std::string held_out_text(std::span<const HeldOutError> all, std::string_view name);

// The parts of memory and of a step in the order in which all three show them.
struct Part {
  const char* name;
  double value;
  const char* json_key = name;
};
std::vector<Part> parts_of(const Memory& memory);
std::vector<Part> parts_of(const StepTime& time);

}  // namespace octavo::plan
