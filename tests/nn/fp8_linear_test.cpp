// The FP8 side of a linear layer: what it keeps, when it quantizes, and the three GEMMs.

#include <map>

#include "base/error.h"
#include "nn/fp8_fixture.h"

namespace octavo::nn {
namespace {

using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;

constexpr int64_t kTokens = 256, kInputs = 384, kOutputs = 128;

// One layer, every recipe.
class Fp8LayerTest : public Fp8Test, public testing::WithParamInterface<Recipe> {
 protected:
  void SetUp() override {
    Fp8Test::SetUp();
    layer = fp8_test_layer("l", 0, kOutputs, kInputs);
    use(options_of(GetParam()));
  }
  void use(const fp8::Options& options) {
    shared = {};
    shared.engine = &engine;
    shared.options = options;
    shared.scaling = Fp8Scaling(engine, options);
    layer->fp8 = std::make_unique<Fp8Layer>(shared, layer->name);
  }
  static at::Tensor input() { return bf16_normal({kTokens, kInputs}).set_requires_grad(true); }
  static at::Tensor output_gradient() { return bf16_normal({kTokens, kOutputs}, 1e-3); }
  static bool is_symmetric() {
    return fp8::is_symmetric(
        side_of(GetParam(), FormatChoice::kE4m3, Role::kWeight, Direction::kRow).granularity);
  }
  std::vector<Watched::Call> calls_on_the_weight() const {
    std::vector<Watched::Call> calls;
    for (const auto& call : watched->calls)
      if (call.x.is_same(layer->weight->compute)) calls.push_back(call);
    return calls;
  }

  LinearPtr layer;
  Fp8Shared shared;
};
INSTANTIATE_TEST_SUITE_P(, Fp8LayerTest, testing::ValuesIn(kRecipes),
                         [](const auto& info) { return std::string(config::name_of(info.param)); });

// The same by hand, from the oracle's quantizer and GEMMs: y, dx, dw and db.
struct ExpectedResult {
  at::Tensor y, dx, dw, db;
};
class ByHand {
 public:
  ByHand(Fp8Shared& shared, const Linear& layer) : shared_(shared), layer_(layer) {
    for (const auto& [name, tensor] : shared.scaling.state()) state_[name] = tensor;
  }
  ExpectedResult operator()(const at::Tensor& x, const at::Tensor& dy) {
    const at::NoGradGuard no_grad;
    const Fp8Matrix qx = quantized(x.detach(), Role::kInput, "input"),
                    qw = quantized(layer_.weight->compute.detach(), Role::kWeight, "weight"),
                    qdy = quantized(dy, Role::kGradient, "gradient");
    ExpectedResult wanted{at::empty({x.size(0), dy.size(1)}, at::kBFloat16),
                          at::empty(x.sizes(), at::kBFloat16), at::empty({dy.size(1), x.size(1)}),
                          dy.to(at::kDouble).sum(0)};
    oracle_->forward(qx, qw, layer_.bias ? layer_.bias->master : at::Tensor(), wanted.y);
    oracle_->input_gradient(qdy, qw, wanted.dx);
    oracle_->weight_gradient(qdy, qx, wanted.dw, engine::Accumulate::kOverwrite);
    return wanted;
  }

 private:
  Fp8Matrix quantized(const at::Tensor& x, Role role, const std::string& name) {
    const auto order = [&](Direction direction) {
      QuantizeSpec made{
          .side = side_of(shared_.options.recipe, shared_.options.format, role, direction),
          .wanted = true,
          .keep = false,
          .factor = at::ones({1}),
          .amax = {}};
      const std::string slot = "factor." + layer_.name + "." + name;
      const bool own = state_.contains(slot + ".column") && direction == Direction::kColumn;
      if (state_.contains(slot)) made.factor = state_.at(own ? slot + ".column" : slot);
      return made;
    };
    return oracle_->quantize(x, shared_.options.recipe, order(Direction::kRow),
                             order(Direction::kColumn));
  }

