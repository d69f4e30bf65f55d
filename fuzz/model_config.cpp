// config.json, as the models and (every second length) as the planner read it.
#include "base/json.h"
#include "fuzz/harness.h"
#include "model_config/config_file.h"
#include "plan/shape.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  fuzz::refusal_of([&] {
    const Json json = parse_json(input, "config.json");
    if (input.size() % 2 == 0) {
      std::optional<Error> refusal;
      const auto config = model_config::read(json, "config.json", &refusal);
      const plan::Shape shape = plan::shape_of(config, "config.json");
      fuzz::check(shape.layers > 0 && shape.vocab > 0 && plan::parameters(shape) > 0,
                  "an impossible shape");
      return;
    }
    const auto config = model_config::read(json, "config.json");
    fuzz::check(config.heads % config.kv_heads == 0 && config.context > 0, "an impossible model");
    fuzz::check(!config.is_gpt2() || config.width % config.heads == 0, "an impossible GPT-2");
    const auto again = model_config::read(model_config::to_json(config), "what we wrote");
    fuzz::check(again == config, "what we write reads back otherwise");
  });
}
