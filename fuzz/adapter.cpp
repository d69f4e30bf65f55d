// PEFT's adapter_config.json.
#include <cmath>

#include "base/json.h"
#include "fuzz/harness.h"
#include "train/state/peft_config.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  fuzz::refusal_of([&] {
    const nn::LoraOptions options =
        train::parse_peft_config(parse_json(input, "adapter_config.json"), "adapter_config.json");
    fuzz::check(options.rank >= 1 && options.rank <= 65536, "an impossible rank");
    fuzz::check(std::isfinite(options.alpha), "a scale that is no number");
    fuzz::check(!options.targets.empty(), "adapters of nothing");
  });
}
