#include "optim/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"

namespace octavo::optim {
namespace {

class AdamWTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    const at::NoGradGuard no_grad;
    params.push_back(nn::make_param("matrix", {33, 17}, GetParam(), true, at::kCPU));
    params.push_back(nn::make_param("vector", {70'001}, GetParam(), false, at::kCPU));
    for (const auto& p : params) p->master.normal_();
    nn::refresh_compute(params);
  }
  void draw_gradients(double scale) {
    for (const auto& p : params) {
      p->grad.copy_(at::randn(p->grad.sizes()) * scale);
      p->grad_fresh = false;
    }
  }
  double norm() const {
    double total = 0;
    for (const auto& p : params) total += p->grad.to(at::kDouble).square().sum().item<double>();
    return std::sqrt(total);
  }
  engine::Engine engine{{at::kCPU, GetParam(), false}};
  nn::ParamList params;
};
INSTANTIATE_TEST_SUITE_P(, AdamWTest, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return std::string(info.param == at::kFloat ? "fp32" : "bf16");
                         });

// torch's own fused AdamW on copies of the tensors, with clipping as torch.nn.utils does it.
class Oracle {
 public:
  Oracle(const nn::ParamList& params, const Options& options) : options_(options) {
    for (const auto& p : params) {
      w_.push_back(p->master.detach().clone());
      m_.push_back(at::zeros_like(w_.back()));
      v_.push_back(at::zeros_like(w_.back()));
      decay_.push_back(p->decays ? options.weight_decay : 0);
    }
  }
  void step(const nn::ParamList& params, double learning_rate, double norm) {
    ++steps_;
    const double clip =
        options_.max_grad_norm > 0 ? std::min(1.0, options_.max_grad_norm / norm) : 1;
    for (size_t i = 0; i < params.size(); ++i)
      at::_fused_adamw_({w_[i]}, {params[i]->grad * clip}, {m_[i]}, {v_[i]}, {},
                        {at::scalar_tensor(static_cast<float>(steps_))}, learning_rate,
                        options_.beta1, options_.beta2, decay_[i], options_.eps, false, false);
  }
  const at::Tensor& weight(size_t i) const { return w_[i]; }

