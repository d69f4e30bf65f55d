// Tandem: Llama with norms before and after each branch, norms of the heads of queries and keys,
// and every second layer seeing `local_span` tokens back.

#include "example_family.h"

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

ModelConfig read_tandem(const ConfigSource& file) {
  LlamaReader reader(kTandemFamily, file, {.tied = true});
  ModelConfig& config = reader.config;
  config.window = reader.fields.count("local_span", kMaxTokens);
  for (int64_t i = 0; i < config.layers; ++i) config.windowed.push_back(i % 2 == 0);
  return reader.done();  // refuses every field that nobody asked for
}

Json write_tandem(const ModelConfig& config) {
  Json json = llama_json(config);
  json["local_span"] = config.window;
  return json;
}

}  // namespace

const Family kTandemFamily = {.model_type = "tandem",
                              .architecture = "TandemForCausalLM",
                              .title = "Tandem",
                              .norms = NormPlace::kBoth,
                              .qk_norm = QkNorm::kHead,
                              .read = read_tandem,
                              .write = write_tandem};

}  // namespace octavo::model_config
