#pragma once
// Facts about a Python environment to findings: no look at the machine happens here.

#include <vector>

#include "verify/finding.h"
#include "verify/python_facts.h"

namespace octavo::verify {

std::vector<Finding> judge_python(const PythonFacts& facts);

// Its parts, in the order of the report; between them judge_known_bad (known_bad.h).
std::vector<Finding> judge_python_packages(const PythonFacts& facts);
std::vector<Finding> judge_python_fit(const PythonFacts& facts);
std::vector<Finding> judge_nvte_names(const PythonFacts& facts);
std::vector<Finding> judge_python_gpu(const PythonFacts& facts);

}  // namespace octavo::verify
