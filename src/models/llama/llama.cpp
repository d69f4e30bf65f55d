#include "models/llama/llama.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "engine/range.h"
#include "model_config/config_file.h"
#include "models/model_base.h"
#include "nn/blocks.h"
#include "nn/kv_cache.h"
#include "nn/layers.h"
#include "nn/rope.h"

namespace octavo::models::llama {
namespace {

using at::Tensor;
using nn::ParamPtr;

struct Block {
  nn::Norm norm1, norm2;
  nn::LinearPtr qkv, out;
  nn::Mlp mlp;
};

class Llama final : public ModelBase {
 public:
  Llama(const ModelConfig& config, const engine::Engine& engine, const nn::Storage& storage)
      : ModelBase(engine, storage), config_(config), rope_(config.head_dim, config.rope) {
    const int64_t c = config.width, q = config.heads * config.head_dim,
                  kv = config.kv_heads * config.head_dim;
    embedding_ = vocabulary("embed_tokens.weight", config.vocab, c);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string l = "layers." + std::to_string(i) + ".";
      begin_block(i);
      Block b;
      b.norm1 = norm(l + "input_layernorm");
      b.qkv = linear(l + "self_attn.qkv_proj", i, q + 2 * kv, c, config.qkv_bias);
      b.out = linear(l + "self_attn.o_proj", i, c, q, config.out_bias);
      b.norm2 = norm(l + "post_attention_layernorm");
      b.mlp.activation = engine::Activation::kSwiGlu;
      b.mlp.up = linear(l + "mlp.gate_up_proj", i, 2 * config.mlp, c, config.mlp_bias);
      b.mlp.down = linear(l + "mlp.down_proj", i, c, config.mlp, config.mlp_bias);
      blocks_.push_back(b);
    }
    end_blocks();
    last_norm_ = norm("norm");
    head_ = config.tied ? embedding_ : vocabulary("lm_head.weight", config.vocab, c);
  }

  Tensor hidden(const nn::Tokens& input, nn::Penalty* penalty) const override {
    check_window(input);
    // Shared with blocks that run again in the backward pass.
    const auto tokens = std::make_shared<const nn::Tokens>(input);
    Tensor x = nn::embed(engine_, *tokens, embedding_, {}), delta;
    for (const Block& b : blocks_) {
      // The residual addition of a branch is part of the norm that follows it.
      const auto block = [this, &b, tokens](const Tensor& stream, const Tensor& branch) {
        const engine::Range range("block", b.qkv->block);
        const auto [sum, qkv] = nn::norm_linear(engine_, stream, branch, b.norm1, b.qkv);
        const Tensor mixed = nn::attention(engine_, qkv, *tokens, heads(b.qkv->block));
        const Tensor attended = nn::linear(engine_, mixed, b.out);
        return nn::norm_mlp(engine_, sum, attended, b.norm2, b.mlp);
      };
      std::tie(x, delta) = run_block(b.qkv->block, block, x, delta);
      if (penalty != nullptr)
        x = nn::penalize(x, *penalty, 1.0 / static_cast<double>(config_.layers));
    }
    if (tokens->cache != nullptr) tokens->cache->length += tokens->ids.size(0);
    return nn::add_norm(engine_, x, delta, last_norm_).second;
  }

  const ParamPtr& head() const override { return head_; }
  int64_t vocab_size() const override { return config_.vocab; }
  int64_t context() const override { return config_.longest_sequence(); }
  nn::KvCache make_cache(int64_t capacity) const override {
    return {config_.layers, capacity, config_.kv_heads * config_.head_dim,
            at::TensorOptions(engine_.target.device).dtype(engine_.target.compute)};
  }
  Json hugging_face_config() const override { return model_config::to_json(config_); }

  bool may_ignore(const std::string& name, const Tensor& tensor) const override {
    // Old files keep the frequencies of RoPE; a head that equals the embedding is written twice.
    if (name.ends_with(".rotary_emb.inv_freq")) return true;
    return config_.tied && is_tied_head(name, tensor);
  }

 protected:
  std::string architecture() const override {
    return model_config::names_of(config_.family).model_type;
  }
  int64_t attention_channels() const override {
    return config_.layers * config_.heads * config_.head_dim;
  }
  float initial_deviation(const nn::Param&) const override { return 0.02f; }

  std::vector<FilePart> parts_of(const nn::Param& p) const override {
    const int64_t rows = p.sizes()[0];
    if (&p == embedding_.get() || &p == head_.get())
      return {{.name = p.name == "lm_head.weight" ? p.name : "model." + p.name,
               .old_name = {},
               .rows = config_.vocab}};
    const int64_t q = config_.heads * config_.head_dim, kv = config_.kv_heads * config_.head_dim;
    if (p.name.find(".qkv_proj.") != std::string::npos)
      return split(p.name, "qkv_proj", {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}});
    if (p.name.find(".gate_up_proj.") != std::string::npos)
      return split(p.name, "gate_up_proj", {{"gate_proj", rows / 2}, {"up_proj", rows / 2}});
    return {{.name = "model." + p.name, .old_name = {}, .rows = rows}};
  }

 private:
  // Behind it attention would see more than the model was trained to.
  void check_window(const nn::Tokens& input) const {
    if (config_.window > 0 && input.sequences.longest > config_.window)
      fail(ExitCode::kUsage, "models", "wanted sequences within the sliding window of ",
           config_.window, " tokens, found one of ", input.sequences.longest, "; shorten it");
  }
  nn::Norm norm(const std::string& name) {
    return {vector(name + ".weight", config_.width), {}, config_.norm_eps};
  }
  // The tensors of a file that make up one of our parameters.
  static std::vector<FilePart> split(
      const std::string& name, const std::string& ours,
      std::initializer_list<std::pair<const char*, int64_t>> theirs) {
    std::vector<FilePart> parts;
    int64_t first = 0;
    for (const auto& [part, rows] : theirs) {
      std::string full = "model." + name;
      full.replace(full.find(ours), ours.size(), part);
      parts.push_back({.name = full, .old_name = {}, .first_row = first, .rows = rows});
      first += rows;
    }
    return parts;
  }

  nn::AttentionHeads heads(int64_t layer) const {
    return {config_.heads, config_.kv_heads, config_.head_dim, &rope_, layer};
  }

  ModelConfig config_;
  mutable nn::RopeTable rope_;  // grows with the longest sequence seen
  ParamPtr embedding_, head_;
  nn::Norm last_norm_;
  std::vector<Block> blocks_;
};

}  // namespace

std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage) {
  return std::make_unique<Llama>(config, engine, storage);
}

}  // namespace octavo::models::llama
