// config.json, as the models and (every second length) as the planner read it.
#include "base/json.h"
#include "fuzz/harness.h"
#include "models/gpt2/gpt2.h"
#include "models/llama/llama.h"
#include "plan/shape.h"

namespace {

void as_planner(std::string_view input) {
  using namespace octavo;
  static fuzz::ScratchFolder folder;
  folder.write("config.json", input);
  static const config::Settings settings = [] {
    config::Settings made;
    made.model_name = folder.path().string();
    return made;
  }();
  fuzz::refusal_of([&] {
    const plan::Shape shape = plan::shape_of(settings);
    fuzz::check(shape.layers > 0 && shape.vocab > 0, "an impossible shape");
  });
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  if (input.size() % 2 == 0) return as_planner(input);
  fuzz::refusal_of([&] {
    const Json json = parse_json(input, "config.json");
    if (json.is_object() && json.value("model_type", Json()) == "gpt2") {
      const auto config = models::gpt2::from_hugging_face(json, "config.json");
      fuzz::check(config.layers > 0 && config.width % config.heads == 0, "an impossible GPT-2");
    } else {
      const auto config = models::llama::from_hugging_face(json, "config.json");
      fuzz::check(config.heads % config.kv_heads == 0, "an impossible Llama");
      const Json again = models::llama::to_json(config);
      const auto same = models::llama::from_hugging_face(again, "what we wrote");
      fuzz::check(models::llama::to_json(same) == again, "what we write reads back otherwise");
    }
  });
}
