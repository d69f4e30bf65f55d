// The W&B YAML of a sweep.
#include "fuzz/harness.h"
#include "sweep/definition.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  fuzz::refusal_of([&] {
    const sweep::Definition definition = sweep::parse_definition(input, "sweep.yaml");
    const int64_t trials = sweep::trial_count(definition);
    fuzz::check(trials >= 0, "a negative number of trials");
    for (size_t i = 1; i < definition.hyperband.bands.size(); ++i)
      fuzz::check(definition.hyperband.bands[i - 1] < definition.hyperband.bands[i],
                  "bands out of order");
  });
}
