#pragma once
// A line "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; platform_system == 'Linux'" of a package's
// metadata (PEP 508).

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "python_env/specifier.h"

namespace octavo::python_env {

struct Requirement {
  std::string name;  // normalised
  std::string versions;
  Specifiers specifiers;
  std::string marker;  // "" when it holds everywhere
};

// "Nvidia_cuDNN.cu12" is "nvidia-cudnn-cu12" (PEP 503).
std::string normalised(std::string_view name);

// No value when the line is not a requirement on versions (such as one on a URL).
std::optional<Requirement> parse_requirement(std::string_view line);

// What markers ask about: "python_version" to "3.11". "extra" is "": optional parts do not count.
using MarkerValues = std::map<std::string, std::string, std::less<>>;
MarkerValues marker_values(const std::string& python_version);

// Whether a marker holds; no value when it asks for something that is not known, or is not a
// marker.
std::optional<bool> holds(std::string_view marker, const MarkerValues& values);

}  // namespace octavo::python_env
