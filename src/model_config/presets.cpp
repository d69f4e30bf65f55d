#include "model_config/presets.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "model_config/config_file.h"

namespace octavo::model_config {
namespace {

struct Gpt2Preset {
  std::string_view name, hub;
  int64_t layers, heads, width;
};
// tests/models/published/gpt2*.json.
constexpr Gpt2Preset kGpt2[] = {{"gpt2", "openai-community/gpt2", 12, 12, 768},
                                {"gpt2-medium", "openai-community/gpt2-medium", 24, 16, 1024},
                                {"gpt2-large", "openai-community/gpt2-large", 36, 20, 1280},
                                {"gpt2-xl", "openai-community/gpt2-xl", 48, 25, 1600}};
constexpr std::string_view kCustom = "custom";

const Gpt2Preset* find_gpt2(std::string_view name) {
  const auto* found = std::ranges::find(kGpt2, name, &Gpt2Preset::name);
  return found == std::end(kGpt2) ? nullptr : found;
}

struct Published {
  std::string_view name;  // on the hub
  const Family* family;
  int64_t layers, width, mlp, heads, kv_heads, head_dim, vocab, context;
  double norm_eps, theta, factor;  // the latter two of RoPE; 0: not stretched
  bool tied;
  bool instruct;  // whether there is NAME-Instruct beside it
};
// Behind each row where its numbers are from: a file of tests/models/published, or litgpt/config.py
// of github.com/Lightning-AI/litgpt at 26857050fe3f, which names the hub's config.json of each.
// clang-format off
constexpr Published kPublished[] = {
    {"meta-llama/Llama-3.2-1B", &kLlamaFamily, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 1e-5, 5e5, 32, true, true},  // Llama-3.2-1B.json
    {"meta-llama/Llama-3.2-3B", &kLlamaFamily, 28, 3072, 8192, 24, 8, 128, 128256, 131072, 1e-5, 5e5, 32, true, true},  // Llama-3.2-3B.json
    {"meta-llama/Llama-3.1-8B", &kLlamaFamily, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 1e-5, 5e5, 8, false, true},  // Llama-3.1-8B.json
    {"meta-llama/Llama-3.1-70B", &kLlamaFamily, 80, 8192, 28672, 64, 8, 128, 128256, 131072, 1e-5, 5e5, 8, false, true},  // Llama-3.1-70B-Instruct.json
    {"meta-llama/Llama-3.1-405B", &kLlamaFamily, 126, 16384, 53248, 128, 8, 128, 128256, 131072, 1e-5, 5e5, 8, false, true},  // litgpt, line 832
    {"meta-llama/Llama-3.3-70B-Instruct", &kLlamaFamily, 80, 8192, 28672, 64, 8, 128, 128256, 131072, 1e-5, 5e5, 8, false, true},  // Llama-3.3-70B-Instruct.json
    {"meta-llama/Meta-Llama-3-8B", &kLlamaFamily, 32, 4096, 14336, 32, 8, 128, 128256, 8192, 1e-5, 5e5, 0, false, true},  // Meta-Llama-3-8B-Instruct.json
    {"meta-llama/Meta-Llama-3-70B", &kLlamaFamily, 80, 8192, 28672, 64, 8, 128, 128256, 8192, 1e-5, 5e5, 0, false, true},  // litgpt, line 793
    {"meta-llama/Llama-2-7b-hf", &kLlamaFamily, 32, 4096, 11008, 32, 32, 128, 32000, 4096, 1e-5, 1e4, 0, false, false},  // litgpt, line 696
    {"Qwen/Qwen2.5-0.5B", &kQwen2Family, 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e-6, 1e6, 0, true, true},  // Qwen2.5-0.5B.json
    {"Qwen/Qwen2.5-1.5B", &kQwen2Family, 28, 1536, 8960, 12, 2, 128, 151936, 131072, 1e-6, 1e6, 0, true, true},  // Qwen2.5-1.5B-Instruct.json; context: litgpt, line 2283
    {"Qwen/Qwen2.5-3B", &kQwen2Family, 36, 2048, 11008, 16, 2, 128, 151936, 32768, 1e-6, 1e6, 0, true, true},  // Qwen2.5-3B.json
    {"Qwen/Qwen2.5-7B", &kQwen2Family, 28, 3584, 18944, 28, 4, 128, 152064, 131072, 1e-6, 1e6, 0, false, true},  // Qwen2.5-7B.json
    {"Qwen/Qwen2.5-14B", &kQwen2Family, 48, 5120, 13824, 40, 8, 128, 152064, 131072, 1e-5, 1e6, 0, false, true},  // Qwen2.5-14B.json
    {"Qwen/Qwen2.5-32B", &kQwen2Family, 64, 5120, 27648, 40, 8, 128, 152064, 131072, 1e-5, 1e6, 0, false, true},  // Qwen2.5-32B.json
    {"Qwen/Qwen2.5-72B", &kQwen2Family, 80, 8192, 29568, 64, 8, 128, 152064, 131072, 1e-5, 1e6, 0, false, true},  // litgpt, line 2388
    {"HuggingFaceTB/SmolLM2-135M", &kLlamaFamily, 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e-5, 1e5, 0, true, true},  // SmolLM2-135M.json
    {"HuggingFaceTB/SmolLM2-360M", &kLlamaFamily, 32, 960, 2560, 15, 5, 64, 49152, 8192, 1e-5, 1e5, 0, true, true},  // SmolLM2-360M.json; vocabulary: litgpt, line 3097
    {"HuggingFaceTB/SmolLM2-1.7B", &kLlamaFamily, 24, 2048, 8192, 32, 32, 64, 49152, 8192, 1e-5, 1.3e5, 0, true, true},  // SmolLM2-1.7B.json
    {"Qwen/Qwen3-0.6B", &kQwen3Family, 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e-6, 1e6, 0, true, false},  // litgpt, line 2720
    {"Qwen/Qwen3-1.7B", &kQwen3Family, 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e-6, 1e6, 0, true, false},  // litgpt, line 2742
    {"Qwen/Qwen3-4B", &kQwen3Family, 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e-6, 1e6, 0, true, false},  // litgpt, line 2763
    {"Qwen/Qwen3-8B", &kQwen3Family, 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e-6, 1e6, 0, false, false},  // litgpt, line 2785
    {"Qwen/Qwen3-14B", &kQwen3Family, 40, 5120, 17408, 40, 8, 128, 151936, 40960, 1e-6, 1e6, 0, false, false},  // litgpt, line 2806
    {"Qwen/Qwen3-32B", &kQwen3Family, 64, 5120, 25600, 64, 8, 128, 151936, 40960, 1e-6, 1e6, 0, false, false},  // litgpt, line 2835
    {"mistralai/Mistral-7B-v0.3", &kMistralFamily, 32, 4096, 14336, 32, 8, 128, 32768, 32768, 1e-5, 1e6, 0, false, false},  // litgpt, line 2095
};
// clang-format on

// Models whose layers differ: the fields of their config.json that make the model, without those
// that are the family's usual ones.
struct PublishedFile {
  std::string_view name;  // on the hub
  const char* fields;
};
constexpr PublishedFile kPublishedFiles[] = {
    {"Qwen/Qwen3-30B-A3B",
     R"({"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048,
         "intermediate_size": 6144, "num_attention_heads": 32, "num_key_value_heads": 4,
         "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
         "rope_theta": 1000000.0, "num_experts": 128, "num_experts_per_tok": 8,
         "moe_intermediate_size": 768, "norm_topk_prob": true})"},
    {"Qwen/Qwen3-235B-A22B",
     R"({"model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096,
         "intermediate_size": 12288, "num_attention_heads": 64, "num_key_value_heads": 4,
         "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
         "rope_theta": 1000000.0, "num_experts": 128, "num_experts_per_tok": 8,
         "moe_intermediate_size": 1536, "norm_topk_prob": true})"},
    {"HuggingFaceTB/SmolLM3-3B",
     R"({"model_type": "smollm3", "num_hidden_layers": 36, "hidden_size": 2048,
         "intermediate_size": 11008, "num_attention_heads": 16, "num_key_value_heads": 4,
         "vocab_size": 128256, "max_position_embeddings": 65536, "rope_theta": 5000000.0})"},
    {"allenai/OLMo-2-1124-7B",
     R"({"model_type": "olmo2", "num_hidden_layers": 32, "hidden_size": 4096,
         "intermediate_size": 11008, "num_attention_heads": 32, "vocab_size": 100352,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 500000.0})"},
    {"allenai/OLMo-2-1124-13B",
     R"({"model_type": "olmo2", "num_hidden_layers": 40, "hidden_size": 5120,
         "intermediate_size": 13824, "num_attention_heads": 40, "vocab_size": 100352,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 500000.0})"},
    {"allenai/Olmo-3-1025-7B",
     R"({"model_type": "olmo3", "num_hidden_layers": 32, "hidden_size": 4096,
         "intermediate_size": 11008, "num_attention_heads": 32, "vocab_size": 100278,
         "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
         "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
             "original_max_position_embeddings": 8192, "attention_factor": 1.2079441541679836}})"},
    {"allenai/Olmo-3-1125-32B",
     R"({"model_type": "olmo3", "num_hidden_layers": 64, "hidden_size": 5120,
         "intermediate_size": 27648, "num_attention_heads": 40, "num_key_value_heads": 8,
         "vocab_size": 100278, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
         "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
             "original_max_position_embeddings": 8192, "attention_factor": 1.2079441541679836}})"},
    {"google/gemma-3-1b-pt",
     R"({"model_type": "gemma3_text", "num_hidden_layers": 26, "hidden_size": 1152,
         "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1,
         "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 512,
         "vocab_size": 262144, "max_position_embeddings": 32768})"},
    // The text part of a model that also reads images.
    {"google/gemma-3-27b-pt",
     R"({"model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376,
         "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 16,
         "head_dim": 128, "query_pre_attn_scalar": 168, "sliding_window": 1024,
         "vocab_size": 262208, "max_position_embeddings": 131072,
         "rope_scaling": {"rope_type": "linear", "factor": 8.0}})"},
};

