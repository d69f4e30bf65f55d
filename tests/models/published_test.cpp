// Models of published config.json files: the planner counts what the model has.

#include "published.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "model_config/config_file.h"
#include "model_config/presets.h"
#include "models/model.h"
#include "plan/shape.h"

namespace octavo::models {
namespace {

// Of a model for which nothing is allocated.
std::unique_ptr<Model> outline(const ModelConfig& config) {
  static engine::Engine engine = [] {
    engine::Engine made({.device = at::kCPU, .compute = at::kFloat});
    made.target.device = at::kMeta;
    return made;
  }();
  return make(config, engine, {.trainable = false});
}

int64_t file_parameters(const Model& model) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : model.to_hugging_face()) sum += tensor.numel();
  return sum;
}

int64_t planned(const ModelConfig& config) {
  return plan::parameters(plan::shape_of(config, "test"));
}

TEST(PublishedModels, HaveThePublishedParameters) {
  for (const Published& known : kPublished) {
    const ModelConfig config = model_config::read(read_json(known.path()), known.file);
    const auto model = outline(config);
    EXPECT_EQ(file_parameters(*model), known.parameters) << known.file;
    EXPECT_EQ(planned(config), parameter_count(*model)) << known.file;
  }
}

TEST(PublishedModels, PresetsHaveThem) {
  for (const std::string_view name : model_config::published_names()) {
    const ModelConfig config = model_config::published(name)->config;
    EXPECT_EQ(planned(config), parameter_count(*outline(config))) << name;
  }
}

TEST(PublishedModels, BiasesAndMistral) {
  ModelConfig config = model_config::published("llama-2-7b")->config;
  config.qkv_bias = config.out_bias = true;
  EXPECT_EQ(planned(config), parameter_count(*outline(config)));
  config.mlp_bias = true;
  EXPECT_EQ(planned(config), parameter_count(*outline(config)));
  // Mistral 7B v0.1.
  config = {.family = &model_config::kMistralFamily,
            .layers = 32,
            .width = 4096,
            .mlp = 14336,
            .heads = 32,
            .kv_heads = 8,
            .head_dim = 128,
            .vocab = 32000,
            .context = 32768,
            .window = 4096};
  const auto model = outline(config);
  EXPECT_EQ(file_parameters(*model), 7241732096);
  EXPECT_EQ(planned(config), parameter_count(*model));
  EXPECT_EQ(model->context(), 32768);
}

}  // namespace
}  // namespace octavo::models
