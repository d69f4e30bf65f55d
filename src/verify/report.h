#pragma once
// Findings as text, section by section, and as JSON.

#include <string>
#include <vector>

#include "base/json.h"
#include "verify/finding.h"

namespace octavo::verify {

// The lines of one section, its name first; "" when it has none. `fake_device`: every line says
// that no kernel runs. Without `verbose` what is ok of the machine is counted and not listed; what
// is ok of a long run is listed, for its author to read.
std::string section_text(Section section, const std::vector<Finding>& findings, bool fake_device,
                         bool verbose);

std::string summary_line(const std::vector<Finding>& findings, bool fake_device, bool verbose);

// {"findings": [{"section", "id", "status", "wanted", "found", "fix", "absent_device"}], "summary",
// "exit_code"}
Json to_json(const std::vector<Finding>& findings, bool fake_device);

// 0, or 3 when something failed.
int exit_code(const std::vector<Finding>& findings);

}  // namespace octavo::verify