// What people call a model without its date or version.
constexpr std::pair<std::string_view, std::string_view> kShortNames[] = {
    {"mistral7b", "mistral7bv03"},
    {"olmo27b", "olmo211247b"},
    {"olmo213b", "olmo2112413b"},
    {"olmo37b", "olmo310257b"},
    {"olmo332b", "olmo3112532b"}};

ModelConfig config_of(const PublishedFile& p) {
  return read(parse_json(p.fields, p.name), std::string(p.name));
}

ModelConfig config_of(const Published& p) {
  ModelConfig config{.family = p.family,
                     .layers = p.layers,
                     .width = p.width,
                     .mlp = p.mlp,
                     .heads = p.heads,
                     .kv_heads = p.kv_heads,
                     .head_dim = p.head_dim,
                     .vocab = p.vocab,
                     .context = p.context,
                     .norm_eps = p.norm_eps,
                     .rope = {.theta = p.theta, .scaling = {}},
                     .tied = p.tied,
                     .qkv_bias = p.family == &kQwen2Family};
  if (p.factor > 0) config.rope.scaling = RopeScaling{.factor = p.factor};
  return config;
}

ModelConfig config_of(const Gpt2Preset& p) {
  return gpt2({.layers = p.layers, .heads = p.heads, .width = p.width});
}

