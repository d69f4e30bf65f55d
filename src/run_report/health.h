#pragma once
// Whether a person should look closer, in the order of what matters.

#include <string>
#include <vector>

#include "run_report/run_contents.h"

namespace octavo::run_report {

enum class Level : uint8_t { kGood, kLook, kBad };

struct Finding {
  Level level = Level::kLook;
  std::string text;
  std::string section;  // of the page, where more is said
};

const char* name_of(Level level);  // "good", "look", "bad"

// Empty: nothing to look at.
std::vector<Finding> findings_of(const RunContents& run);
Level worst_of(const std::vector<Finding>& findings);

}  // namespace octavo::run_report
