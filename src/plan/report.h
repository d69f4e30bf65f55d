#pragma once
// A forecast as a table, as JSON and as a picture. Each says that it is a forecast and how wrong it
// may be.

#include <nlohmann/json.hpp>
#include <string>

#include "plan/forecast.h"

namespace octavo::plan {

std::string text_of(const Forecast& forecast);
nlohmann::ordered_json json_of(const Forecast& forecast);
std::string picture_of(const Forecast& forecast);  // SVG

// The parts of memory and of a step in the order in which all three show them.
struct Part {
  const char* name;
  double value;
  const char* json_key = name;
};
std::vector<Part> parts_of(const Memory& memory);
std::vector<Part> parts_of(const StepTime& time);

}  // namespace octavo::plan
