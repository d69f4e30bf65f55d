#pragma once
// What a model is, as its config.json or a preset says it: one description for everything that
// needs a model's sizes or its mathematics, without torch.

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/checked.h"
#include "model_config/family.h"

namespace octavo::model_config {

// How rotary positions are stretched to contexts beyond those of the first training.
struct RopeScaling {
  // kLlama3: long wavelengths by `factor`; kLinear: all of them; kYarn: between beta_slow and
  // beta_fast turns within the first context more and more, and cosines and sines are multiplied.
  enum class Kind : uint8_t { kLlama3, kLinear, kYarn };
  Kind kind = Kind::kLlama3;
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 8192;
  double beta_fast = 32, beta_slow = 1, attention_factor = 1;  // of kYarn
  bool operator==(const RopeScaling&) const = default;
};

struct Rope {
  double theta = 10000;
  std::optional<RopeScaling> scaling;
  bool operator==(const Rope&) const = default;
};

// Experts in the place of an MLP: a router sends each token through `active` of `count` of them,
// and adds up what they make of it, each by its weight.
struct Experts {
  int64_t count = 0, active = 0;
  int64_t mlp = 0;            // width of one
  bool renormalized = false;  // the weights of a token's active experts add up to 1
  // Of the loss that balances the experts' load (nn/router.h), where it is in use.
  double balance_weight = 0.001;
  bool balances = false;
  bool operator==(const Experts&) const = default;
};

struct ModelConfig {
  const Family* family = &kGpt2Family;
  int64_t layers = 0, width = 0, mlp = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t vocab = 0;    // tokens, without padding
  int64_t context = 0;  // positions
  int64_t window = 0;   // tokens that attention sees back, itself included; 0: all of them
  double norm_eps = 1e-5;
  Rope rope;  // GPT-2 has learned positions instead
  bool tied = false;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  // Attention's scores are divided by the root of this; 0: of head_dim.
  double query_scalar = 0;
  std::vector<bool> windowed;      // by layer: whether it has the window; empty: all have
  std::vector<bool> rotated;       // by layer: whether it has rotary positions; empty: all have
  std::optional<Rope> local_rope;  // of the layers with a window, when theirs is another
  std::optional<Experts> experts;
  std::vector<bool>
      sparse;  // by layer: whether it has the experts; empty: all have, if there are any

  bool is_gpt2() const { return family == &kGpt2Family; }
  bool is_windowed(int64_t layer) const {
    return windowed.empty() || windowed[static_cast<size_t>(layer)];
  }
  int64_t window_of(int64_t layer) const { return is_windowed(layer) ? window : 0; }
  bool is_rotated(int64_t layer) const {
    return rotated.empty() || rotated[static_cast<size_t>(layer)];
  }
  bool has_local_rope(int64_t layer) const { return local_rope && is_windowed(layer); }
  bool has_experts(int64_t layer) const {
    return experts && (sparse.empty() || sparse[static_cast<size_t>(layer)]);
  }
  int64_t sparse_layers() const {
    int64_t count = 0;
    for (int64_t i = 0; i < layers; ++i) count += has_experts(i) ? 1 : 0;
    return count;
  }
  double softmax_scale() const {
    return 1 / std::sqrt(query_scalar > 0 ? query_scalar : static_cast<double>(head_dim));
  }
  bool operator==(const ModelConfig&) const = default;
};

// Rows of an embedding or head: matrix units prefer a multiple of 64. Those behind the vocabulary
// have neither probability nor gradient.
constexpr int64_t padded_vocab(int64_t vocab) {
  return round_up(vocab, int64_t{64});
}

}  // namespace octavo::model_config
