#include "models/llama/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "engine/range.h"
#include "model_config/config_file.h"
#include "models/model_base.h"
#include "nn/blocks.h"
#include "nn/kv_cache.h"
#include "nn/layers.h"
#include "nn/mixture.h"
#include "nn/rope.h"

namespace octavo::models::llama {
namespace {

using at::Tensor;
using nn::ParamPtr;

using model_config::NormPlace;
using model_config::QkNorm;

struct Block {
  // Those that a family has not are without gamma.
  nn::Norm before_attention, after_attention, before_mlp, after_mlp, queries, keys;
  nn::LinearPtr qkv, out;
  nn::Mlp mlp;          // or
  nn::Mixture mixture;  // of experts
};

engine::Activation activation_of(model_config::MlpKind kind) {
  return kind == model_config::MlpKind::kGeGlu ? engine::Activation::kGeGlu
                                               : engine::Activation::kSwiGlu;
}

class Llama final : public ModelBase {
 public:
  Llama(const ModelConfig& config, const engine::Engine& engine, const nn::Storage& storage)
      : ModelBase(engine, storage),
        config_(config),
        family_(*config.family),
        rope_(config.head_dim, config.rope),
        local_rope_(config.head_dim, config.local_rope.value_or(config.rope)) {
    const int64_t c = config.width, q = config.heads * config.head_dim,
                  kv = config.kv_heads * config.head_dim;
    embedding_ = vocabulary("embed_tokens.weight", config.vocab, c);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string l = "layers." + std::to_string(i) + ".";
      begin_block(i);
      Block b;
      if (family_.norms != NormPlace::kAfter) b.before_attention = norm(l + "input_layernorm", c);
      b.qkv = linear(l + "self_attn.qkv_proj", i, q + 2 * kv, c, config.qkv_bias);
      if (family_.qk_norm != QkNorm::kNone) {
        const bool by_head = family_.qk_norm == QkNorm::kHead;
        b.queries = norm(l + "self_attn.q_norm", by_head ? config.head_dim : q);
        b.keys = norm(l + "self_attn.k_norm", by_head ? config.head_dim : kv);
      }
      b.out = linear(l + "self_attn.o_proj", i, c, q, config.out_bias);
      // Llama's name for the norm before the MLP is what others call that after attention.
      nn::Norm& middle = family_.norms == NormPlace::kBefore ? b.before_mlp : b.after_attention;
      middle = norm(l + "post_attention_layernorm", c);
      if (family_.norms == NormPlace::kBoth)
        b.before_mlp = norm(l + "pre_feedforward_layernorm", c);
      if (config.has_experts(i))
        b.mixture = mixture(l + "mlp.", i);
      else
        b.mlp = mlp(l + "mlp.", i, config.mlp);
      if (family_.norms != NormPlace::kBefore)
        b.after_mlp = norm(l + "post_feedforward_layernorm", c);
      blocks_.push_back(b);
    }
    end_blocks();
    if (config.experts) routing_ = std::make_unique<nn::Routing>(routing_sizes());
    last_norm_ = norm("norm", c);
    head_ = config.tied ? embedding_ : vocabulary("lm_head.weight", config.vocab, c);
  }

  Tensor hidden(const nn::Tokens& input, nn::Penalty* penalty) const override {
    // Shared with blocks that run again in the backward pass.
    const auto tokens = std::make_shared<const nn::Tokens>(input);
    Tensor x = nn::embed(engine_, *tokens, embedding_, {}), delta;
    if (family_.scales_embedding) x = x * embedding_scale();
    for (const Block& b : blocks_) {
      // The residual addition of a branch is part of the norm that follows it.
      const auto block = [this, &b, tokens](const Tensor& stream, const Tensor& branch) {
        const engine::Range range("block", b.qkv->block);
        const nn::AttentionHeads shape = heads(b.qkv->block);
        auto [sum, qkv] = nn::norm_linear(engine_, stream, branch, b.before_attention, b.qkv);
        if (b.queries.gamma) qkv = nn::qk_norm(engine_, qkv, shape, b.queries, b.keys);
        const Tensor mixed = nn::attention(engine_, qkv, *tokens, shape);
        const Tensor attended = after(b.after_attention, nn::linear(engine_, mixed, b.out));
        if (b.mixture.router) {
          const auto [last, normed] = nn::add_norm(engine_, sum, attended, b.before_mlp);
          return std::pair(last,
                           after(b.after_mlp, nn::mixture(engine_, normed, b.mixture, *routing_)));
        }
        const auto [last, made] = nn::norm_mlp(engine_, sum, attended, b.before_mlp, b.mlp);
        return std::pair(last, after(b.after_mlp, made));
      };
      std::tie(x, delta) = run_block(b.qkv->block, block, x, delta);
      if (penalty != nullptr)
        x = nn::penalize(x, *penalty, 1.0 / static_cast<double>(config_.layers));
    }
    if (tokens->cache != nullptr) tokens->cache->length += tokens->ids.size(0);
    return nn::add_norm(engine_, x, delta, last_norm_).second;
  }

