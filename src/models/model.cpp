#include "models/model.h"

#include <map>

#include "base/error.h"
#include "models/gpt2/gpt2.h"
#include "models/llama/llama.h"

namespace octavo::models {
namespace {

std::map<std::string, Maker, std::less<>>& makers() {
  static std::map<std::string, Maker, std::less<>> known = {{"gpt2", gpt2::make},
                                                            {"llama", llama::make}};
  return known;
}

}  // namespace

void add_maker(const std::string& builder, Maker maker) {
  OCTAVO_ASSERT(makers().emplace(builder, maker).second);
}

std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage) {
  const auto found = makers().find(config.family->builder);
  OCTAVO_ASSERT(found != makers().end());
  return found->second(config, engine, storage);
}

int64_t parameter_count(const Model& model) {
  return nn::count_of(model.params());
}

}  // namespace octavo::models
