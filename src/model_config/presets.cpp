#include "model_config/presets.h"

#include <algorithm>

#include "base/error.h"

namespace octavo::model_config {
namespace {

struct Gpt2Preset {
  std::string_view name;
  int64_t layers, heads, width;
};
constexpr Gpt2Preset kGpt2[] = {{"gpt2", 12, 12, 768},
                                {"gpt2-medium", 24, 16, 1024},
                                {"gpt2-large", 36, 20, 1280},
                                {"gpt2-xl", 48, 25, 1600}};
constexpr std::string_view kCustom = "custom";

const Gpt2Preset* find_gpt2(std::string_view name) {
  const auto* found = std::ranges::find(kGpt2, name, &Gpt2Preset::name);
  return found == std::end(kGpt2) ? nullptr : found;
}

struct Published {
  std::string_view name;  // on the hub
  Family family;
  int64_t layers, width, mlp, heads, kv_heads, head_dim, vocab, context;
  double norm_eps, theta, factor;  // the latter two of RoPE; 0: not stretched
  bool tied;
};
// clang-format off
constexpr Published kPublished[] = {
    {"meta-llama/Llama-3.2-1B", Family::kLlama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 1e-5, 5e5, 32, true},
    {"meta-llama/Llama-3.2-3B", Family::kLlama, 28, 3072, 8192, 24, 8, 128, 128256, 131072, 1e-5, 5e5, 32, true},
    {"meta-llama/Llama-3.1-8B", Family::kLlama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 1e-5, 5e5, 8, false},
    {"meta-llama/Llama-3.1-70B", Family::kLlama, 80, 8192, 28672, 64, 8, 128, 128256, 131072, 1e-5, 5e5, 8, false},
    {"meta-llama/Llama-3.1-405B", Family::kLlama, 126, 16384, 53248, 128, 8, 128, 128256, 131072, 1e-5, 5e5, 8, false},
    {"meta-llama/Llama-2-7b", Family::kLlama, 32, 4096, 11008, 32, 32, 128, 32000, 4096, 1e-5, 1e4, 0, false},
    {"Qwen/Qwen2.5-0.5B", Family::kQwen2, 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e-6, 1e6, 0, true},
    {"Qwen/Qwen2.5-1.5B", Family::kQwen2, 28, 1536, 8960, 12, 2, 128, 151936, 131072, 1e-6, 1e6, 0, true},
    {"Qwen/Qwen2.5-3B", Family::kQwen2, 36, 2048, 11008, 16, 2, 128, 151936, 32768, 1e-6, 1e6, 0, true},
    {"Qwen/Qwen2.5-7B", Family::kQwen2, 28, 3584, 18944, 28, 4, 128, 152064, 131072, 1e-6, 1e6, 0, false},
    {"Qwen/Qwen2.5-14B", Family::kQwen2, 48, 5120, 13824, 40, 8, 128, 152064, 131072, 1e-5, 1e6, 0, false},
};
// clang-format on

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
                     .qkv_bias = p.family == Family::kQwen2};
  if (p.factor > 0) config.rope.scaling = RopeScaling{.factor = p.factor};
  return config;
}

// Without the owner and what it was tuned for, in small letters.
std::string plain(std::string_view given) {
  std::string name(given);
  if (const size_t slash = name.rfind('/'); slash != std::string::npos) name.erase(0, slash + 1);
  for (char& letter : name)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  for (const std::string_view suffix : {"-instruct", "-base"})
    if (name.ends_with(suffix)) name.erase(name.size() - suffix.size());
  return name;
}

}  // namespace

ModelConfig gpt2(const Gpt2Sizes& sizes) {
  return {.family = Family::kGpt2,
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
  const std::string wanted = plain(name);
  for (const Published& p : kPublished)
    if (plain(p.name) == wanted) return Preset{wanted, config_of(p)};
  return std::nullopt;
}

std::vector<std::string_view> published_names() {
  std::vector<std::string_view> names;
  for (const Published& p : kPublished) names.push_back(p.name);
  return names;
}

}  // namespace octavo::model_config
