// Which layers run in FP8, and the guard that names a layer in trouble.

#include "nn/fp8_model.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "nn/fp8_fixture.h"

namespace octavo::nn {
namespace {

using config::Fp8Guard;

constexpr int64_t kModelTokens = 64, kWidth = 128;

class Fp8ModelTest : public Fp8Test {
 protected:
  void SetUp() override {
    Fp8Test::SetUp();
    for (const char* name : {"h.0.attn.c_attn", "h.0.mlp.c_fc"})
      layers.push_back(fp8_test_layer(name, 0, kWidth, kWidth));
    for (const char* name : {"h.1.attn.c_attn", "h.1.mlp.c_fc"})
      layers.push_back(fp8_test_layer(name, 1, kWidth, kWidth));
    layers.push_back(fp8_test_layer("h.2.mlp.c_fc", 2, kWidth, kWidth));
  }
  static Fp8ModelOptions options(Recipe recipe, Fp8Guard guard = Fp8Guard::kFallback) {
    return {.fp8 = options_of(recipe),
            .skip = {},
            .tokens = kModelTokens,
            .stats_freq = 1,
            .guard = guard};
  }
  // The reason of each layer, and that it is the truth.
  std::vector<std::string> reasons(const Fp8Model& model) const {
    std::vector<std::string> result;
    int64_t in_fp8 = 0;
    for (const auto& plan : model.plan()) {
      EXPECT_EQ(plan.layer->fp8 != nullptr, plan.reason.empty()) << plan.layer->name;
      in_fp8 += plan.reason.empty();
      result.push_back(plan.reason);
    }
    EXPECT_EQ(result.size(), layers.size());
    EXPECT_EQ(model.layers_in_fp8(), in_fp8);
    return result;
  }
  std::string refusal(const Fp8ModelOptions& o) const {
    try {
      const Fp8Model model(engine, layers, o);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      for (const auto& layer : layers) EXPECT_EQ(layer->fp8, nullptr);
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return {};
  }
  LinearList layers;
};

using Reasons = std::vector<std::string>;

TEST_F(Fp8ModelTest, AllLayersAndBackAgain) {
  for (const Recipe recipe : kRecipes) {
    {
      const Fp8Model model(engine, layers, options(recipe));
      EXPECT_EQ(reasons(model), Reasons(5));
      EXPECT_EQ(model.options().recipe, recipe);
    }
    for (const auto& layer : layers) EXPECT_EQ(layer->fp8, nullptr) << "refers to what is gone";
  }
}

// nvfp4 keeps the last blocks in BF16, unless fp8_skip says otherwise.
TEST_F(Fp8ModelTest, ARecipesOwnDefaultOfSkip) {
  Fp8ModelOptions o = options(Recipe::kNvfp4);
  {
    const Fp8Model model(engine, layers, o);
    EXPECT_EQ(reasons(model), (Reasons{"", "", "", "", "fp8_skip last:1 (default)"}));
  }
  o.skip = {"none"};
  EXPECT_EQ(reasons(Fp8Model(engine, layers, o)), Reasons(5));
}

// Of what a down projection reads, the channel that stands out in any of the micro-batches; a
// healthy one hides nothing, and other layers are not looked at.
TEST_F(Fp8ModelTest, TheChannelThatStandsOutIsNamed) {
  constexpr int64_t kPlanted = 37;
  layers.push_back(fp8_test_layer("model.layers.0.mlp.down_proj", 0, kWidth, kWidth));
  Fp8Model model(engine, layers, options(Recipe::kCurrent));
  const at::Tensor usual = bf16_normal({kModelTokens, kWidth}), amplified = usual.clone();
  amplified.select(1, kPlanted).mul_(512);
  const auto ratio_of = [](const at::Tensor& x) {
    std::vector<float> largest;
    for (int64_t c = 0; c < kWidth; ++c)
      largest.push_back(x.select(1, c).abs().max().to(at::kFloat).item<float>());
    const float worst = *std::ranges::max_element(largest);
    std::ranges::sort(largest);
    return static_cast<double>(worst) / largest[(kWidth - 1) / 2];
  };
  const auto channels = [&](std::initializer_list<at::Tensor> batches, const char* layer) {
    model.begin_step(1);
    for (const at::Tensor& x : batches)
      for (const auto& each : layers) each->fp8->input(x, /*training=*/true, /*keep=*/true);
    fp8::Channels found;
    for (const auto& r : model.finish_step())
      if (r.layer == layer && r.tensor == "input") found = r.channels;
    return found;
  };
  const char* const down = "model.layers.0.mlp.down_proj";
  const fp8::Channels planted = channels({usual, amplified, usual}, down);
  EXPECT_EQ(planted.worst, kPlanted);
  EXPECT_DOUBLE_EQ(planted.ratio(), ratio_of(amplified));
  EXPECT_GT(planted.ratio(), 300);
  EXPECT_DOUBLE_EQ(channels({usual}, down).ratio(), ratio_of(usual));
  EXPECT_LT(ratio_of(usual), 3);
  EXPECT_FALSE(channels({amplified}, "h.0.mlp.c_fc").seen());
}

// Gradients are rounded by draws of the micro-batch, the layer and the copy, and of nothing else.
TEST_F(Fp8ModelTest, StochasticRoundingDrawsByPassAndLayer) {
  Fp8ModelOptions o = options(Recipe::kNvfp4);
  o.seed = 3;
  o.stats_freq = 0;
  Fp8Model model(engine, layers, o);
  const at::Tensor dy = bf16_normal({kModelTokens, kWidth});
  const auto values = [&](size_t layer, uint64_t pass, fp8::Direction direction) {
    model.begin_pass(pass);
    return layers[layer]->fp8->gradient(dy, true, true).copy(direction).values;
  };
  const auto row = fp8::Direction::kRow, column = fp8::Direction::kColumn;
  model.begin_step(1);
  const at::Tensor first = values(0, 7, row), turned = values(0, 7, column);
  EXPECT_FALSE(first.equal(values(1, 7, row))) << "another layer";
  EXPECT_FALSE(first.equal(values(0, 8, row))) << "another pass";
  EXPECT_FALSE(turned.equal(values(0, 8, column)));
  EXPECT_TRUE(first.equal(values(0, 7, row))) << "the same again";
  EXPECT_TRUE(turned.equal(values(0, 7, column)));
  const auto& call = watched->calls.back();
  EXPECT_TRUE(call.row.rounding.stochastic && call.column.rounding.stochastic);
  EXPECT_NE(call.row.rounding.stream, call.column.rounding.stream);
  EXPECT_TRUE(call.column.rotate && !call.row.rotate);
  layers[0]->fp8->input(bf16_normal({kModelTokens, kWidth}), true, true);
  const auto& input = watched->calls.back();
  EXPECT_FALSE(input.row.rounding.stochastic || input.column.rounding.stochastic);
  EXPECT_TRUE(input.column.rotate && !input.row.rotate);
}

TEST_F(Fp8ModelTest, SkipsByPattern) {
  const std::pair<Reasons, Reasons> cases[] = {
      {{"first"}, {"fp8_skip first", "fp8_skip first", "", "", ""}},
      {{"last"}, {"", "", "", "", "fp8_skip last"}},
      {{"*.c_attn"}, {"fp8_skip *.c_attn", "", "fp8_skip *.c_attn", "", ""}},
      {{"h.1.mlp.c_fc", "last"}, {"", "", "", "fp8_skip h.1.mlp.c_fc", "fp8_skip last"}},
      {{"h.?.attn.*"}, {"fp8_skip h.?.attn.*", "", "fp8_skip h.?.attn.*", "", ""}}};
  for (const auto& [skip, wanted] : cases) {
    Fp8ModelOptions o = options(Recipe::kCurrent);
    o.skip = skip;
    const Fp8Model model(engine, layers, o);
    EXPECT_EQ(reasons(model), wanted) << skip.front();
  }
}

TEST_F(Fp8ModelTest, ASkipThatMatchesNothingIsRefused) {
  Fp8ModelOptions o = options(Recipe::kCurrent);
  o.skip = {"last", "h.1.attn.c_atn"};
  const std::string message = refusal(o);
  EXPECT_NE(message.find("'h.1.attn.c_atn'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'h.1.attn.c_attn'"), std::string::npos) << message;
}

TEST_F(Fp8ModelTest, SizesThatHardwareRefusesStayInBf16) {
  layers[1] = fp8_test_layer("h.0.mlp.c_fc", 0, 120, kWidth);
  layers[3] = fp8_test_layer("h.1.mlp.c_fc", 1, 64, 48);
  {
    const Fp8Model model(engine, layers, options(Recipe::kDelayed));
    EXPECT_EQ(reasons(model), (Reasons{"", "outputs 120 is not a multiple of 16", "", "", ""}));
    EXPECT_EQ(model.state().size(), 0u);
  }
  {
    const Fp8Model model(engine, layers, options(Recipe::kMxfp8));
    EXPECT_EQ(reasons(model), (Reasons{"", "outputs 120 is not a multiple of 32", "",
                                       "inputs 48 is not a multiple of 32", ""}));
  }
  const Fp8Model model(engine, layers, options(Recipe::kBlockwise));
  EXPECT_EQ(reasons(model)[3],
            "outputs 64 is not a multiple of 128, inputs 48 is not a multiple of 128");
}

TEST_F(Fp8ModelTest, AnyNumberOfTokensIsTaken) {
  Fp8ModelOptions o = options(Recipe::kMxfp8);
  o.tokens = 41;
  EXPECT_EQ(Fp8Model(engine, layers, o).layers_in_fp8(), std::ssize(layers));
}

TEST_F(Fp8ModelTest, NoLayerAtAllIsRefused) {
  Fp8ModelOptions o = options(Recipe::kCurrent);
  o.skip = {"*"};
  EXPECT_NE(refusal(o).find("fp8_skip *"), std::string::npos);
  layers.clear();
  EXPECT_NE(refusal(options(Recipe::kCurrent)).find("no linear layers"), std::string::npos);
}

// A run of steps in which every layer sees N(0, 1), except for what a test does to one.
class Fp8GuardTest : public Fp8ModelTest {
 protected:
  struct LayerInputs {
    at::Tensor x, dy;
  };
  static LayerInputs healthy() {
    return {bf16_normal({kModelTokens, kWidth}), bf16_normal({kModelTokens, kWidth}, 1e-3)};
  }
  // One step; layer `odd` is fed `what`. Returns what was logged.
  std::string step(Fp8Model& model, size_t odd, const LayerInputs& what, bool dropped = false) {
    ++step_;
    testing::internal::CaptureStderr();
    model.begin_step(step_);
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerInputs fed = i == odd ? what : healthy();
      backward(linear(engine, fed.x.clone().set_requires_grad(true), layers[i]), fed.dy);
    }
    reports = dropped ? model.drop_step() : model.finish_step();
    for (const auto& layer : layers) {  // as the optimizer does
      layer->weight->grad_fresh = true;
      layer->bias->grad_fresh = true;
    }
    refresh_compute(dropped ? ParamList() : weights());
    return testing::internal::GetCapturedStderr();
  }
  ParamList weights() const {
    ParamList result;
    for (const auto& layer : layers) result.push_back(layer->weight);
    return result;
  }
  // What was found wrong in the last step, by layer and tensor.
  std::map<std::string, std::string> troubles() const {
    std::map<std::string, std::string> result;
    for (const auto& r : reports)
      if (!r.trouble.empty()) result[r.layer + " " + r.tensor] = r.trouble;
    return result;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  std::vector<Fp8TensorReport> reports;

 private:
  int64_t step_ = 0;
};

TEST_F(Fp8GuardTest, HealthyLayersAreLeftAlone) {
  for (const Recipe recipe : kRecipes) {
    SCOPED_TRACE(config::name_of(recipe));
    Fp8Model model(engine, layers, options(recipe));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(step(model, 99, {}), "");
      EXPECT_FALSE(reports.empty());
    }
    EXPECT_TRUE(troubles().empty());
    EXPECT_EQ(model.warnings(), 0);
    EXPECT_TRUE(model.fallbacks().empty());
    // Amax and noise are those of N(0, 1) in eight bits.
    for (const auto& r : reports) {
      EXPECT_GT(r.health.amax, 0);
      EXPECT_GT(r.health.sqnr_db(), 20) << r.layer << " " << r.tensor;
      EXPECT_LT(r.health.sqnr_db(), 45) << r.layer << " " << r.tensor;
    }
  }
}

// The factor comes from the steps before; the layer grows a thousandfold every step.
TEST_F(Fp8GuardTest, OutliersThatSaturateAreNamedAndFallBack) {
  Fp8Model model(engine, layers, options(Recipe::kDelayed));
  double size = 1;
  const auto outliers = [&] {
    size *= 1e3;
    LayerInputs fed = healthy();
    fed.x = bf16_normal({kModelTokens, kWidth}, size);
    return fed;
  };
  step(model, 99, {});
  step(model, 99, {});
  const std::string first = step(model, 1, outliers());
  EXPECT_TRUE(has(first, "fp8: step 3: h.0.mlp.c_fc: input: ")) << first;
  EXPECT_TRUE(has(first, "% saturated (limit 1%)")) << first;
  EXPECT_EQ(troubles().size(), 1u);
  EXPECT_EQ(model.warnings(), 1);
  EXPECT_EQ(model.layers_in_fp8(), 5);
  const std::string second = step(model, 1, outliers());
  EXPECT_TRUE(has(second, "fp8: step 4: h.0.mlp.c_fc: input: ")) << second;
  EXPECT_TRUE(has(second, "h.0.mlp.c_fc continues in BF16 from step 5")) << second;
  const Reasons found = reasons(model);
  EXPECT_TRUE(has(found[1], "fp8_guard at step 4: input: ")) << found[1];
  EXPECT_EQ((Reasons{found[0], found[2], found[3], found[4]}), Reasons(4));
  ASSERT_EQ(model.fallbacks().size(), 1u);
  EXPECT_EQ(model.fallbacks()[0].layer, "h.0.mlp.c_fc");
  EXPECT_EQ(model.fallbacks()[0].step, 4);
  EXPECT_TRUE(has(model.fallbacks()[0].reason, "saturated"));
  // Training continues, this layer in BF16, and nobody complains of it any more.
  EXPECT_EQ(step(model, 1, outliers()), "");
  for (const auto& r : reports) EXPECT_NE(r.layer, "h.0.mlp.c_fc");
  for (const auto& ran : layers[1]->gemm_counts) EXPECT_TRUE(ran.fp8 == 4 && ran.other == 1);
  for (const auto& ran : layers[0]->gemm_counts) EXPECT_TRUE(ran.fp8 == 5 && ran.other == 0);
}

TEST_F(Fp8GuardTest, DelayedIsJudgedFromStepThree) {
  Fp8Model model(engine, layers, options(Recipe::kDelayed));
  LayerInputs fed = healthy();
  fed.x = fed.x * 1e4;  // over 448 with the first factor, 1
  EXPECT_EQ(step(model, 0, fed), "");
  EXPECT_GT(reports[0].health.saturated_percent(), 50);
  EXPECT_EQ(reports[0].trouble, "");
  fed.x = fed.x * 1e4;
  EXPECT_EQ(step(model, 0, fed), "");
  fed.x = fed.x * 1e4;
  EXPECT_TRUE(has(step(model, 0, fed), "h.0.attn.c_attn"));
  EXPECT_EQ(model.warnings(), 1);
  EXPECT_EQ(model.layers_in_fp8(), 5);  // that was the first
}

// What is wrong shows in the first step of statistics, in every recipe that takes its scale from
// the tensor itself.
TEST_F(Fp8GuardTest, NanAndZerosAreNamedAtOnceAndFallBack) {
  LayerInputs nan = healthy(), infinite = healthy(), zeros = healthy(), dead = healthy();
  nan.dy[3][5] = NAN;
  infinite.x[3][5] = -INFINITY;
  zeros.x = at::zeros_like(zeros.x);
  dead.dy = at::zeros_like(dead.dy);
  struct Fault {
    LayerInputs fed;
    const char *tensor, *text;
  };
  const Fault faults[] = {{nan, "gradient", "1 NaN"},
                          {infinite, "input", "1 infinite"},
                          {zeros, "input", "all zero"},
                          {dead, "gradient", "all zero"}};
  for (const Recipe recipe :
       {Recipe::kCurrent, Recipe::kRowwise, Recipe::kBlockwise, Recipe::kMxfp8})
    for (const Fault& fault : faults) {
      SCOPED_TRACE(str(config::name_of(recipe), ", ", fault.tensor, ": ", fault.text));
      Fp8Model model(engine, layers, options(recipe));
      const std::string first = step(model, 2, fault.fed, true);
      EXPECT_TRUE(has(first, str(": h.1.attn.c_attn: ", fault.tensor))) << first;
      EXPECT_TRUE(has(first, fault.text)) << first;
      for (const auto& [who, what] : troubles())
        EXPECT_TRUE(has(who, str("h.1.attn.c_attn ", fault.tensor)) && what == fault.text)
            << who << what;
      EXPECT_EQ(model.layers_in_fp8(), 5);
      const std::string second = step(model, 2, fault.fed, true);
      EXPECT_TRUE(has(second, "h.1.attn.c_attn continues in BF16")) << second;
      EXPECT_EQ(model.layers_in_fp8(), 4);
      EXPECT_TRUE(has(reasons(model)[2], fault.text));
    }
}

TEST_F(Fp8GuardTest, UnderflowIsNamed) {
  Fp8Model model(engine, layers, options(Recipe::kCurrent));
  LayerInputs fed = healthy();
  fed.x = fed.x * 1e-6;
  fed.x[0][0] = 1;
  const std::string text = step(model, 4, fed);
  EXPECT_TRUE(has(text, "h.2.mlp.c_fc: input: ")) << text;
  EXPECT_TRUE(has(text, "underflowed to zero")) << text;
}

TEST_F(Fp8GuardTest, AHealthyStepInBetweenStartsThePatienceAnew) {
  Fp8Model model(engine, layers, options(Recipe::kCurrent));
  LayerInputs zeros = healthy();
  zeros.x = at::zeros_like(zeros.x);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(step(model, 0, zeros), "");
    EXPECT_EQ(step(model, 99, {}), "");
  }
  EXPECT_EQ(model.layers_in_fp8(), 5);
  EXPECT_EQ(model.warnings(), 3);
}

TEST_F(Fp8GuardTest, LogOnlyLogsAndOffSaysNothing) {
  LayerInputs zeros = healthy();
  zeros.x = at::zeros_like(zeros.x);
  for (const auto guard : {Fp8Guard::kLog, Fp8Guard::kOff}) {
    Fp8Model model(engine, layers, options(Recipe::kCurrent, guard));
    const int64_t before = warning_count();
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(has(step(model, 0, zeros), "h.0.attn.c_attn"), guard == Fp8Guard::kLog);
    const int64_t wanted = guard == Fp8Guard::kLog ? 3 : 0;
    EXPECT_EQ(model.warnings(), wanted);
    EXPECT_EQ(warning_count() - before, wanted);
    EXPECT_EQ(model.layers_in_fp8(), 5);
    EXPECT_EQ(troubles().size(), 1u);  // the record has it either way
  }
}

TEST_F(Fp8GuardTest, StatisticsAreTakenWhenDue) {
  Fp8ModelOptions o = options(Recipe::kCurrent);
  o.stats_freq = 3;
  Fp8Model model(engine, layers, o);
  for (int i = 1; i <= 7; ++i) {
    watched->measured = 0;
    step(model, 99, {});
    EXPECT_EQ(reports.empty(), i % 3 != 0) << i;
    EXPECT_EQ(watched->measured, i % 3 != 0 ? 0 : 15) << "three tensors of five layers";
  }
  o.stats_freq = 0;
  Fp8Model never(engine, layers, o);
  step(never, 99, {});
  EXPECT_TRUE(reports.empty());
}

// An evaluation before a step must not hide the weight from the statistics of the step.
TEST_F(Fp8GuardTest, StatisticsAfterAnEvaluationHaveTheWeight) {
  Fp8Model model(engine, layers, options(Recipe::kCurrent));
  {
    const at::NoGradGuard no_grad;
    for (const auto& layer : layers) linear(engine, healthy().x, layer);
  }
  step(model, 99, {});
  int weights_seen = 0;
  for (const auto& r : reports) weights_seen += r.role == Role::kWeight;
  EXPECT_EQ(weights_seen, 5);
}

TEST_F(Fp8GuardTest, ReportsNameTheirTensors) {
  const std::pair<Recipe, Reasons> cases[] = {
      {Recipe::kDelayed, {"gradient", "input", "weight"}},
      {Recipe::kBlockwise,
       {"gradient", "gradient (columns)", "input", "input (columns)", "weight"}},
      {Recipe::kMxfp8,
       {"gradient", "gradient (columns)", "input", "input (columns)", "weight",
        "weight (columns)"}}};
  for (const auto& [recipe, wanted] : cases) {
    Fp8Model model(engine, layers, options(recipe));
    step(model, 99, {});
    Reasons found;
    for (const auto& r : reports)
      if (r.layer == "h.1.mlp.c_fc") found.push_back(r.tensor);
    std::ranges::sort(found);
    EXPECT_EQ(found, wanted) << config::name_of(recipe);
  }
}

// As a checkpoint tells it.
TEST_F(Fp8GuardTest, FallBackFromOutside) {
  Fp8Model model(engine, layers, options(Recipe::kDelayed));
  testing::internal::CaptureStderr();
  model.fall_back({"h.1.mlp.c_fc", "input: 3 NaN", 17});
  model.fall_back({"h.1.mlp.c_fc", "input: 3 NaN", 17});
  model.fall_back({"h.9.gone", "input: 3 NaN", 17});
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(reasons(model), (Reasons{"", "", "", "fp8_guard at step 17: input: 3 NaN", ""}));
  EXPECT_EQ(model.fallbacks().size(), 1u);
  EXPECT_EQ(step(model, 99, {}), "");
  EXPECT_EQ(layers[3]->gemm_counts[0].other, 1);
}

// Delayed scales: every step knows what does not fit, between two statistics too.
TEST_F(Fp8GuardTest, NamesWhatDoesNotFitItsScale) {
  Fp8ModelOptions o = options(Recipe::kDelayed, Fp8Guard::kLog);
  o.stats_freq = 0;
  Fp8Model model(engine, layers, o);
  int64_t number = 0;
  const auto warned = [&](float filled) {
    model.begin_step(++number);
    at::Tensor magnitudes = at::ones_like(model.step_magnitudes(), at::kDouble);  // factors of 1
    magnitudes[1][1] = filled * 448;                                              // E4M3
    model.take_magnitudes(magnitudes);
    const int64_t before = model.warnings();
    model.finish_step();
    return model.warnings() - before;
  };
  EXPECT_EQ(warned(100), 0) << "factors are 1 in the first step";
  EXPECT_EQ(warned(100), 0);
  EXPECT_EQ(warned(1), 0);
  EXPECT_EQ(warned(3), 0) << "a step may be larger than those before it";
  EXPECT_EQ(warned(1), 0);
  EXPECT_EQ(warned(5), 1);
  EXPECT_EQ(warned(6), 0) << "said once";
  EXPECT_EQ(warned(1), 0);
  for (int i = 1; i < 10; ++i) EXPECT_EQ(warned(1.3f), 0);
  EXPECT_EQ(warned(1.3f), 1);
  EXPECT_EQ(warned(1.3f), 0);
  EXPECT_EQ(warned(50), 1) << "much more than before";
}

// Delayed: a step that was not applied leaves no trace in the scaling state; the steps after it go
// on as if it had not been.
TEST_F(Fp8GuardTest, ADroppedStepLeavesNoTrace) {
  const auto run = [&](bool with_dropped) {
    at::manual_seed(5);
    Fp8ModelOptions o = options(Recipe::kDelayed);
    o.stats_freq = 0;  // statistics would make the weights anew by themselves
    Fp8Model model(engine, layers, o);
    const LayerInputs one = healthy(), two = healthy(), three = healthy();
    const auto all = [&](const LayerInputs& fed, int64_t number, bool dropped) {
      model.begin_step(number);
      for (const int64_t factor : {1, 3}) {  // two micro-batches
        if (factor == 3) model.finish_pass();
        for (const auto& layer : layers)
          backward(linear(engine, (fed.x * factor).set_requires_grad(true), layer), fed.dy);
      }
      if (dropped)
        model.drop_step();
      else
        model.finish_step();
      if (!dropped) refresh_compute(weights());
    };
    all(one, 1, false);
    if (with_dropped) all(two, 2, true);
    all(three, 2, false);
    return model.state();
  };
  const auto without = run(false), with = run(true);
  ASSERT_EQ(without.size(), with.size());
  for (size_t i = 0; i < with.size(); ++i)
    EXPECT_TRUE(with[i].second.equal(without[i].second)) << with[i].first;
}

// fp8_interval counts updates, which a step has as many of as passes.
TEST_F(Fp8GuardTest, PassesOfAnotherNumberAreCountedAsIfTheyHadAlwaysBeenSo) {
  const auto run = [&](int64_t passes) {
    at::manual_seed(5);
    Fp8ModelOptions o = options(Recipe::kDelayed);
    o.stats_freq = 0;
    o.fp8.interval = 2;
    o.passes = passes;
    Fp8Model model(engine, layers, o);
    if (passes != 2) model.resize_passes(o.tokens, 2);
    const LayerInputs fed = healthy();
    model.begin_step(1);
    for (const int64_t factor : {1, 3}) {
      if (factor == 3) model.finish_pass();
      for (const auto& layer : layers)
        backward(linear(engine, (fed.x * factor).set_requires_grad(true), layer), fed.dy);
    }
    model.finish_step();
    refresh_compute(weights());
    return model.state();
  };
  const auto always = run(2), resized = run(1);
  ASSERT_EQ(always.size(), resized.size());
  for (size_t i = 0; i < always.size(); ++i)
    EXPECT_TRUE(always[i].second.equal(resized[i].second)) << always[i].first;
}

TEST_F(Fp8GuardTest, StateGoesToTheNextModel) {
  const auto run = [&](Fp8Model& model, int steps) {
    for (int i = 0; i < steps; ++i) step(model, 99, {});
  };
  Fp8Model first(engine, layers, options(Recipe::kDelayed));
  run(first, 3);
  std::map<std::string, at::Tensor> kept;
  for (const auto& [name, tensor] : first.state()) kept[name] = tensor;
  EXPECT_EQ(kept.size(), 2u * 3 * 5);
  EXPECT_TRUE(kept.contains("factor.h.1.mlp.c_fc.gradient"));
  EXPECT_TRUE(kept.contains("amax_history.h.0.attn.c_attn.weight"));
  const LinearList before = std::exchange(layers, {});
  for (const auto& layer : before)
    layers.push_back(make_linear(layer->name, layer->block, layer->weight, layer->bias));
  Fp8Model second(engine, layers, options(Recipe::kDelayed));
  const auto missing = second.load(
      [&](const std::string& name) { return kept.contains(name) ? kept.at(name) : at::Tensor(); });
  EXPECT_TRUE(missing.empty());
  for (const auto& [name, tensor] : second.state())
    EXPECT_TRUE(tensor.equal(kept.at(name))) << name;
}

}  // namespace
}  // namespace octavo::nn
