#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "model_config/config_file.h"
#include "model_config/presets.h"
#include "models/model.h"
#include "nn/loss.h"

namespace octavo::models {
namespace {

const ModelConfig kTiny =
    model_config::gpt2({.layers = 2, .heads = 2, .width = 16, .vocab = 50, .context = 12});

class Gpt2 : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(5);
    model = make(kTiny, engine);
    model->initialize(1);
  }
  // Mean loss; with gradients when asked for.
  double loss(bool want_gradient, nn::Penalty* penalty = nullptr) const {
    const double tokens = static_cast<double>(ids.size(0));
    const at::Tensor hidden = model->hidden(nn::rows_of(ids, 8), penalty);
    const auto result = nn::head_loss(
        engine, hidden, model->head(), targets,
        {.classes = kTiny.vocab, .gradient_scale = 1 / tokens, .want_gradient = want_gradient});
    if (want_gradient) torch::autograd::backward({result.root}, {});
    return result.sums[0].item<double>() / tokens;
  }
  engine::Engine engine{{at::kCPU, at::kFloat, false}};
  std::unique_ptr<Model> model;
  at::Tensor ids = at::randint(50, {24}, at::kInt), targets = at::randint(50, {24}, at::kInt);
};

TEST_F(Gpt2, StartsAtTheLossOfAGuess) {
  EXPECT_NEAR(loss(false), std::log(50), 0.05);
}

TEST_F(Gpt2, InitializationDependsOnSeedAndNameOnly) {
  const auto other = make(kTiny, engine);
  other->initialize(1);
  for (size_t i = 0; i < model->params().size(); ++i)
    EXPECT_TRUE(other->params()[i]->master.equal(model->params()[i]->master));
  other->initialize(2);
  EXPECT_FALSE(other->head()->master.equal(model->head()->master));
  // Deeper models share the layers they have in common, except for the residual scale.
  ModelConfig deeper = kTiny;
  deeper.layers = 3;
  const auto deep = make(deeper, engine);
  deep->initialize(1);
  EXPECT_TRUE(deep->head()->master.equal(model->head()->master));
  EXPECT_EQ(model->head()->master.size(0), 64);  // padded, and the padding is zero
  EXPECT_EQ(model->head()->master.narrow(0, 50, 14).count_nonzero().item<int64_t>(), 0);
}

// The slope of the loss along a random direction of every parameter is the gradient times it.
TEST_F(Gpt2, GradientOfEveryParameter) {
  const at::NoGradGuard no_grad;
  for (const auto& p : model->params()) p->master.add_(at::randn(p->master.sizes()) * 0.1);
  {
    const at::AutoGradMode grad(true);
    loss(true);
  }
  for (const auto& p : model->params()) {
    ASSERT_FALSE(p->grad_fresh) << p->name;
    // Along the gradient itself, where the slope is largest beside the rounding of FP32.
    const at::Tensor start = p->master.clone(), g = p->grad.clone();
    const double size = g.to(at::kDouble).norm().item<double>();
    ASSERT_GT(size, 0) << p->name;
    const at::Tensor direction = g / size;
    const auto at_offset = [&](double offset) {
      p->master.copy_(start + direction * offset);
      return loss(false);
    };
    constexpr double kStep = 0.02;
    const double slope = (8 * (at_offset(kStep) - at_offset(-kStep)) -
                          (at_offset(2 * kStep) - at_offset(-2 * kStep))) /
                         (12 * kStep);
    p->master.copy_(start);
    EXPECT_NEAR(slope / size, 1, 1e-2) << p->name << ", slope " << size;
  }
}

TEST_F(Gpt2, PaddingGetsNoGradient) {
  loss(true);
  EXPECT_EQ(model->head()->grad.narrow(0, 50, 14).count_nonzero().item<int64_t>(), 0);
}

TEST_F(Gpt2, PenaltyIsCountedOncePerModel) {
  nn::Penalty penalty{.kind = nn::PenaltyKind::kKurtosis, .gradient_scale = 0.1, .total = {}};
  loss(true, &penalty);
  EXPECT_GT(penalty.total.item<double>(), 1);  // a kurtosis is at least 1
  EXPECT_LT(penalty.total.item<double>(), 16);
}

TEST_F(Gpt2, HuggingFaceRoundTrip) {
  std::map<std::string, at::Tensor> stored;
  for (const auto& [name, tensor] : model->to_hugging_face()) stored[name] = tensor.clone();
  EXPECT_EQ(stored.at("transformer.wte.weight").size(0), 50);
  EXPECT_EQ(stored.at("transformer.h.0.mlp.c_fc.weight").sizes(), at::IntArrayRef({16, 64}));
  const auto other = make(model_config::read(model->hugging_face_config(), "test"), engine);
  const auto find = [&](const std::string& name) {
    const auto found = stored.find(name);
    return found == stored.end() ? at::Tensor() : found->second;
  };
  other->load_hugging_face(find);
  for (size_t i = 0; i < model->params().size(); ++i)
    EXPECT_TRUE(other->params()[i]->master.equal(model->params()[i]->master))
        << model->params()[i]->name;
  stored["transformer.ln_f.bias"] = at::zeros({15});
  EXPECT_THROW(other->load_hugging_face(find), Error);
  stored.erase("transformer.ln_f.bias");
  EXPECT_THROW(other->load_hugging_face(find), Error);
}

}  // namespace
}  // namespace octavo::models
