#include "nn/lora.h"

#include <map>

#include "base/error.h"
#include "nn/fp8_weight.h"
#include "nn/layers.h"
#include "nn/oracle.h"

namespace octavo::nn {
namespace {

constexpr Storage kFrozen{.trainable = false};

class LoraTest : public NnTest {
 protected:
  // A frozen layer of 12 + 4 rows, as q_proj and k_proj would be one.
  void SetUp() override {
    NnTest::SetUp();
    weight = make_param("w", {16, 8}, at::kFloat, true, at::kCPU, kFrozen);
    weight->master.normal_();
    layer = make_linear("qk", 0, weight, {});
    layers = {{layer, {{"model.q_proj", 0, 12}, {"model.k_proj", 12, 4}}}};
  }
  // b is not zero any more: adapters that change nothing would prove nothing.
  static void randomize(const Lora& lora) {
    const at::NoGradGuard no_grad;
    for (const auto& p : lora.params()) p->master.normal_();
    refresh_compute(lora.params());
  }
  ParamPtr weight;
  LinearPtr layer;
  std::vector<Lora::LayerOf> layers;
};

TEST_F(LoraTest, ForwardAndGradientsAreTheFormula) {
  Lora lora(engine, layers, {.rank = 3, .alpha = 6, .dropout = 0, .seed = 1, .targets = {}});
  randomize(lora);
  const at::Tensor x = leaf({5, 8}), dy = at::randn({5, 16}), wx = twin(x);
  std::vector<at::Tensor> twins;
  for (const auto& p : lora.params()) twins.push_back(twin(p));
  const at::Tensor change =
      at::cat({at::mm(twins[1], twins[0]), at::mm(twins[3], twins[2])}, 0) * 2;
  const at::Tensor wanted = at::linear(wx, weight->master.to(at::kDouble) + change);
  const at::Tensor y = linear(engine, x, layer);
  EXPECT_TRUE(close(y, wanted));
  backward(y, dy);
  backward(wanted, dy);
  EXPECT_TRUE(close(x.grad(), wx.grad()));
  for (size_t i = 0; i < twins.size(); ++i)
    EXPECT_TRUE(close(lora.params()[i]->grad, twins[i].grad())) << lora.params()[i]->name;
}

// The input of the first block may have no gradient: the embedding is frozen.
TEST_F(LoraTest, IsTrainedWhereTheInputHasNoGradient) {
  Lora lora(engine, layers,
            {.rank = 2, .alpha = 2, .dropout = 0, .seed = 1, .targets = {"q_proj"}});
  EXPECT_EQ(lora.modules(), std::vector<std::string>{"model.q_proj"});
  randomize(lora);
  lora.params()[0]->grad.fill_(NAN);
  backward(linear(engine, at::randn({5, 8}), layer), at::randn({5, 16}));
  EXPECT_TRUE(at::isfinite(lora.params()[0]->grad).all().item<bool>());
  EXPECT_FALSE(lora.params()[0]->grad_fresh);
}

TEST_F(LoraTest, StartsAsTheModelAndMergesIntoIt) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({5, 8}), plain = linear(engine, x, layer);
  Lora lora(engine, layers, {.rank = 3, .alpha = 3, .dropout = 0, .seed = 1, .targets = {"all"}});
  EXPECT_TRUE(close(linear(engine, x, layer), plain, 0));
  randomize(lora);
  const at::Tensor adapted = linear(engine, x, layer);
  EXPECT_GT((adapted - plain).abs().max().item<double>(), 0.1);
  lora.merge();
  EXPECT_TRUE(layer->adapters.empty());
  EXPECT_TRUE(close(linear(engine, x, layer), adapted));
}

// Ranks and micro-batches share tokens out among them: what a token drops is its own.
TEST_F(LoraTest, DropoutDependsOnTheTokenAlone) {
  Lora lora(engine, layers, {.rank = 3, .alpha = 3, .dropout = 0.5, .seed = 1, .targets = {}});
  randomize(lora);
  const at::Tensor x = at::randn({64, 8});
  const auto run = [&](uint64_t first_token, int64_t rows) {
    lora.begin_pass(first_token);
    return linear(engine, x.narrow(0, static_cast<int64_t>(first_token), rows), layer).detach();
  };
  const at::Tensor whole = run(0, 64);
  for (const auto& [first, rows] : {std::pair{0, 16}, {16, 16}, {32, 31}, {63, 1}})
    EXPECT_TRUE(close(run(static_cast<uint64_t>(first), rows), whole.narrow(0, first, rows)))
        << first;
  // The same inputs as other tokens, as two ranks had them when both counted from the same number.
  lora.begin_pass(64);
  EXPECT_FALSE(close(linear(engine, x, layer).detach(), whole));
}

TEST_F(LoraTest, DropoutDependsOnThePassAlone) {
  Lora lora(engine, layers, {.rank = 3, .alpha = 3, .dropout = 0.5, .seed = 1, .targets = {}});
  randomize(lora);
  const at::Tensor x = at::randn({64, 8});
  const auto run = [&](uint64_t pass) {
    lora.begin_pass(pass);
    return linear(engine, x, layer).detach();
  };
  const at::Tensor first = run(1);
  EXPECT_TRUE(run(1).equal(first));
  EXPECT_FALSE(run(2).equal(first));
  {
    const at::NoGradGuard no_grad;  // a block that will run again
    EXPECT_TRUE(run(1).equal(first));
  }
  lora.end_pass();  // nothing is dropped outside of training
  const at::Tensor whole = linear(engine, x, layer).detach();
  EXPECT_TRUE(linear(engine, x, layer).equal(whole));
  EXPECT_FALSE(whole.equal(first));
}

TEST_F(LoraTest, UnknownTargetsAreRefusedWithTheNearestName) {
  try {
    const Lora lora(engine, layers,
                    {.rank = 3, .alpha = 3, .dropout = 0, .seed = 1, .targets = {"q_prj"}});
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'q_proj'"), std::string::npos)
        << error.what();
  }
}

// Half a step of E4M3 at most, of a block's largest value 2^-4 (its step is 2^-3 of the binade).
TEST(PackedParam, KeepsWeightsToHalfAStep) {
  const at::NoGradGuard no_grad;
  const auto p = make_param("w", {200, 130}, at::kBFloat16, true, at::kCPU, kFrozen);
  p->master.normal_();
  p->master.narrow(0, 0, 128).narrow(1, 0, 128).zero_();
  const at::Tensor before = p->master.to(at::kFloat);
  const uint64_t version = p->version;
  p->pack();
  EXPECT_FALSE(p->master.defined() || p->compute.defined());
  EXPECT_NE(p->version, version);
  EXPECT_EQ(p->sizes(), at::IntArrayRef({200, 130}));
  EXPECT_EQ(p->codes.nbytes(), 200 * 130);
  const at::Tensor after = p->weights().to(at::kFloat), error = (after - before).abs();
  const double largest = before.abs().max().item<double>();
  EXPECT_TRUE(
      (error <= before.abs() * (0x1p-4 + 0x1p-8) + largest / 448 * 0x1p-9).all().item<bool>());
  EXPECT_EQ(after.narrow(0, 0, 128).narrow(1, 0, 128).abs().max().item<double>(), 0);
}

// One that is packed from the beginning has no other form but while it is filled, and ends with the
// codes of one that was packed when it was there.
TEST(PackedParam, IsFilledOnTheHostAndPackedAtOnce) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = at::randn({200, 130});
  const auto whole = make_param("w", {200, 130}, at::kBFloat16, true, at::kCPU, kFrozen);
  whole->master.copy_(values);
  whole->pack();
  const Storage packed{.trainable = false, .packed = true};
  const ParamList both = {make_param("w", {200, 130}, at::kBFloat16, true, at::kCPU, packed),
                          make_param("v", {200, 130}, at::kBFloat16, true, at::kCPU, packed)};
  for (const auto& p : both) {
    EXPECT_FALSE(p->master.defined() || p->compute.defined());
    EXPECT_EQ(p->weights().abs().max().item<double>(), 0);  // as any weight that was not loaded
  }
  int filled = 0;
  fill_masters(both, [&](Param& p) {
    EXPECT_FALSE(both[static_cast<size_t>(1 - filled++)]->master.defined());  // one at a time
    p.copy_rows(values, 0);
  });
  EXPECT_EQ(filled, 2);
  for (const auto& p : both) {
    EXPECT_FALSE(p->master.defined() || p->compute.defined());
    EXPECT_TRUE(at::equal(p->codes.view(at::kByte), whole->codes.view(at::kByte)));
    EXPECT_TRUE(at::equal(p->scales, whole->scales));
  }
}

// The way of a GPU, which has no room for FP32.
TEST(PackedParam, DecodesToBf16AsThroughFp32) {
  constexpr Fp8Block kBlock{128, 128};
  const Fp8Weight made = quantize_weight(at::randn({200, 130}), kBlock, at::kFloat, "w");
  EXPECT_TRUE(at::equal(dequantize_weight(made.codes, made.scales, kBlock, at::kBFloat16),
                        dequantize_weight(made.codes, made.scales, kBlock).to(at::kBFloat16)));
}

}  // namespace
}  // namespace octavo::nn
