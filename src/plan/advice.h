#pragma once
// What to change until a run fits, each change tried before it is proposed.

#include <functional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "plan/memory.h"

namespace octavo::plan {

struct Advice {
  std::vector<std::string> lines;  // in this order, each on top of the last, with what it leaves
  config::Settings settings;       // with all of them; as given where there are none
};

// `memory_of`: of a GPU under given settings; `limit`: what there is. Changes that train
// would refuse, and those that save next to nothing, are not proposed.
Advice memory_advice(const config::Settings& settings,
                     const std::function<Memory(const config::Settings&)>& memory_of, double limit);

// Rules by which train would refuse the settings. It counts its ranks itself.
size_t broken_rules(config::Settings settings);

}  // namespace octavo::plan
