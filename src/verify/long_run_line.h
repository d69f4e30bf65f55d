#pragma once
// Lines of the list before a long run (before_long_run.h): good until something worsens them.

#include <string>
#include <utility>

#include "verify/finding.h"

namespace octavo::verify {

inline Finding long_run_line(Section section, std::string id, std::string found) {
  return {section, std::move(id), Status::kOk, "", std::move(found), ""};
}

inline void worsen(Finding& line, Status status, std::string wanted, std::string fix) {
  line.status = status;
  line.wanted = std::move(wanted);
  line.fix = std::move(fix);
}

inline Finding unchecked_line(Section section, std::string id, std::string why) {
  return {section, std::move(id), Status::kNotChecked, "", std::move(why), ""};
}

}  // namespace octavo::verify
