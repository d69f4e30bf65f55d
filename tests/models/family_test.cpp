// A family that a program brings along, as docs/internals/add-a-model.md has it.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/file.h"
#include "example_family.h"
#include "expect_failure.h"
#include "model_config/config_file.h"
#include "models/model.h"
#include "nn/loss.h"

namespace octavo::models {
namespace {

const Json kFile = {
    {"model_type", "tandem"},  {"num_hidden_layers", 3},        {"hidden_size", 32},
    {"intermediate_size", 48}, {"num_attention_heads", 4},      {"num_key_value_heads", 2},
    {"vocab_size", 70},        {"max_position_embeddings", 64}, {"local_span", 5}};

ModelConfig tandem() {
  if (model_config::find_family("tandem") == nullptr)
    model_config::add_family(model_config::kTandemFamily);
  return model_config::read(kFile, "test");
}

TEST(AddedFamily, ReadsAndWritesItsFile) {
  const ModelConfig config = tandem();
  EXPECT_EQ(config.window_of(0), 5);
  EXPECT_EQ(config.window_of(1), 0);
  EXPECT_EQ(model_config::read(model_config::to_json(config), "what we wrote"), config);
  Json unknown = kFile;
  unknown["logit_scale"] = 2.0;
  expect_failure(ExitCode::kUsage, "logit_scale", [&] { model_config::read(unknown, "test"); });
}

// Of the loss of a few tokens every weight has a gradient, and a step against it helps.
TEST(AddedFamily, Learns) {
  const engine::Engine engine({.device = at::kCPU, .compute = at::kFloat});
  const auto model = make(tandem(), engine);
  model->initialize(3);
  const at::Tensor ids = at::randint(70, {40}, at::kInt), targets = at::randint(70, {40}, at::kInt);
  const auto loss = [&](bool want_gradient) {
    return nn::head_loss(
        engine, model->hidden(nn::rows_of(ids, 20), nullptr), model->head(), targets,
        {.classes = 70, .gradient_scale = 1.0 / 40, .want_gradient = want_gradient});
  };
  const nn::Loss before = loss(true);
  torch::autograd::backward({before.root}, {});
  const at::NoGradGuard no_grad;
  for (const auto& p : model->params()) {
    ASSERT_TRUE(p->has_gradient()) << p->name;
    EXPECT_GT(p->grad.abs().max().item<float>(), 0) << p->name;
    p->master.sub_(p->grad, 0.1);
  }
  nn::refresh_compute(model->params());
  EXPECT_LT(loss(false).sums[0].item<double>(), before.sums[0].item<double>());
}

TEST(AddedFamily, ThePageHasThisExample) {
  const std::string root = OCTAVO_SOURCE_DIR;
  const std::string page = read_file(root + "/docs/internals/add-a-model.md", 1 << 20),
                    file = read_file(root + "/tests/models/example_family.cpp", 1 << 20);
  EXPECT_NE(page.find(file), std::string::npos)
      << "docs/internals/add-a-model.md has another example than tests/models/example_family.cpp";
}

}  // namespace
}  // namespace octavo::models