  Fp8Shared& shared_;
  const Linear& layer_;
  std::map<std::string, at::Tensor> state_;
  std::unique_ptr<engine::Fp8Linear> oracle_ =
      engine::implementations<engine::Fp8Linear>().back().make();
};

// FP32 sums, then one rounding to BF16: a unit in the last place where the sum is near a tie.
constexpr double kBf16Unit = 0x1p-8;

TEST_P(Fp8LayerTest, GradientsAreThoseOfTheGemmsByHand) {
  for (const bool biased : {true, false}) {
    SCOPED_TRACE(biased ? "with bias" : "without bias");
    layer = fp8_test_layer("l", 0, kOutputs, kInputs, biased);
    use(options_of(GetParam()));
    for (int64_t step = 1; step <= 3; ++step) {  // delayed factors change from step to step
      const at::Tensor x = input(), dy = output_gradient();
      const ExpectedResult wanted = ByHand(shared, *layer)(x, dy);
      const at::Tensor y = linear(engine, x, layer);
      backward(y, dy);
      EXPECT_TRUE(close(y, wanted.y, kBf16Unit));
      EXPECT_TRUE(close(x.grad(), wanted.dx, kBf16Unit));
      EXPECT_TRUE(close(layer->weight->grad, wanted.dw));
      if (biased) EXPECT_TRUE(close(layer->bias->grad, wanted.db));
      layer->weight->grad_fresh = true;
      if (biased) layer->bias->grad_fresh = true;
      refresh_compute({layer->weight});  // as the optimizer does: the factors change with it
      shared.scaling.finish_step(step);
    }
    for (const auto& ran : layer->gemm_counts) EXPECT_TRUE(ran.fp8 == 3 && ran.other == 0);
  }
}

// Two slots of their own for the two copies of the input.
TEST_P(Fp8LayerTest, GradientsInE5M2) {
  fp8::Options options = options_of(GetParam());
  options.format = FormatChoice::kE5m2;
  use(options);
  for (int64_t step = 1; step <= 3; ++step) {
    const at::Tensor x = input(), dy = output_gradient();
    const ExpectedResult wanted = ByHand(shared, *layer)(x, dy);
    backward(linear(engine, x, layer), dy);
    EXPECT_TRUE(close(x.grad(), wanted.dx, kBf16Unit));
    EXPECT_TRUE(close(layer->weight->grad, wanted.dw));
    layer->weight->grad_fresh = true;
    refresh_compute({layer->weight});
    shared.scaling.finish_step(step);
  }
  EXPECT_EQ(shared.scaling.state().size(), fp8::uses_history(GetParam()) ? 8u : 0u);
}

TEST_P(Fp8LayerTest, GeluAfterIt) {
  const at::Tensor x = input(), dy = output_gradient();
  const at::Tensor y = linear_gelu(engine, x, layer);
  const at::Tensor h = ByHand(shared, *layer)(x, dy).y;  // dy does not matter to y
  EXPECT_TRUE(close(y, at::gelu(h.to(at::kDouble), "tanh"), kBf16Unit));
  // The bias's gradient comes from GELU's backward pass, whose result is quantized in its turn.
  at::Tensor dh = dy.clone(), db = at::empty({kOutputs});
  engine.gelu->backward(dh, h, db, engine::Accumulate::kOverwrite);
  const ExpectedResult wanted = ByHand(shared, *layer)(x, dh);
  backward(y, dy);
  EXPECT_TRUE(close(layer->bias->grad, db, 1e-3));
  // A last bit of h that differs moves a few of dh's codes by one step.
  EXPECT_TRUE(close(x.grad(), wanted.dx, 2e-2));
  EXPECT_TRUE(close(layer->weight->grad, wanted.dw, 2e-2));
}

TEST_P(Fp8LayerTest, KeepsCodesNotBf16) {
  std::vector<at::Tensor> kept;
  linear_forward(engine, *layer, input().detach(), &kept);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].scalar_type(), at::kByte);
  EXPECT_EQ(kept[0].numel(), kTokens * kInputs);
  EXPECT_EQ(layer->saved_bytes, static_cast<int64_t>(kept[0].nbytes() + kept[1].nbytes()));
  const int64_t codes = kTokens * kInputs, bf16 = 2 * codes;
  EXPECT_GE(layer->saved_bytes, codes);
  EXPECT_LE(static_cast<double>(layer->saved_bytes), 0.52 * static_cast<double>(bf16));
  layer->fp8.reset();
  linear_forward(engine, *layer, input().detach(), &kept);
  EXPECT_EQ(layer->saved_bytes, bf16);
}

