#include <gtest/gtest.h>

#include <set>

#include "expect_failure.h"
#include "model_config/config_file.h"
#include "model_config/presets.h"

namespace octavo::model_config {
namespace {

const Json kGpt2 = {{"model_type", "gpt2"}, {"n_layer", 2},     {"n_head", 2},
                    {"n_embd", 16},         {"n_positions", 8}, {"vocab_size", 50}};
const Json kMistral = {{"model_type", "mistral"},   {"num_hidden_layers", 2},
                       {"hidden_size", 64},         {"intermediate_size", 96},
                       {"num_attention_heads", 4},  {"num_key_value_heads", 2},
                       {"vocab_size", 97},          {"max_position_embeddings", 8192},
                       {"sliding_window", nullptr}, {"hidden_act", "silu"}};

Json with(Json json, const char* name, const Json& value) {
  json[name] = value;
  return json;
}

TEST(Presets, OfGpt2) {
  const Gpt2Sizes none{.layers = 0, .heads = 0, .width = 0, .vocab = 100, .context = 8};
  const ModelConfig xl = built_in("gpt2-xl", none);
  EXPECT_EQ(xl.layers, 48);
  EXPECT_EQ(xl.width, 1600);
  EXPECT_EQ(xl.heads, 25);
  EXPECT_EQ(xl.vocab, 100);
  EXPECT_EQ(built_in("gpt2", {.layers = 3, .heads = 0, .width = 0}).layers, 3);
  for (const char* name : {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "custom"})
    EXPECT_TRUE(is_built_in(name)) << name;
  for (const char* name : {"gpt3", "a/b", "llama-3.1-8b"}) EXPECT_FALSE(is_built_in(name)) << name;
  const auto refuse = [](const char* name, const Gpt2Sizes& keys, const char* part) {
    expect_failure(ExitCode::kUsage, part, [&] { built_in(name, keys); });
  };
  refuse("gpt3", none, "gpt3");
  refuse("custom", none, "n_layer, n_head and n_embd");
  refuse("gpt2", {.layers = 0, .heads = 5, .width = 768}, "multiple of n_head");
}

TEST(Presets, OfPublishedModelsHaveSeveralSpellings) {
  for (const char* name :
       {"llama-3.1-8b", "Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", "Meta-Llama-3.1-8B",
        "meta-llama/Meta-Llama-3.1-8B", "Meta Llama 3.1 8B", "llama31-8b", "llama3.1:8b"}) {
    ASSERT_TRUE(published(name)) << name;
    EXPECT_EQ(published(name)->name, "llama-3.1-8b") << name;
  }
  const std::pair<const char*, const char*> others[] = {
      {"meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"},
      {"Llama-3.3-70B", "llama-3.3-70b"},
      {"openai-community/gpt2", "gpt2"},
      {"openai-community/gpt2-xl", "gpt2-xl"},
      {"Qwen2.5-72B-Instruct", "qwen2.5-72b"},
      {"qwen25-14b", "qwen2.5-14b"},
      {"HuggingFaceTB/SmolLM2-1.7B", "smollm2-1.7b"},
      {"Llama-2-7b-chat-hf", "llama-2-7b"},
      {"Qwen3-8B-Base", "qwen3-8b"},
      {"mistral-7b", "mistral-7b-v0.3"},
      {"olmo-3-32b", "olmo-3-1125-32b"},
      {"Qwen/Qwen3-30B-A3B-Base", "qwen3-30b-a3b"},
      {"google/gemma-3-27b-it", "gemma-3-27b"}};
  for (const auto& [given, name] : others) {
    ASSERT_TRUE(published(given)) << given;
    EXPECT_EQ(published(given)->name, name) << given;
  }
  for (const char* name : {"", "/", "llama-3.1-9b", "llama", "qwen2.5", "my-llama-3.1-8b-tuned"})
    EXPECT_FALSE(published(name)) << name;
  for (const std::string_view name : published_names()) EXPECT_TRUE(published(name)) << name;
}

// A name that several models answer to would give one of them the other's shape.
TEST(Presets, NamesAreOfOneModelEach) {
  std::set<std::string> seen;
  for (const std::string_view name : published_names())
    EXPECT_TRUE(seen.insert(published(name)->name).second) << name;
  EXPECT_GE(seen.size(), 22u);
}

TEST(Presets, NamesOnTheHub) {
  const std::pair<const char*, const char*> wanted[] = {
      {"llama-3.2-1b", "meta-llama/Llama-3.2-1B"},
      {"Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"},
      {"Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"},
      {"llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct"},
      {"llama-3.3-70b-instruct", "meta-llama/Llama-3.3-70B-Instruct"},
      {"Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"},
      {"smollm2-135m", "HuggingFaceTB/SmolLM2-135M"},
      {"gpt2-large", "openai-community/gpt2-large"},
      {"llama-2-7b", "meta-llama/Llama-2-7b-hf"},
      {"qwen3-1.7b", "Qwen/Qwen3-1.7B"},
      {"gemma-3-1b", "google/gemma-3-1b-pt"},
      {"olmo-3-32b", "allenai/Olmo-3-1125-32B"}};
  for (const auto& [given, name] : wanted) EXPECT_EQ(hub_name(given), name) << given;
  // What names its owner or its revision is meant as it stands; nobody published the others.
  for (const char* name : {"meta-llama/Meta-Llama-3.1-8B", "unsloth/Llama-3.2-1B", "gpt2@main",
                           "gpt2-instruct", "llama-2-7b-chat", "custom", ""})
    EXPECT_FALSE(hub_name(name)) << name;
}

TEST(Presets, FamiliesThatAreNotImplemented) {
  for (const char* name : {"Qwen/Qwen3-Coder-Next", "openai/gpt-oss-20b", "google/gemma-2-9b-it",
                           "google/gemma-3n-E4B", "microsoft/phi-4"})
    EXPECT_FALSE(unsupported_family(name).empty()) << name;
  // Of the preset with images the text part alone is planned for.
  for (const std::string_view name : published_names())
    EXPECT_EQ(unsupported_family(name).empty(), name != "google/gemma-3-27b-pt") << name;
  for (const char* name : {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "someone/mine", ""})
    EXPECT_TRUE(unsupported_family(name).empty()) << name;
}

TEST(Read, FieldsOfGpt2ThatChangeTheMathematicsAreRefused) {
  EXPECT_EQ(read(kGpt2, "test").context, 8);
  const std::pair<const char*, Json> changes[] = {{"activation_function", "relu"},
                                                  {"scale_attn_by_inverse_layer_idx", true},
                                                  {"tie_word_embeddings", false},
                                                  {"rope_scaling", Json::object()},
                                                  {"model_type", "llama"},
                                                  {"n_head", 3},
                                                  {"n_layer", 0},
                                                  {"n_embd", "16"},
                                                  {"vocab_size", -1},
                                                  {"layer_norm_epsilon", "x"}};
  for (const auto& [name, value] : changes)
    EXPECT_THROW(read(with(kGpt2, name, value), "test"), Error) << name;
}

// The fields that every family made like Llama has.
Json small_file(const char* model_type) {
  return {{"model_type", model_type}, {"num_hidden_layers", 6},   {"hidden_size", 64},
          {"intermediate_size", 96},  {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 16},           {"vocab_size", 97},         {"max_position_embeddings", 512}};
}

TEST(Read, EveryFamilyReadsWhatItWrites) {
  EXPECT_GE(families().size(), 10u);
  for (const Family* family : families()) {
    if (family == &kGpt2Family) continue;
    const ModelConfig config = read(small_file(family->model_type), "test");
    EXPECT_EQ(config.family, family);
    EXPECT_EQ(read(to_json(config), "what we wrote"), config) << family->title;
  }
}

TEST(Read, LayersThatDiffer) {
  const ModelConfig smollm3 = read(small_file("smollm3"), "test");
  EXPECT_TRUE(smollm3.is_rotated(2) && !smollm3.is_rotated(3) && smollm3.is_rotated(4));
  EXPECT_EQ(smollm3.rope.theta, 2e6);
  EXPECT_FALSE(read(with(small_file("smollm3"), "no_rope_layers", {0, 1, 1, 1, 1, 1}), "test")
                   .is_rotated(0));
  const ModelConfig olmo3 =
      read(with(small_file("olmo3"), "rope_scaling",
                {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}}),
           "test");
  EXPECT_EQ(olmo3.window_of(2), 4096);
  EXPECT_EQ(olmo3.window_of(3), 0);
  EXPECT_TRUE(olmo3.has_local_rope(2) && !olmo3.has_local_rope(3));
  EXPECT_TRUE(olmo3.rope.scaling && !olmo3.local_rope->scaling);
  EXPECT_NEAR(olmo3.rope.scaling->attention_factor, 1.2079441541679836, 1e-15);
  const ModelConfig gemma = read(with(small_file("gemma3_text"), "sliding_window", 32), "test");
  EXPECT_EQ(gemma.window_of(4), 32);
  EXPECT_EQ(gemma.window_of(5), 0);
  EXPECT_EQ(gemma.rope.theta, 1e6);
  EXPECT_EQ(gemma.local_rope->theta, 1e4);
  EXPECT_EQ(gemma.softmax_scale(), 1.0 / 16);
  EXPECT_TRUE(gemma.tied);
}

// Fields of Qwen3-MoE that are missing are those of transformers' class.
TEST(Read, Experts) {
  const Json file = small_file("qwen3_moe");
  const ModelConfig silent = read(file, "test");
  EXPECT_EQ(silent.experts, (Experts{.count = 128, .active = 8, .mlp = 768}));
  EXPECT_EQ(silent.sparse_layers(), 6);
  EXPECT_EQ(silent.window, 0);
  EXPECT_EQ(read(with(file, "num_local_experts", 64), "test").experts->count, 64);
  Json all = file;
  all.update({{"num_experts", 4},
              {"num_local_experts", 4},
              {"num_experts_per_tok", 4},
              {"moe_intermediate_size", 48},
              {"norm_topk_prob", true},
              {"router_aux_loss_coef", 0.0},
              {"output_router_logits", true},
              {"decoder_sparse_step", 2},
              {"mlp_only_layers", {3, 0}},
              {"use_sliding_window", true},
              {"sliding_window", 24},
              {"max_window_layers", 1}});
  const ModelConfig config = read(all, "test");
  EXPECT_EQ(config.experts, (Experts{.count = 4,
                                     .active = 4,
                                     .mlp = 48,
                                     .renormalized = true,
                                     .balance_weight = 0,
                                     .balances = true}));
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(config.has_experts(i), i == 1 || i == 5) << i;
  EXPECT_EQ(config.window_of(0), 24);  // of all layers
  EXPECT_EQ(read(to_json(config), "what we wrote"), config);
  EXPECT_FALSE(read(small_file("qwen3"), "test").has_experts(0));
}

TEST(Read, ExpertsThatAreNotUnderstoodAreRefused) {
  const std::pair<const char*, Json> changes[] = {
      {"num_experts", 0},
      {"num_experts", 1 << 20},
      {"num_experts", "8"},
      {"num_experts", 4},  // fewer than a token goes through
      {"num_experts_per_tok", 0},
      {"num_experts_per_tok", 129},
      {"moe_intermediate_size", -1},
      {"norm_topk_prob", 1},
      {"output_router_logits", "yes"},
      {"router_aux_loss_coef", -0.5},
      {"router_aux_loss_coef", "0.1"},
      {"decoder_sparse_step", 0},
      {"decoder_sparse_step", 7},  // no layer has experts
      {"mlp_only_layers", {0, 1, 2, 3, 4, 5}},
      {"mlp_only_layers", {6}},
      {"mlp_only_layers", {-1}},
      {"mlp_only_layers", {"0"}},
      {"mlp_only_layers", 3},
      {"layer_types", Json(6, "sliding_attention")},
      {"shared_expert_intermediate_size", 64},
      {"n_shared_experts", 1},
      {"router_z_loss_coef", 0.001},
      {"router_jitter_noise", 0.1},
      {"routed_scaling_factor", 2.5},
      {"scoring_func", "sigmoid"},
      {"n_group", 4}};
  for (const auto& [name, value] : changes)
    EXPECT_THROW(read(with(small_file("qwen3_moe"), name, value), "test"), Error)
        << name << " " << value;
  EXPECT_THROW(
      read(with(with(small_file("qwen3_moe"), "num_experts", 16), "num_local_experts", 8), "test"),
      Error);
}

TEST(Read, LayersThatAreNotUnderstoodAreRefused) {
  for (const char* type : {"qwen3", "smollm3", "olmo3", "gemma3_text"})
    for (const Json& layers :
         {Json{"full_attention"}, Json(6, "chunked_attention"), Json("full_attention"), Json(6, 1)})
      EXPECT_THROW(read(with(small_file(type), "layer_types", layers), "test"), Error)
          << type << layers;
  // A window that nobody gave a length.
  for (const char* type : {"olmo3", "gemma3_text"})
    EXPECT_THROW(read(with(small_file(type), "sliding_window", nullptr), "test"), Error) << type;
}

TEST(Read, WindowOfMistral) {
  const ModelConfig whole = read(kMistral, "test");
  EXPECT_EQ(whole.family, &kMistralFamily);
  EXPECT_EQ(whole.context, 8192);
  EXPECT_EQ(whole.window_of(1), 0);
  const ModelConfig short_one = read(with(kMistral, "sliding_window", 128), "test");
  EXPECT_EQ(short_one.window_of(1), 128);
  EXPECT_EQ(short_one.context, 8192);
  // A file without the field has the class's window.
  Json silent = kMistral;
  silent.erase("sliding_window");
  EXPECT_EQ(read(silent, "test").window_of(0), 4096);
  for (const ModelConfig& config : {whole, short_one})
    EXPECT_EQ(read(to_json(config), "what we wrote"), config);
  expect_failure(ExitCode::kDamaged, "sliding_window",
                 [] { read(with(kMistral, "sliding_window", 0), "test"); });
  EXPECT_NO_THROW(read(with(kMistral, "attention_bias", false), "test"));
  expect_failure(ExitCode::kUsage, "attention_bias",
                 [] { read(with(kMistral, "attention_bias", true), "test"); });
}

TEST(Read, SizesCanBeHadOfWhatIsRefused) {
  std::optional<Error> refusal;
  const Json dynamic = {{"rope_type", "dynamic"}, {"factor", 4.0}};
  ModelConfig config = read(with(kMistral, "rope_scaling", dynamic), "test", &refusal);
  EXPECT_EQ(config.layers, 2);
  EXPECT_NE(std::string(refusal->what()).find("rope_scaling"), std::string::npos);
  EXPECT_EQ(refusal->code(), ExitCode::kUsage);
  // Of several the first is kept, with its own exit code.
  Json silent = with(kMistral, "hidden_act", "gelu");
  silent.erase("max_position_embeddings");
  refusal.reset();
  config = read(silent, "test", &refusal);
  EXPECT_NE(std::string(refusal->what()).find("max_position_embeddings"), std::string::npos);
  EXPECT_EQ(refusal->code(), ExitCode::kDamaged);
  // Damage stays damage.
  expect_failure(ExitCode::kDamaged, "n_inner",
                 [&] { read(with(kGpt2, "n_inner", -1), "test", &refusal); });
  expect_failure(ExitCode::kUsage, "mamba",
                 [&] { read(with(kGpt2, "model_type", "mamba"), "test", &refusal); });
}

}  // namespace
}  // namespace octavo::model_config
