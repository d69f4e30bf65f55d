#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace octavo::optim {
namespace {

// Gradient descent with one number of state, to show what an optimizer from outside needs.
class Descent final : public Optimizer {
 public:
  using Optimizer::Optimizer;
  NamedTensors state() const override { return {{"rate.last", last_rate_}}; }

 private:
  void update(double learning_rate, double gradient_scale) override {
    last_rate_.fill_(learning_rate);
    for (const auto& p : params()) {
      p->master.sub_(p->master_grad().to(p->master.scalar_type()), learning_rate * gradient_scale);
      if (const at::Tensor copy = p->master_copy(); copy.defined()) copy.copy_(p->master);
    }
  }
  void load_state(const StateSource& find) override { last_rate_.copy_(find("rate.last")); }

  at::Tensor last_rate_ = at::zeros({}, at::kDouble);
};

std::unique_ptr<Optimizer> make_descent(const engine::Engine& engine, nn::ParamList params,
                                        const Options& options) {
  return std::make_unique<Descent>(engine, std::move(params), options);
}

struct OptimizerTest : testing::Test {
  OptimizerTest() {
    const at::NoGradGuard no_grad;
    for (const char* name : {"trained", "frozen"}) {
      params.push_back(nn::make_param(name, {3, 4}, at::kFloat, true, at::kCPU));
      params.back()->master.fill_(1);
    }
    params[1]->trainable = false;
    nn::refresh_compute(params);
  }
  void set_gradient(float value) {
    params[0]->grad.fill_(value);
    params[0]->grad_fresh = false;
  }
  engine::Engine engine{{at::kCPU, at::kFloat, false}};
  nn::ParamList params;
};

TEST_F(OptimizerTest, OneFromOutsideIsMadeByItsName) {
  add_maker("descent", make_descent);
  const auto descent = make("descent", engine, params, {.max_grad_norm = 0});
  set_gradient(0.5);
  const Optimizer::Norm norm = descent->gradient_norm();
  EXPECT_NEAR(norm.value, std::sqrt(12 * 0.25), 1e-6);
  descent->step(0.1, norm);
  EXPECT_TRUE(at::allclose(params[0]->master, at::full({3, 4}, 0.95)));
  EXPECT_TRUE(params[0]->compute.equal(params[0]->master));
  EXPECT_TRUE(params[1]->master.equal(at::ones({3, 4})));
  EXPECT_TRUE(params[0]->grad_fresh);
  EXPECT_EQ(descent->steps(), 1);

  const auto resumed = make("descent", engine, params, {});
  resumed->load(7, [&](const std::string& name) {
    EXPECT_EQ(name, "rate.last");
    return descent->state()[0].second;
  });
  EXPECT_EQ(resumed->steps(), 7);
  EXPECT_DOUBLE_EQ(resumed->state()[0].second.item<double>(), 0.1);
}

TEST_F(OptimizerTest, ClippingIsSharedByAll) {
  Descent descent(engine, params, {.max_grad_norm = 1});
  set_gradient(2);
  const Optimizer::Norm norm = descent.gradient_norm();
  descent.step(1, norm);
  EXPECT_TRUE(at::allclose(params[0]->master, at::full({3, 4}, 1 - 2 / norm.value)));
}

TEST_F(OptimizerTest, BytesAreCountedWithTheState) {
  Descent descent(engine, params, {});
  const int64_t copy = params[0]->master_copy().defined() ? 4 : 0;
  EXPECT_DOUBLE_EQ(descent.bytes_per_parameter(), 4.0 + static_cast<double>(copy) + 4 + 8.0 / 12);
}

}  // namespace
}  // namespace octavo::optim