TEST_P(Fp8LayerTest, QuantizesTheWeightOncePerVersion) {
  const auto run = [&](int micro_batches) {
    watched->calls.clear();
    for (int i = 0; i < micro_batches; ++i)
      backward(linear(engine, input(), layer), output_gradient());
    return calls_on_the_weight();
  };
  for (int version = 0; version < 2; ++version) {
    const auto first = run(3);
    if (is_symmetric()) {
      ASSERT_EQ(first.size(), 1u);
      EXPECT_TRUE(first[0].row.wanted && first[0].column.wanted);
    } else {
      ASSERT_EQ(first.size(), 2u);
      EXPECT_TRUE(first[0].row.wanted && !first[0].column.wanted);
      EXPECT_TRUE(!first[1].row.wanted && first[1].column.wanted);
    }
    EXPECT_EQ(run(2).size(), 0u);
    refresh_compute({layer->weight});
  }
  watched->calls.clear();
  for (int i = 0; i < 3; ++i) {
    const at::NoGradGuard no_grad;
    linear(engine, input(), layer);
  }
  EXPECT_EQ(calls_on_the_weight().size(), 1u) << "by evaluations alone";
  // Inputs and gradients: once each, in both directions.
  watched->calls.clear();
  backward(linear(engine, input(), layer), output_gradient());
  int inputs = 0, gradients = 0;
  for (const auto& call : watched->calls) {
    if (call.x.is_same(layer->weight->compute)) continue;
    EXPECT_TRUE(call.row.wanted && call.column.wanted);
    EXPECT_EQ(call.column.keep, call.x.size(1) == kInputs);
    ++(call.x.size(1) == kInputs ? inputs : gradients);
  }
  EXPECT_EQ(inputs, 1);
  EXPECT_EQ(gradients, 1);
}

// Not the old copy of either direction.
TEST_P(Fp8LayerTest, AChangedWeightIsSeenByAllGemms) {
  backward(linear(engine, input(), layer), output_gradient());
  {
    const at::NoGradGuard no_grad;
    layer->weight->master.normal_().mul_(0.3);
  }
  refresh_compute({layer->weight});
  const at::Tensor x = input(), dy = output_gradient();
  const ExpectedResult wanted = ByHand(shared, *layer)(x, dy);
  const at::Tensor y = linear(engine, x, layer);
  backward(y, dy);
  EXPECT_TRUE(close(y, wanted.y, kBf16Unit));
  EXPECT_TRUE(close(x.grad(), wanted.dx, kBf16Unit));
}

TEST_P(Fp8LayerTest, AnInputWithoutGradientNeedsNoRowCopyOfDy) {
  watched->calls.clear();
  backward(linear(engine, input().detach(), layer), output_gradient());
  ASSERT_EQ(watched->calls.size(), 3u);  // input, weight, gradient
  EXPECT_TRUE(!watched->calls[2].row.wanted && watched->calls[2].column.wanted);
  EXPECT_EQ(layer->gemm_counts[static_cast<size_t>(Gemm::kInputGradient)].fp8, 0);
  EXPECT_EQ(layer->gemm_counts[static_cast<size_t>(Gemm::kWeightGradient)].fp8, 1);
}

TEST_P(Fp8LayerTest, EvaluationKeepsAndRecordsNothing) {
  at::Tensor y;
  const at::Tensor x = input();
  {
    const at::NoGradGuard no_grad;
    y = linear(engine, x, layer);
  }
  EXPECT_EQ(layer->saved_bytes, 0);
  for (const auto& call : watched->calls) {
    const bool weight = call.x.is_same(layer->weight->compute);
    if (!weight || !is_symmetric()) EXPECT_FALSE(call.column.wanted);
    if (!weight) EXPECT_FALSE(call.row.amax.defined());
  }
  EXPECT_TRUE(close(y, ByHand(shared, *layer)(x, output_gradient()).y, kBf16Unit));
}

