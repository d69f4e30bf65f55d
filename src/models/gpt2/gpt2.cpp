#include "models/gpt2/gpt2.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/checked.h"
#include "base/random.h"
#include "nn/layers.h"

namespace octavo::models::gpt2 {
namespace {

using at::Tensor;
using nn::ParamPtr;

// The head's products want rows in multiples of 64; padding rows have no probability and no
// gradient.
constexpr int64_t kVocabMultiple = 64;

struct Block {
  ParamPtr ln1_w, ln1_b, ln2_w, ln2_b;
  nn::LinearPtr qkv, out, up, down;
};

class Gpt2 final : public Model {
 public:
  Gpt2(const Config& config, const engine::Engine& engine) : config_(config), engine_(engine) {
    const int64_t c = config.width;
    wte_ = matrix("wte.weight", round_up(config.vocab, kVocabMultiple), c);
    wpe_ = matrix("wpe.weight", config.context, c);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string h = "h." + std::to_string(i) + ".";
      Block b;
      b.ln1_w = vector(h + "ln_1.weight", c);
      b.ln1_b = vector(h + "ln_1.bias", c);
      b.qkv = linear(h + "attn.c_attn", i, 3 * c, c);
      b.out = linear(h + "attn.c_proj", i, c, c);
      b.ln2_w = vector(h + "ln_2.weight", c);
      b.ln2_b = vector(h + "ln_2.bias", c);
      b.up = linear(h + "mlp.c_fc", i, 4 * c, c);
      b.down = linear(h + "mlp.c_proj", i, c, 4 * c);
      blocks_.push_back(b);
    }
    lnf_w_ = vector("ln_f.weight", c);
    lnf_b_ = vector("ln_f.bias", c);
  }

  Tensor hidden(const Tensor& ids, int64_t length, nn::Penalty* penalty) const override {
    const int64_t batch = ids.size(0) / length;
    Tensor x = nn::embed(engine_, ids, wte_, wpe_, length), delta, normed;
    // The residual addition of a branch is part of the norm that follows it.
    for (const Block& b : blocks_) {
      std::tie(x, normed) = nn::add_norm(engine_, x, delta, b.ln1_w, b.ln1_b, config_.eps);
      const Tensor qkv = nn::linear(engine_, normed, b.qkv);
      delta = nn::linear(engine_, nn::attention(engine_, qkv, batch, config_.heads), b.out);
      std::tie(x, normed) = nn::add_norm(engine_, x, delta, b.ln2_w, b.ln2_b, config_.eps);
      delta = nn::linear(engine_, nn::linear_gelu(engine_, normed, b.up), b.down);
      if (penalty != nullptr)
        x = nn::penalize(x, *penalty, 1.0 / static_cast<double>(config_.layers));
    }
    return nn::add_norm(engine_, x, delta, lnf_w_, lnf_b_, config_.eps).second;
  }

  const nn::ParamList& params() const override { return params_; }
  const nn::LinearList& linears() const override { return linears_; }
  const ParamPtr& head() const override { return wte_; }
  int64_t vocab_size() const override { return config_.vocab; }
  int64_t context() const override { return config_.context; }

  // N(0, 0.02); the two projections back into the residual stream are scaled by 1/sqrt(2 layers).
  void initialize(uint64_t seed) override {
    const at::NoGradGuard no_grad;
    const auto residual =
        static_cast<float>(0.02 / std::sqrt(2.0 * static_cast<double>(config_.layers)));
    for (const auto& p : params_) {
      const bool is_norm_scale =
          p->name.find("ln_") != std::string::npos && p->name.ends_with(".weight");
      if (p->master.dim() < 2) {
        p->master.fill_(is_norm_scale ? 1 : 0);
        continue;
      }
      const bool into_residual = p->name.find("c_proj") != std::string::npos;
      Tensor values = at::empty(p->master.sizes(), at::kFloat);
      fill_normal(values.mutable_data_ptr<float>(), values.numel(),
                  into_residual ? residual : 0.02f, seed, stream_of(p->name));
      p->master.copy_(values);
    }
    wte_->master.narrow(0, config_.vocab, wte_->master.size(0) - config_.vocab).zero_();
    nn::refresh_compute(params_);
  }

