// Published config.json files, as they are, through the reader.

#include "published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/file.h"
#include "model_config/config_file.h"
#include "model_config/presets.h"

namespace octavo::model_config {
namespace {

class PublishedConfig : public testing::TestWithParam<octavo::Published> {
 protected:
  const octavo::Published& known = GetParam();
  Json json = read_json(known.path());
};

TEST_P(PublishedConfig, HasTheSizesThatArePublished) {
  const ModelConfig config = read(json, known.file);
  EXPECT_EQ(config.layers, known.layers);
  EXPECT_EQ(config.width, known.width);
  EXPECT_EQ(config.mlp, known.mlp);
  EXPECT_EQ(config.heads, known.heads);
  EXPECT_EQ(config.kv_heads, known.kv_heads);
  EXPECT_EQ(config.head_dim, known.head_dim);
  EXPECT_EQ(config.vocab, known.vocab);
  EXPECT_EQ(config.context, known.context);
  EXPECT_EQ(config.context, known.context);
  EXPECT_EQ(config.tied, known.tied);
  EXPECT_EQ(config.is_gpt2(), known.is_gpt2());
  EXPECT_EQ(read(to_json(config), "what we wrote"), config);
  if (known.is_gpt2()) return;
  EXPECT_EQ(config.rope.theta, known.theta);
  EXPECT_EQ(config.rope.scaling.has_value(), known.factor != 0);
  if (config.rope.scaling) {
    EXPECT_EQ(config.rope.scaling->factor, known.factor);
  }
}

// A preset is what the file of that model says.
TEST_P(PublishedConfig, IsThePresetOfItsName) {
  const ModelConfig config = read(json, known.file);
  if (is_built_in(known.file)) {
    EXPECT_EQ(built_in(known.file, {.layers = 0, .heads = 0, .width = 0}), config);
  }
  const auto preset = published(known.file);
  if (!preset) return;
  // The context and the norms' epsilon of a tuned model may be others, and the copy of SmolLM2-360M
  // has a token more.
  ModelConfig same = preset->config;
  if (std::string_view(known.file).ends_with("-Instruct")) {
    same.context = config.context;
    same.norm_eps = config.norm_eps;
  }
  if (std::string_view(known.file) == "SmolLM2-360M") same.vocab = config.vocab;
  EXPECT_EQ(same, config);
}

using Changes = std::vector<std::pair<const char*, Json>>;

TEST_P(PublishedConfig, FieldsAtTheirNeutralValuePass) {
  Changes neutral = {{"is_encoder_decoder", false},
                     {"add_cross_attention", false},
                     {"tie_encoder_decoder", false},
                     {"is_causal", true},
                     {"pruned_heads", Json::object()},
                     {"cross_attention_hidden_size", nullptr},
                     {"torchscript", false},
                     {"num_labels", 2},
                     {"max_length", 20},
                     {"output_past", true},
                     {"gradient_checkpointing", false},
                     {"unsloth_fixed", true},
                     {"what_nobody_knows", nullptr}};
  const Changes of_gpt2 = {{"n_special", 0},
                           {"predict_special_tokens", false},
                           {"n_inner", 4 * known.width},
                           {"scale_attn_weights", true}};
  const Changes of_llama = {{"pretraining_tp", 1},
                            {"rope_interleaved", false},
                            {"partial_rotary_factor", 1.0},
                            {"sliding_window", nullptr}};
  const Changes& more = known.is_gpt2() ? of_gpt2 : of_llama;
  neutral.insert(neutral.end(), more.begin(), more.end());
  if (json.at("model_type") == "qwen2") neutral.emplace_back("use_mrope", false);
  for (const auto& [name, value] : neutral) json[name] = value;
  EXPECT_NO_THROW(read(json, known.file));
  std::optional<Error> refusal;
  EXPECT_EQ(read(json, known.file, &refusal), read(json, known.file));
  EXPECT_FALSE(refusal.has_value());
}

TEST_P(PublishedConfig, FieldsThatChangeTheMathematicsAreRefused) {
  Changes changes = {{"is_encoder_decoder", true},   {"add_cross_attention", true},
                     {"tie_encoder_decoder", true},  {"is_causal", false},
                     {"pruned_heads", {{"0", {1}}}}, {"cross_attention_hidden_size", 64},
                     {"what_nobody_knows", 1},       {"auto_map", {{"AutoConfig", "a.B"}}}};
  const Changes of_gpt2 = {{"activation_function", "relu"},
                           {"scale_attn_weights", false},
                           {"scale_attn_by_inverse_layer_idx", true},
                           {"reorder_and_upcast_attn", true},
                           {"tie_word_embeddings", false},
                           {"n_special", 3},
                           {"n_inner", 3 * known.width}};
  const Json dynamic = {{"rope_type", "dynamic"}, {"factor", 4.0}};
  const Json other = {{"rope_type", "llama3"}, {"factor", 2.5}};
  const Json part = {{"rope_theta", known.theta}, {"partial_rotary_factor", 0.5}};
  const Changes of_llama = {{"hidden_act", "gelu"},       {"pretraining_tp", 2},
                            {"rope_interleaved", true},   {"partial_rotary_factor", 0.5},
                            {"rope_scaling", dynamic},    {"rope_parameters", part},
                            {"sliding_window_pattern", 4}};
  const Changes& more = known.is_gpt2() ? of_gpt2 : of_llama;
  changes.insert(changes.end(), more.begin(), more.end());
  if (!known.is_gpt2() && json.contains("rope_parameters"))
    changes.emplace_back("rope_scaling", other);  // two kinds of RoPE in one file
  if (json.at("model_type") == "qwen2") {
    Json layers = Json::array();
    for (int64_t i = 0; i < known.layers; ++i) layers.push_back("full_attention");
    layers.back() = "sliding_attention";
    changes.insert(changes.end(),
                   {{"use_mrope", true}, {"use_sliding_window", true}, {"layer_types", layers}});
  }
  for (const auto& [name, value] : changes) {
    Json changed = json;
    changed[name] = value;
    EXPECT_THROW(read(changed, known.file), Error) << name << " " << value;
    // Who needs the sizes alone is told.
    std::optional<Error> refusal;
    EXPECT_EQ(read(changed, known.file, &refusal).layers, known.layers);
    EXPECT_TRUE(refusal.has_value()) << name << " " << value;
  }
}

std::string test_name(const testing::TestParamInfo<octavo::Published>& info) {
  std::string name = info.param.file;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, PublishedConfig, testing::ValuesIn(octavo::kPublished), test_name);

// The table here, the folder and its README speak of the same files.
TEST(PublishedConfigs, AreWhatTheReadmeSays) {
  const fs::path folder = OCTAVO_SOURCE_DIR "/tests/models/published";
  const std::string readme = read_file(folder / "README.md", 1 << 20);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".json")) continue;
    ++files;
    EXPECT_TRUE(std::ranges::any_of(octavo::kPublished, [&](const octavo::Published& p) {
      return name == std::string(p.file) + ".json";
    })) << name;
    EXPECT_NE(readme.find("| " + name + " |"), std::string::npos) << name;
  }
  EXPECT_EQ(files, std::size(octavo::kPublished));
}

}  // namespace
}  // namespace octavo::model_config