 private:
  Options options_;
  std::vector<at::Tensor> w_, m_, v_;
  std::vector<double> decay_;
  int64_t steps_ = 0;
};

TEST_P(AdamWTest, MatchesTorch) {
  for (const double max_norm : {0.0, 1.0, 1e6}) {
    const Options options{.weight_decay = 0.3, .max_grad_norm = max_norm};
    AdamW adamw(engine, params, options);
    Oracle oracle(params, options);
    for (int step = 0; step < 10; ++step) {
      draw_gradients(0.5);
      const double rate = 1e-2 / (1 + step), wanted = norm();
      const AdamW::Norm found = adamw.gradient_norm();
      EXPECT_NEAR(found.value / wanted, 1, 2e-6);
      adamw.step(rate, found);
      oracle.step(params, rate, wanted);
    }
    EXPECT_EQ(adamw.steps(), 10);
    for (size_t i = 0; i < params.size(); ++i) {
      // Ten steps of 1e-2 and less, each to six digits, on values of size 1.
      EXPECT_LT((params[i]->master - oracle.weight(i)).abs().max().item<double>(), 1e-6)
          << params[i]->name << " at max_grad_norm " << max_norm;
      EXPECT_TRUE(params[i]->compute.detach().equal(
          params[i]->master.to(params[i]->compute.scalar_type())));
    }
  }
}

TEST_P(AdamWTest, StepUsesUpTheGradients) {
  AdamW adamw(engine, params, {});
  draw_gradients(1);
  adamw.step(1e-3, adamw.gradient_norm());
  for (const auto& p : params) EXPECT_TRUE(p->grad_fresh);
}

TEST_P(AdamWTest, OnlyMatricesDecay) {
  AdamW adamw(engine, params, {.weight_decay = 0.5});
  const at::Tensor matrix = params[0]->master.clone(), vector = params[1]->master.clone();
  for (const auto& p : params) p->zero_if_fresh();
  const AdamW::Norm norm = adamw.gradient_norm();
  EXPECT_EQ(norm.value, 0);
  adamw.step(0.1, norm);
  EXPECT_TRUE(at::allclose(params[0]->master, matrix * 0.95, 1e-6, 1e-7));
  EXPECT_TRUE(params[1]->master.equal(vector));
}

TEST_P(AdamWTest, AGradientThatIsNotFiniteAppliesNothing) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    AdamW adamw(engine, params, {});
    draw_gradients(1);
    adamw.step(1e-3, adamw.gradient_norm());
    std::vector<at::Tensor> before;
    for (const auto& p : params) before.push_back(p->master.clone());
    for (const auto& item : adamw.state()) before.push_back(item.second.clone());
    draw_gradients(1);
    params[1]->grad[70'000] = bad;  // in the last parameter, so that the first would be too early
    const AdamW::Norm norm = adamw.gradient_norm();
    EXPECT_EQ(norm.not_finite, "vector") << bad;
    EXPECT_FALSE(std::isfinite(norm.value)) << bad;
    for (const auto& p : params) EXPECT_FALSE(p->grad_fresh) << p->name;
    const uint64_t version = params[0]->version;
    adamw.drop_gradients();
    for (const auto& p : params) EXPECT_TRUE(p->grad_fresh) << p->name;
    EXPECT_EQ(params[0]->version, version);  // what was made of the weight still holds
    size_t i = 0;
    for (const auto& p : params) EXPECT_TRUE(p->master.equal(before[i++])) << p->name;
    for (const auto& item : adamw.state())
      EXPECT_TRUE(item.second.equal(before[i++])) << item.first;
    EXPECT_EQ(adamw.steps(), 1);
  }
}

TEST_P(AdamWTest, ANormThatIsNotFiniteIsNotStepped) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // OpenMP's threads do not survive a fork
  AdamW adamw(engine, params, {});
  draw_gradients(1);
  params[0]->grad[1][2] = NAN;
  const AdamW::Norm norm = adamw.gradient_norm();
  EXPECT_EQ(norm.not_finite, "matrix");
  EXPECT_DEATH(adamw.step(1e-3, norm), "not_finite");
}

TEST_P(AdamWTest, StateRoundTrip) {
  AdamW first(engine, params, {});
  draw_gradients(1);
  first.step(1e-2, first.gradient_norm());
  std::map<std::string, at::Tensor> kept;
  for (const auto& [name, tensor] : first.state()) kept[name] = tensor.clone();
  EXPECT_EQ(kept.size(), 4u);
  EXPECT_TRUE(kept.count("m.matrix") == 1 && kept.count("v.vector") == 1);
  std::vector<at::Tensor> masters, wanted;
  for (const auto& p : params) masters.push_back(p->master.clone());
  draw_gradients(1);
  first.step(1e-2, first.gradient_norm());
  for (const auto& p : params) wanted.push_back(p->master.clone());

  // The second step again, from the kept state: bit for bit.
  AdamW second(engine, params, {});
  second.load(1, [&](const std::string& name) { return kept.at(name); });
  EXPECT_EQ(second.steps(), 1);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < params.size(); ++i) {
    params[i]->master.copy_(masters[i]);
    params[i]->grad_fresh = false;  // the gradients are still there
  }
  second.step(1e-2, second.gradient_norm());
  for (size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(params[i]->master.equal(wanted[i]));
}

TEST_P(AdamWTest, LoadRefusesWhatDoesNotFit) {
  AdamW adamw(engine, params, {});
  const auto refused = [&](const at::Tensor& instead) {
    try {
      adamw.load(1, [&](const std::string& name) {
        return name == "v.matrix" ? instead : at::zeros({name == "m.matrix" ? 33 : 70'001, 17});
      });
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamaged);
      EXPECT_NE(std::string(error.what()).find("v.matrix"), std::string::npos) << error.what();
    }
  };
  refused(at::Tensor());
  refused(at::zeros({17, 33}));
  EXPECT_EQ(adamw.steps(), 0);
}

}  // namespace
}  // namespace octavo::optim