  void load_hugging_face(const TensorSource& source) override {
    const at::NoGradGuard no_grad;
    for (const auto& p : params_) {
      Tensor found = source("transformer." + p->name);
      if (!found.defined())
        found = source(p->name);  // the files of openai-community have no prefix
      if (!found.defined())
        fail(ExitCode::kDamaged, "models", "wanted a tensor '", p->name,
             "' of GPT-2, found none in the model's files");
      if (is_stored_transposed(*p)) found = found.t();
      Tensor target = p == wte_ ? p->master.narrow(0, 0, config_.vocab) : p->master;
      if (found.sizes() != target.sizes())
        fail(ExitCode::kDamaged, "models", "tensor '", p->name, "': wanted shape ", target.sizes(),
             ", found ", found.sizes());
      target.copy_(found);
    }
    nn::refresh_compute(params_);
  }

  bool may_ignore(const std::string& name, const Tensor& tensor) const override {
    // Old files keep the causal mask; a head that equals the embedding is only written twice.
    if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) return true;
    const Tensor embedding = wte_->master.narrow(0, 0, config_.vocab);
    return name == "lm_head.weight" && tensor.sizes() == embedding.sizes() &&
           at::equal(tensor.to(at::kFloat), embedding);
  }

  NamedTensors to_hugging_face() const override {
    NamedTensors tensors;
    for (const auto& p : params_) {
      Tensor t = p == wte_ ? p->master.narrow(0, 0, config_.vocab) : p->master;
      tensors.emplace_back("transformer." + p->name,
                           (is_stored_transposed(*p) ? t.t() : t).contiguous());
    }
    return tensors;
  }

  Json hugging_face_config() const override {
    return {{"model_type", "gpt2"},
            {"architectures", {"GPT2LMHeadModel"}},
            {"n_layer", config_.layers},
            {"n_head", config_.heads},
            {"n_embd", config_.width},
            {"n_positions", config_.context},
            {"n_ctx", config_.context},
            {"vocab_size", config_.vocab},
            {"layer_norm_epsilon", config_.eps},
            {"activation_function", "gelu_new"}};
  }

  double flops_per_token(int64_t length) const override {
    const auto c = static_cast<double>(config_.width), layers = static_cast<double>(config_.layers);
    const double matrices = 12 * layers * c * c + static_cast<double>(wte_->master.size(0)) * c;
    return 6 * matrices + 6 * layers * static_cast<double>(length) * c;  // causal: half of 12 L S C
  }

 private:
  // Conv1D of the original code keeps [in, out].
  static bool is_stored_transposed(const nn::Param& p) {
    return p.master.dim() == 2 && p.name.starts_with("h.");
  }
  ParamPtr matrix(const std::string& name, int64_t rows, int64_t columns) {
    return add(name, {rows, columns}, true);
  }
  ParamPtr vector(const std::string& name, int64_t size) { return add(name, {size}, false); }
  nn::LinearPtr linear(const std::string& name, int64_t block, int64_t outputs, int64_t inputs) {
    const ParamPtr weight = matrix(name + ".weight", outputs, inputs);
    linears_.push_back(nn::make_linear(name, block, weight, vector(name + ".bias", outputs)));
    return linears_.back();
  }
  ParamPtr add(const std::string& name, at::IntArrayRef shape, bool decays) {
    params_.push_back(
        nn::make_param(name, shape, engine_.target.compute, decays, engine_.target.device));
    return params_.back();
  }

  Config config_;
  const engine::Engine& engine_;
  nn::ParamList params_;
  nn::LinearList linears_;
  ParamPtr wte_, wpe_, lnf_w_, lnf_b_;
  std::vector<Block> blocks_;
};

}  // namespace

std::unique_ptr<Model> make(const Config& config, const engine::Engine& engine) {
  return std::make_unique<Gpt2>(config, engine);
}

}  // namespace octavo::models::gpt2