  nn::Routing* routing() const override { return routing_.get(); }
  const ParamPtr& head() const override { return head_; }
  int64_t vocab_size() const override { return config_.vocab; }
  int64_t context() const override { return config_.context; }
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
  std::string architecture() const override { return family_.model_type; }
  double attention_work(int64_t length) const override {
    const auto n = static_cast<double>(length),
               width = static_cast<double>(config_.heads * config_.head_dim);
    double work = 0;
    for (int64_t i = 0; i < config_.layers; ++i) {
      const int64_t window = config_.window_of(i);
      const double seen = static_cast<double>(window > 0 ? std::min(window, length) : length);
      work += width * seen * (1 - seen / (2 * n));
    }
    return work;
  }
  float initial_scale() const override { return family_.norms_add_one ? 0.0f : 1.0f; }
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
  nn::Norm norm(const std::string& name, int64_t width) {
    return {vector(name + ".weight", width), {}, config_.norm_eps, family_.norms_add_one};
  }
  nn::Mlp mlp(const std::string& name, int64_t block, int64_t width) {
    const int64_t c = config_.width;
    nn::Mlp made{.up = {}, .activation = activation_of(family_.mlp), .down = {}};
    made.up = linear(name + "gate_up_proj", block, 2 * width, c, config_.mlp_bias);
    made.down = linear(name + "down_proj", block, c, width, config_.mlp_bias);
    return made;
  }
  nn::Mixture mixture(const std::string& name, int64_t block) {
    const model_config::Experts& experts = *config_.experts;
    nn::Mixture made;
    made.router = matrix(name + "gate.weight", experts.count, config_.width);
    for (int64_t i = 0; i < experts.count; ++i) {
      const std::string expert = name + "experts." + std::to_string(i) + ".";
      made.experts.push_back(mlp(expert, block, experts.mlp));
      for (const nn::LinearPtr& layer : {made.experts.back().up, made.experts.back().down}) {
        layer->expert = true;
        layer->share = static_cast<double>(experts.active) / static_cast<double>(experts.count);
      }
    }
    made.active = experts.active;
    made.renormalized = experts.renormalized;
    made.layer = sparse_layers_++;
    return made;
  }
  nn::RoutingSizes routing_sizes() const {
    const model_config::Experts& experts = *config_.experts;
    return {.layers = sparse_layers_,
            .experts = experts.count,
            .active = experts.active,
            .weights = sparse_layers_ * experts.count * config_.width,
            .balance_weight = experts.balances ? experts.balance_weight : 0};
  }
  Tensor after(const nn::Norm& norm, const Tensor& branch) const {
    return norm.gamma ? nn::add_norm(engine_, branch, {}, norm).second : branch;
  }
  // Rounded as the embeddings are: the models were trained with that.
  double embedding_scale() const {
    const auto scale = static_cast<float>(std::sqrt(static_cast<double>(config_.width)));
    return engine_.target.compute == at::kBFloat16 ? static_cast<float>(at::BFloat16(scale))
                                                   : scale;
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
    nn::RopeTable* rope = config_.has_local_rope(layer) ? &local_rope_ : &rope_;
    return {.heads = config_.heads,
            .kv_heads = config_.kv_heads,
            .dim = config_.head_dim,
            .rope = config_.is_rotated(layer) ? rope : nullptr,
            .layer = layer,
            .window = config_.window_of(layer),
            .scale = config_.query_scalar > 0 ? config_.softmax_scale() : 0};
  }

  ModelConfig config_;
  const model_config::Family& family_;
  mutable nn::RopeTable rope_, local_rope_;  // grow with the longest sequence seen
  ParamPtr embedding_, head_;
  nn::Norm last_norm_;
  std::vector<Block> blocks_;
  int64_t sparse_layers_ = 0;
  std::unique_ptr<nn::Routing> routing_;  // of a model with experts
};

}  // namespace

std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage) {
  return std::make_unique<Llama>(config, engine, storage);
}

}  // namespace octavo::models::llama