// A name in small letters, without its owner and without what it was tuned for.
struct PlainName {
  std::string text;
  bool is_tuned = false;
};

PlainName plain(std::string_view given) {
  PlainName name{std::string(given.substr(given.rfind('/') + 1))};  // npos + 1 is 0
  for (char& letter : name.text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    if (letter == ' ' || letter == '_' || letter == ':') letter = '-';
  }
  for (const std::string_view suffix : {"-hf", "-instruct", "-chat", "-base", "-pt", "-it"}) {
    if (!name.text.ends_with(suffix)) continue;
    name.text.erase(name.text.size() - suffix.size());
    name.is_tuned |= suffix == "-instruct" || suffix == "-chat" || suffix == "-it";
  }
  if (name.text.starts_with("meta-llama")) name.text.erase(0, std::string_view("meta-").size());
  return name;
}

// What spellings have in common: "llama-3.1-8b", "Llama 3.1 8B" and "llama31-8b" are one name.
std::string letters_of(const PlainName& name) {
  std::string letters;
  for (const char c : name.text)
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) letters += c;
  return letters;
}

std::string letters_of(std::string_view name) {
  std::string letters = letters_of(plain(name));
  for (const auto& [brief, whole] : kShortNames)
    if (letters == brief) return std::string(whole);
  return letters;
}

// The row of a table that has the name, by any spelling.
template <class Row, size_t kRows>
const Row* find_row(const Row (&table)[kRows], std::string_view name) {
  const std::string wanted = letters_of(name);
  const auto* found =
      std::ranges::find_if(table, [&](const Row& row) { return letters_of(row.name) == wanted; });
  return found == std::end(table) ? nullptr : found;
}

const Published* find_published(std::string_view name) {
  return find_row(kPublished, name);
}

const Gpt2Preset* find_published_gpt2(std::string_view name) {
  return find_row(kGpt2, name);
}

}  // namespace

