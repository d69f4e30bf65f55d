#include "models/model.h"

#include "models/gpt2/gpt2.h"
#include "models/llama/llama.h"

namespace octavo::models {

std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage) {
  return config.is_gpt2() ? gpt2::make(config, engine, storage)
                          : llama::make(config, engine, storage);
}

int64_t parameter_count(const Model& model) {
  return nn::count_of(model.params());
}

}  // namespace octavo::models
