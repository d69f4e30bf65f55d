#pragma once
// Which values a trial tries.

#include "sweep/definition.h"
#include "sweep/tpe.h"

namespace octavo::sweep {

struct Proposal {
  std::vector<std::string> values;  // one for each parameter, as a flag takes it
  std::vector<double> draws;        // where they came from, in (0, 1)
};

// Trial `number` (from 1 on). The same definition, seed, number and trials before it give the same.
Proposal propose(const Definition& definition, uint64_t seed, int64_t number,
                 const std::vector<SeenTrial>& seen);

}  // namespace octavo::sweep
