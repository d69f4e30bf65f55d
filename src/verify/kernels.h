#pragma once
// Every implementation of every operation that serves a device, against the reference.

#include <functional>
#include <string>
#include <vector>

#include "engine/op_table.h"
#include "verify/finding.h"

namespace octavo::verify {

// `target`: the device; its compute dtype and FP8 kernels are gone through. `said` is told what
// comes next. `fake_device`: host code runs and may throw, but no number means anything.
std::vector<Finding> check_kernels(const engine::Target& target, bool fake_device,
                                   const std::function<void(const std::string&)>& said);

}  // namespace octavo::verify
