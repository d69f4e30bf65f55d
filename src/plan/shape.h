#pragma once
// What a forecast needs to know of a model: its sizes, from a preset, a config.json or the keys.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"
#include "model_config/model_config.h"

namespace octavo::plan {

constexpr double kGiga = 1e9;

// Bytes of a master weight, moment or gradient.
inline double bytes_of(config::StateType type) {
  return type == config::StateType::kFp32 ? 4 : type == config::StateType::kBf16 ? 2 : 1;
}

struct Shape {
  std::string name;
  const model_config::Family* family = &model_config::kLlamaFamily;
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t vocab = 0;      // rows of the embedding, padding included
  int64_t tokens = 0;     // rows without padding
  int64_t positions = 0;  // rows of a learned position embedding; 0: rotary
  bool gated = true;      // a gate and up in one GEMM, or up alone
  bool tied = false;      // the head is the embedding
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  int64_t window = 0, windowed_layers = 0;  // tokens that so many layers see back
  // Experts of a layer, those that a token goes through, and the width of one; 0: there are none.
  int64_t experts = 0, active_experts = 0, expert_ffn = 0;
  std::vector<bool> sparse;  // by layer: whether it has experts in the place of its MLP
  std::string refusal;       // why train cannot run this model; empty: it can

  bool is_gpt2() const { return family == &model_config::kGpt2Family; }
  int64_t query_width() const { return heads * head_dim; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  // Values of the norms of queries and keys.
  int64_t qk_norm_values() const {
    if (family->qk_norm == model_config::QkNorm::kNone) return 0;
    return family->qk_norm == model_config::QkNorm::kHead ? 2 * head_dim
                                                          : (heads + kv_heads) * head_dim;
  }
  int64_t up_width() const { return gated ? 2 * ffn : ffn; }
  bool is_sparse(int64_t layer) const { return experts > 0 && sparse[static_cast<size_t>(layer)]; }
  int64_t sparse_layers() const {
    return experts > 0 ? std::count(sparse.begin(), sparse.end(), true) : 0;
  }
  int64_t dense_layers() const { return layers - sparse_layers(); }
};

// Linear layers of `outputs` x `inputs` weights that lie at the same place of a block.
struct LinearShape {
  const char* name;
  int64_t outputs, inputs;
  enum class Place : uint8_t { kAttention, kMlp, kExpert };
  Place place = Place::kAttention;
  int64_t count = 1;  // of them in the model
  double share = 1;   // of the tokens, that each of them sees: less than 1 of experts

  double weights() const { return static_cast<double>(count * outputs * inputs); }
};
// Of the work of causal attention over `length` tokens in every layer, what windows leave.
double attention_share(const Shape& shape, int64_t length);
std::vector<LinearShape> block_linears(const Shape& shape);

int64_t matrix_parameters(const Shape& shape);  // of the blocks' linear layers and routers
int64_t router_parameters(const Shape& shape);
int64_t head_parameters(const Shape& shape);    // embedding, head and positions
int64_t vector_parameters(const Shape& shape);  // norms and biases
int64_t parameters(const Shape& shape);         // what memory holds
int64_t active_parameters(const Shape& shape);  // what one token goes through

// Where adapters sit: on every linear layer, on q, k, v and o, or on q, k and v taken as one layer.
enum class LoraTargets { kAll, kAttention, kQkv };
// As lora_target_modules says; names of attention alone are all of attention.
LoraTargets lora_targets(const config::Settings& settings);
// The modules of a block that have an adapter each.
std::vector<LinearShape> adapted_modules(const Shape& shape, LoraTargets targets);
// Values that adapters of `rank` on them add.
int64_t lora_parameters(const Shape& shape, int64_t rank, LoraTargets targets);

// Tokens that a model of GPT-2's presets, or custom, would have: vocab_size, or what the prepared
// data or the tokenizer of the settings has, or bytes for custom on a text, or else GPT-2's.
int64_t vocabulary_of(const config::Settings& settings);

Shape shape_of(const model_config::ModelConfig& model, const std::string& name);
// gpt2, gpt2-medium, gpt2-large, gpt2-xl, custom, a folder (or hub name in the cache) that holds
// a config.json, or the name of a published model that has a preset. Never reads weights.
Shape shape_of(const config::Settings& settings);

}  // namespace octavo::plan
