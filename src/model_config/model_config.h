#pragma once
// What a model is, as its config.json or a preset says it: one description for everything that
// needs a model's sizes or its mathematics, without torch.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/checked.h"

namespace octavo::model_config {

// Llama: also SmolLM2. Qwen2: Llama with biases on queries, keys and values. Mistral: Llama, up to
// the length of its sliding window.
enum class Family { kGpt2, kLlama, kQwen2, kMistral };
struct FamilyNames {
  const char *model_type, *architecture;  // as config.json has them
  const char* title;                      // for messages
};
inline constexpr FamilyNames kFamilies[] = {{"gpt2", "GPT2LMHeadModel", "GPT-2"},
                                            {"llama", "LlamaForCausalLM", "Llama"},
                                            {"qwen2", "Qwen2ForCausalLM", "Qwen2"},
                                            {"mistral", "MistralForCausalLM", "Mistral"}};
constexpr const FamilyNames& names_of(Family family) {
  return kFamilies[static_cast<int>(family)];
}

struct RopeScaling {  // of Llama 3.1: long wavelengths are stretched by `factor`
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct Rope {
  double theta = 10000;
  std::optional<RopeScaling> scaling;
  bool operator==(const Rope&) const = default;
};

struct ModelConfig {
  Family family = Family::kGpt2;
  int64_t layers = 0, width = 0, mlp = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t vocab = 0;    // tokens, without padding
  int64_t context = 0;  // positions
  int64_t window = 0;   // tokens that attention sees back; 0: all of them
  double norm_eps = 1e-5;
  Rope rope;  // GPT-2 has learned positions instead
  bool tied = false;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;

  bool is_gpt2() const { return family == Family::kGpt2; }
  // Attention has no window here: within one, the model is the same without it.
  int64_t longest_sequence() const { return window > 0 ? std::min(context, window) : context; }
  bool operator==(const ModelConfig&) const = default;
};

// Rows of an embedding or head: matrix units prefer a multiple of 64. Those behind the vocabulary
// have neither probability nor gradient.
constexpr int64_t padded_vocab(int64_t vocab) {
  return round_up(vocab, int64_t{64});
}

}  // namespace octavo::model_config
