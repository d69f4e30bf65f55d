#include "sweep/propose.h"

#include "base/error.h"

namespace octavo::sweep {
namespace {

// The last parameter changes fastest, as in nested loops.
Proposal grid_proposal(const Definition& sweep, int64_t index) {
  Proposal proposal;
  proposal.values.resize(sweep.parameters.size());
  proposal.draws.assign(sweep.parameters.size(), 0.5);
  for (size_t p = sweep.parameters.size(); p-- > 0;) {
    const std::vector<std::string> values = all_values(sweep.parameters[p], kMostTrials);
    const auto count = static_cast<int64_t>(values.size());
    proposal.values[p] = values[static_cast<size_t>(index % count)];
    index /= count;
  }
  return proposal;
}

}  // namespace

Proposal propose(const Definition& sweep, uint64_t seed, int64_t number,
                 const std::vector<SeenTrial>& seen) {
  OCTAVO_ASSERT(number >= 1);
  if (sweep.method == Method::kGrid) return grid_proposal(sweep, number - 1);
  Draws random(seed, static_cast<uint64_t>(number));
  Proposal proposal;
  proposal.draws = tpe_draws(
      sweep.parameters, sweep.method == Method::kBayes ? seen : std::vector<SeenTrial>{}, random);
  for (size_t p = 0; p < sweep.parameters.size(); ++p)
    proposal.values.push_back(value_at(sweep.parameters[p], proposal.draws[p]));
  return proposal;
}

}  // namespace octavo::sweep
