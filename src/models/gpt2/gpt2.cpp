#include "models/gpt2/gpt2.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "engine/range.h"
#include "model_config/config_file.h"
#include "models/model_base.h"
#include "nn/blocks.h"
#include "nn/kv_cache.h"
#include "nn/layers.h"

namespace octavo::models::gpt2 {
namespace {

using at::Tensor;
using nn::ParamPtr;

struct Block {
  nn::Norm norm1, norm2;
  nn::LinearPtr qkv, out;
  nn::Mlp mlp;
};

class Gpt2 final : public ModelBase {
 public:
  Gpt2(const ModelConfig& config, const engine::Engine& engine, const nn::Storage& storage)
      : ModelBase(engine, storage), config_(config) {
    const int64_t c = config.width;
    wte_ = vocabulary("wte.weight", config.vocab, c);
    wpe_ = matrix("wpe.weight", config.context, c);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string h = "h." + std::to_string(i) + ".";
      begin_block(i);
      Block b;
      b.norm1 = norm(h + "ln_1");
      b.qkv = linear(h + "attn.c_attn", i, 3 * c, c, true);
      b.out = linear(h + "attn.c_proj", i, c, c, true);
      b.norm2 = norm(h + "ln_2");
      b.mlp.up = linear(h + "mlp.c_fc", i, config.mlp, c, true);
      b.mlp.down = linear(h + "mlp.c_proj", i, c, config.mlp, true);
      blocks_.push_back(b);
    }
    end_blocks();
    last_norm_ = norm("ln_f");
  }

  Tensor hidden(const nn::Tokens& input, nn::Penalty* penalty) const override {
    // Beyond the last row of the positions is somebody else's memory.
    OCTAVO_ASSERT(input.sequences.longest <= config_.context);
    // Shared with blocks that run again in the backward pass.
    const auto tokens = std::make_shared<const nn::Tokens>(input);
    Tensor x = nn::embed(engine_, *tokens, wte_, wpe_), delta;
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

  const ParamPtr& head() const override { return wte_; }
  int64_t vocab_size() const override { return config_.vocab; }
  int64_t context() const override { return config_.context; }
  nn::KvCache make_cache(int64_t capacity) const override {
    return {config_.layers, std::min(capacity, config_.context), config_.width,
            at::TensorOptions(engine_.target.device).dtype(engine_.target.compute)};
  }

  bool may_ignore(const std::string& name, const Tensor& tensor) const override {
    // Old files keep the causal mask; a head that equals the embedding is only written twice.
    if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) return true;
    return is_tied_head(name, tensor);
  }

  Json hugging_face_config() const override { return model_config::to_json(config_); }

 protected:
  std::string architecture() const override { return "GPT-2"; }
  double attention_work(int64_t length) const override {
    return static_cast<double>(config_.layers * config_.width) * static_cast<double>(length) / 2;
  }
  // N(0, 0.02); the two projections back into the residual stream are scaled by 1/sqrt(2 layers).
  float initial_deviation(const nn::Param& p) const override {
    const bool into_residual = p.name.find("c_proj") != std::string::npos;
    const double shrink = std::sqrt(2.0 * static_cast<double>(config_.layers));
    return static_cast<float>(into_residual ? 0.02 / shrink : 0.02);
  }
  std::vector<FilePart> parts_of(const nn::Param& p) const override {
    // Conv1D of the original code keeps [in, out]; the files of openai-community have no prefix.
    return {{.name = "transformer." + p.name,
             .old_name = p.name,
             .rows = &p == wte_.get() ? config_.vocab : p.sizes()[0],
             .transposed = p.sizes().size() == 2 && p.name.starts_with("h.")}};
  }

 private:
  nn::Norm norm(const std::string& name) {
    const ParamPtr gamma = vector(name + ".weight", config_.width);
    return {gamma, vector(name + ".bias", config_.width), config_.norm_eps};
  }
  nn::AttentionHeads heads(int64_t layer) const {
    return {config_.heads, config_.heads, config_.width / config_.heads, nullptr, layer};
  }

  ModelConfig config_;
  ParamPtr wte_, wpe_;
  nn::Norm last_norm_;
  std::vector<Block> blocks_;
};

}  // namespace

std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage) {
  return std::make_unique<Gpt2>(config, engine, storage);
}

}  // namespace octavo::models::gpt2