ModelConfig gpt2(const Gpt2Sizes& sizes) {
  return {.family = &kGpt2Family,
          .layers = sizes.layers,
          .width = sizes.width,
          .mlp = 4 * sizes.width,
          .heads = sizes.heads,
          .kv_heads = sizes.heads,
          .head_dim = sizes.width / sizes.heads,
          .vocab = sizes.vocab,
          .context = sizes.context,
          .tied = true,
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true};
}

bool is_built_in(std::string_view name) {
  return name == kCustom || find_gpt2(name) != nullptr;
}

ModelConfig built_in(std::string_view name, const Gpt2Sizes& keys) {
  const Gpt2Preset* preset = find_gpt2(name);
  if (preset == nullptr && name != kCustom)
    fail(ExitCode::kUsage, "model_config", "model_name '", name,
         "' is neither gpt2, gpt2-medium, gpt2-large, gpt2-xl, custom, nor a folder with "
         "config.json");
  Gpt2Sizes sizes = keys;
  if (preset != nullptr) {
    if (sizes.layers < 1) sizes.layers = preset->layers;
    if (sizes.heads < 1) sizes.heads = preset->heads;
    if (sizes.width < 1) sizes.width = preset->width;
  }
  if (sizes.layers < 1 || sizes.heads < 1 || sizes.width < 1)
    fail(ExitCode::kUsage, "model_config",
         "model_name custom: wanted n_layer, n_head and n_embd of at least 1, found ", sizes.layers,
         ", ", sizes.heads, " and ", sizes.width, "; give all three");
  if (sizes.width % sizes.heads != 0)
    fail(ExitCode::kUsage, "model_config", "n_embd ", sizes.width, " is not a multiple of n_head ",
         sizes.heads);
  return gpt2(sizes);
}

std::optional<Preset> published(std::string_view name) {
  if (const Published* row = find_published(name))
    return Preset{plain(row->name).text, config_of(*row)};
  if (const PublishedFile* row = find_row(kPublishedFiles, name))
    return Preset{plain(row->name).text, config_of(*row)};
  if (const Gpt2Preset* row = find_published_gpt2(name))
    return Preset{std::string(row->name), config_of(*row)};
  return std::nullopt;
}

std::vector<std::string_view> published_names() {
  std::vector<std::string_view> names;
  for (const Gpt2Preset& p : kGpt2) names.push_back(p.hub);
  for (const Published& p : kPublished) names.push_back(p.name);
  for (const PublishedFile& p : kPublishedFiles) names.push_back(p.name);
  return names;
}

std::optional<std::string> hub_name(std::string_view given) {
  if (given.find_first_of("/@") != given.npos) return std::nullopt;
  const bool is_tuned = plain(given).is_tuned;
  if (const Published* row = find_published(given)) {
    std::string name(row->name);
    if (is_tuned && !row->instruct) return std::nullopt;
    if (is_tuned && !name.ends_with("-Instruct")) name += "-Instruct";
    return name;
  }
  if (const PublishedFile* row = is_tuned ? nullptr : find_row(kPublishedFiles, given))
    return std::string(row->name);
  const Gpt2Preset* row = is_tuned ? nullptr : find_published_gpt2(given);
  return row == nullptr ? std::nullopt : std::optional<std::string>(row->hub);
}

std::string_view unsupported_family(std::string_view name) {
  struct Other {
    std::string_view begins, title;
  };
  // Their config.json would be refused: transformers computes them in another way.
  static constexpr Other kOthers[] = {{"qwen3codernext", "Qwen3-Next"},
                                      {"qwen3next", "Qwen3-Next"},
                                      {"qwen3vl", "Qwen3-VL"},
                                      {"qwen35", "Qwen3.5"},
                                      {"gptoss", "gpt-oss"},
                                      {"gemma2", "Gemma 2"},
                                      {"gemma7b", "Gemma"},
                                      {"gemma3n", "Gemma 3n"},
                                      {"gemma34b", "Gemma 3 with images"},
                                      {"gemma312b", "Gemma 3 with images"},
                                      {"gemma327b", "Gemma 3 with images"},
                                      {"phi3", "Phi-3"},
                                      {"phi4", "Phi-4"},
                                      {"ministral", "Ministral"},
                                      {"mixtral", "Mixtral"},
                                      {"deepseekv2", "DeepSeek-V2"},
                                      {"deepseekv3", "DeepSeek-V3"},
                                      {"llama4", "Llama 4"}};
  const std::string letters = letters_of(name);
  for (const Other& other : kOthers)
    if (letters.starts_with(other.begins)) return other.title;
  return {};
}

}  // namespace octavo::model_config
