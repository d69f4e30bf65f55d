#pragma once
// `octavo verify`: looks, judges, runs kernels, trains a little, and says what it found.

#include <functional>
#include <string>
#include <vector>

#include "config/parse.h"
#include "verify/finding.h"

namespace octavo::verify {

struct Report {
  std::vector<Finding> findings;
  bool fake_device = false;  // then no kernel ran, and every line says so
};

// `show` is given the text of each section as soon as it is known.
Report run(const config::Parsed& parsed, const std::function<void(const std::string&)>& show);

}  // namespace octavo::verify