// The state of scaling after two steps is the same whether one evaluates in between or not.
TEST_P(Fp8LayerTest, EvaluationLeavesScalingAlone) {
  const at::Tensor x = input(), other = bf16_normal({kTokens, kInputs}, 50), dy = output_gradient();
  std::vector<at::Tensor> states[2];
  for (const bool evaluates : {false, true}) {
    use(options_of(GetParam()));
    const auto evaluate = [&] {
      const at::NoGradGuard no_grad;
      if (evaluates) linear(engine, other, layer);
    };
    for (int64_t step = 1; step <= 2; ++step) {
      evaluate();
      backward(linear(engine, x, layer), dy);
      shared.scaling.finish_step(step);
      refresh_compute({layer->weight});
    }
    evaluate();
    backward(linear(engine, x, layer), dy);
    shared.scaling.finish_step(3);
    for (const auto& item : shared.scaling.state()) states[evaluates].push_back(item.second);
  }
  ASSERT_EQ(states[0].size(), states[1].size());
  for (size_t i = 0; i < states[0].size(); ++i) EXPECT_TRUE(states[0][i].equal(states[1][i])) << i;
}

TEST_P(Fp8LayerTest, MicroBatchesAddUpInFp32) {
  at::Tensor total = at::zeros({kOutputs, kInputs}, at::kDouble);
  at::Tensor first;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = input(), dy = i == 0 ? bf16_normal({kTokens, kOutputs}, 100)
                                              : bf16_normal({kTokens, kOutputs}, 1e-2);
    total += ByHand(shared, *layer)(x, dy).dw.to(at::kDouble);
    backward(linear(engine, x, layer), dy);
    if (i == 0) first = layer->weight->grad.clone();
  }
  EXPECT_EQ(watched->modes,
            (std::vector<engine::Accumulate>{engine::Accumulate::kOverwrite,
                                             engine::Accumulate::kAdd, engine::Accumulate::kAdd}));
  EXPECT_TRUE(close(layer->weight->grad, total, 1e-6));
  // The later ones are too small for a BF16 sum to have room for them.
  EXPECT_FALSE(layer->weight->grad.equal(first));
  EXPECT_TRUE(close(layer->weight->grad - first, total - first.to(at::kDouble), 1e-2));
}

TEST_P(Fp8LayerTest, MeasuresOnlyWhenAsked) {
  backward(linear(engine, input(), layer), output_gradient());
  EXPECT_EQ(watched->measured, 0);
  EXPECT_TRUE(layer->fp8->take_measured().empty());
  shared.measuring = true;
  refresh_compute({layer->weight});
  for (int i = 0; i < 2; ++i) backward(linear(engine, input(), layer), output_gradient());
  std::map<std::pair<Role, Direction>, int64_t> elements_of;
  for (const auto& found : layer->fp8->take_measured()) {
    // Where both copies hold the same numbers, one of them says it all.
    if (fp8::traits_of(GetParam()).activations == fp8::Granularity::kTensor)
      EXPECT_EQ(found.direction, Direction::kRow);
    const auto health = fp8::from_stats(std::span<const double, fp8::kHealthStats>(
        found.stats.const_data_ptr<double>(), fp8::kHealthStats));
    elements_of[{found.role, found.direction}] += health.elements;
    const fp8::Incidents& seen = health.incidents;
    EXPECT_EQ(seen.nan + seen.inf + seen.saturated, 0) << "role " << static_cast<int>(found.role);
  }
  for (const auto& [tensor, elements] : elements_of) {
    const Role role = tensor.first;
    EXPECT_EQ(elements, role == Role::kInput      ? 2 * kTokens * kInputs  // of two micro-batches
                        : role == Role::kGradient ? 2 * kTokens * kOutputs
                                                  : kOutputs * kInputs);  // quantized once
  }
  EXPECT_GE(elements_of.size(), 3u);
  EXPECT_TRUE(layer->fp8->take_measured().empty());
}

}  // namespace
}  // namespace octavo::nn
