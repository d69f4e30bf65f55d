// Faults on purpose: each is named by the next statistics, and training survives it.

#include <cmath>
#include <limits>

#include "train/fp8_run.h"
#include "train/reporting/fp8_report.h"
#include "train/state/persist.h"

namespace octavo::train {
namespace {

using config::Fp8Guard;
using config::Fp8Recipe;

constexpr const char* kUp = "h.1.mlp.c_fc";
constexpr const char* kDown = "h.1.mlp.c_proj";

class Fp8Faults : public Fp8Test {
 protected:
  // A run that has settled: delayed scaling has factors of its own.
  std::unique_ptr<train::Run> settled(Fp8Recipe recipe, Fp8Guard guard) {
    auto s = settings(recipe);
    s.fp8_guard = guard;
    if (recipe == Fp8Recipe::kDelayed) s.fp8_margin = 1;  // no saturation but the fault's
    auto run = start_faulty(s);
    for (int i = 0; i < 5; ++i) {
      const auto record = train_step(*run);
      EXPECT_EQ(troubled_layers(record), "") << i;
    }
    EXPECT_EQ(run->trained.fp8->warnings(), 0);
    return run;
  }
  static const nn::Fp8LayerPlan& plan_of(const train::Run& run, const std::string& layer) {
    for (const auto& plan : run.trained.fp8->plan())
      if (plan.layer->name == layer) return plan;
    throw std::runtime_error("no layer " + layer);
  }
  void put_nan() {
    faults.gradient = [](at::Tensor& dy) { dy[3][5] = std::numeric_limits<float>::quiet_NaN(); };
  }
  void put_zeros() {
    faults.activation = [](at::Tensor& y) { y.zero_(); };
  }
  // One of 32 columns, ten times larger in every step: more than a factor of the past can hold.
  void put_outliers() {
    faults.activation = [size = 10.0](at::Tensor& y) mutable {
      size *= 10;
      y.narrow(1, 0, y.size(1) / 32).fill_(size);
    };
  }
  // The fault is over: the run learns again.
  void expect_recovery(train::Run& run) {
    faults = {};
    const double at_its_end = train_step(run).loss;
    for (int i = 0; i < 12; ++i) {
      const auto record = train_step(run);
      ASSERT_TRUE(std::isfinite(record.loss) && std::isfinite(record.grad_norm)) << i;
      ASSERT_FALSE(record.skipped) << i;
    }
    EXPECT_LT(steps(run, 1).loss, std::min(at_its_end, 3.2));
  }
};

TEST_F(Fp8Faults, OutliersThatGrowAreNamedAndTrainingGoesOn) {
  const auto run = settled(Fp8Recipe::kDelayed, Fp8Guard::kLog);
  put_outliers();
  for (int i = 1; i <= 4; ++i) {
    const auto record = train_step(*run);
    EXPECT_EQ(troubled_layers(record), kDown) << i;
    EXPECT_EQ(trouble_of(record, kDown, "input"), "3.12% saturated (limit 1%)") << i;
    EXPECT_TRUE(std::isfinite(record.loss));
    EXPECT_EQ(run->trained.fp8->warnings(), i + 1);  // one of the scale, at the first step
    EXPECT_EQ(record.fp8_layers, 8);
  }
  EXPECT_TRUE(run->trained.fp8->fallbacks().empty());
  faults = {};
  // The history remembers the outliers, so that the numbers of a healthy layer are too small now.
  const auto after = train_step(*run);
  EXPECT_NE(trouble_of(after, kDown, "input").find("underflowed"), std::string::npos);
  EXPECT_LT(steps(*run, 30).loss, after.loss);
}

TEST_F(Fp8Faults, OutliersMoveTheLayerToBf16) {
  const auto run = settled(Fp8Recipe::kDelayed, Fp8Guard::kFallback);
  put_outliers();
  EXPECT_EQ(train_step(*run).fp8_fallbacks, 0);
  const auto record = train_step(*run);
  EXPECT_EQ(record.fp8_fallbacks, 1);
  EXPECT_EQ(record.fp8_layers, 7);
  ASSERT_EQ(run->trained.fp8->fallbacks().size(), 1u);
  EXPECT_EQ(run->trained.fp8->fallbacks()[0].layer, kDown);
  EXPECT_EQ(run->trained.fp8->fallbacks()[0].step, 7);
  EXPECT_EQ(run->trained.fp8->fallbacks()[0].reason, "input: 3.12% saturated (limit 1%)");
  EXPECT_EQ(plan_of(*run, kDown).reason, "fp8_guard at step 7: input: 3.12% saturated (limit 1%)");
  EXPECT_EQ(plan_of(*run, kDown).layer->fp8, nullptr);
  EXPECT_EQ(plan_of(*run, kUp).reason, "");
  EXPECT_EQ(trouble_of(steps(*run, 1), kDown, "input"), "none");  // not quantized any more
  expect_recovery(*run);
}

// One scale for a whole tensor gives everything else away; scales of blocks lose one block.
TEST_F(Fp8Faults, OneOutlierHurtsTensorScalesNotBlockScales) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kCurrent, Fp8Recipe::kMxfp8}) {
    const auto run = settled(recipe, Fp8Guard::kLog);
    faults.activation = [](at::Tensor& y) { y[0][0] = 1e6; };
    const std::string found = trouble_of(train_step(*run), kDown, "input");
    if (recipe == Fp8Recipe::kCurrent)
      EXPECT_NE(found.find("underflowed to zero"), std::string::npos) << found;
    else
      EXPECT_EQ(found, "");
    faults = {};
  }
}

TEST_F(Fp8Faults, ANanInAGradientIsNamedAndItsStepDropped) {
  for (const Fp8Recipe recipe : fp8::kRecipes) {
    SCOPED_TRACE(name_of(recipe));
    const auto run = settled(recipe, Fp8Guard::kLog);
    const auto before = state_of(*run);
    put_nan();
    for (int i = 1; i <= 3; ++i) {
      const auto record = train_step(*run);
      EXPECT_TRUE(record.skipped);
      EXPECT_TRUE(std::isfinite(record.loss));
      EXPECT_FALSE(std::isfinite(record.grad_norm));
      EXPECT_EQ(trouble_of(record, kUp, "gradient"), "1 NaN");
      EXPECT_EQ(trouble_of(record, kDown, "gradient"), "");  // before the fault
      EXPECT_EQ(run->progress.skipped_steps, i);
      EXPECT_EQ(run->progress.step, 5 + i);
      EXPECT_EQ(run->trained.optimizer->steps(), 5);
      EXPECT_EQ(differences(*run, before), "");
    }
    EXPECT_GE(run->trained.fp8->warnings(), 3);
    EXPECT_TRUE(run->trained.fp8->fallbacks().empty());
    expect_recovery(*run);
    EXPECT_EQ(run->progress.skipped_steps, 3);
    EXPECT_EQ(run->progress.skipped_in_a_row, 0);
  }
}

TEST_F(Fp8Faults, ANanMovesTheLayersItReachesToBf16) {
  const auto run = settled(Fp8Recipe::kMxfp8, Fp8Guard::kFallback);
  put_nan();
  train_step(*run);
  EXPECT_EQ(train_step(*run).fp8_fallbacks, 7);  // all but the one behind the fault
  EXPECT_EQ(plan_of(*run, kUp).reason.substr(0, 20), "fp8_guard at step 7:");
  EXPECT_EQ(plan_of(*run, kDown).reason, "");
  expect_recovery(*run);
}

// Statistics that come once in 100 steps would come too late: a dropped step asks for them.
TEST_F(Fp8Faults, ANanIsSeenBetweenStatisticsToo) {
  auto s = settings(Fp8Recipe::kCurrent);
  s.fp8_stats_freq = 100;
  s.fp8_guard = Fp8Guard::kFallback;
  const auto run = start_faulty(s);
  steps(*run, 3);
  put_nan();
  EXPECT_EQ(train_step(*run).fp8_fallbacks, 0);
  EXPECT_EQ(trouble_of(steps(*run, 1), kUp, "gradient"), "1 NaN");
  EXPECT_EQ(train_step(*run).fp8_fallbacks, 7);
  faults = {};
  EXPECT_FALSE(steps(*run, 2).skipped);
}

TEST_F(Fp8Faults, WithoutTheGuardANanStops) {
  const auto run = settled(Fp8Recipe::kDelayed, Fp8Guard::kOff);
  put_nan();
  const auto [code, message] = refusal([&] { train_step(*run); });
  EXPECT_EQ(code, ExitCode::kGuard);
  EXPECT_NE(message.find("not finite at step 6"), std::string::npos) << message;
  EXPECT_EQ(run->progress.step, 5);
  EXPECT_EQ(run->trained.optimizer->steps(), 5);
}

TEST_F(Fp8Faults, MoreThanTenDroppedStepsInARowStop) {
  auto s = settings();
  s.fp8_stats_freq = 0;
  const auto run = start_faulty(s);
  steps(*run, 2);
  put_nan();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(train_step(*run).skipped) << i;
  faults = {};
  EXPECT_FALSE(train_step(*run).skipped);  // the count begins again
  put_nan();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(train_step(*run).skipped) << i;
  EXPECT_EQ(refusal([&] { train_step(*run); }).first, ExitCode::kGuard);
  EXPECT_EQ(run->progress.skipped_steps, 20);
}

TEST_F(Fp8Faults, AnAllZeroActivationIsNamedAndMovesTheLayer) {
  for (const Fp8Recipe recipe : fp8::kRecipes) {
    SCOPED_TRACE(name_of(recipe));
    const auto run = settled(recipe, Fp8Guard::kFallback);
    put_zeros();
    const auto first = train_step(*run);
    EXPECT_EQ(troubled_layers(first), kDown);
    EXPECT_EQ(trouble_of(first, kDown, "input"), "all zero");
    EXPECT_EQ(first.fp8_fallbacks, 0);
    EXPECT_EQ(train_step(*run).fp8_fallbacks, 1);
    EXPECT_NE(plan_of(*run, kDown).reason.find("all zero"), std::string::npos);
    EXPECT_EQ(run->trained.fp8->warnings(), 2);
    EXPECT_FALSE(train_step(*run).skipped);
    expect_recovery(*run);
  }
}

TEST_F(Fp8Faults, OneBadStatisticIsForgivenByTheFallback) {
  const auto run = settled(Fp8Recipe::kCurrent, Fp8Guard::kFallback);
  for (int i = 0; i < 3; ++i) {
    put_zeros();
    train_step(*run);
    faults = {};
    train_step(*run);
  }
  EXPECT_EQ(run->trained.fp8->warnings(), 3);
  EXPECT_TRUE(run->trained.fp8->fallbacks().empty());
}

TEST_F(Fp8Faults, TheGuardOffSaysNothing) {
  const auto run = settled(Fp8Recipe::kCurrent, Fp8Guard::kOff);
  put_zeros();
  const int64_t warnings = warning_count();
  EXPECT_EQ(trouble_of(steps(*run, 3), kDown, "input"), "all zero");  // in the record all the same
  EXPECT_EQ(warning_count(), warnings);
  EXPECT_EQ(run->trained.fp8->layers_in_fp8(), 8);
}

TEST_F(Fp8Faults, AFallbackIsInTheReceiptAndTheCheckpoint) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kDelayed, Fp8Recipe::kRowwise}) {
    SCOPED_TRACE(name_of(recipe));
    const std::string reason = recipe == Fp8Recipe::kDelayed
                                   ? "input: all zero"
                                   : "input: all zero; input (columns): all zero";
    const auto run = settled(recipe, Fp8Guard::kFallback);
    put_zeros();
    steps(*run, 2);
    faults = {};
    steps(*run, 2);
    const Json receipt = fp8_receipt(run->trained, run->settings.max_seq_length);
    EXPECT_EQ(receipt["fallbacks"],
              Json::array({{{"layer", kDown}, {"reason", reason}, {"step", 7}}}));
    EXPECT_EQ(receipt["layers"], 7);
    EXPECT_EQ(receipt["guard_warnings"], 2);
    for (const auto& line : receipt["gemms"]) {
      if (line["layer"] != kDown) continue;
      EXPECT_EQ(line["precision"], "BF16");
      EXPECT_EQ(line["reason"], "fp8_guard at step 7: " + reason);
      EXPECT_EQ(line["ran_fp8"], 7);
      EXPECT_EQ(line["ran_other"], 2);
    }

    save(*run, "faulty", false, nullptr);
    auto s = run->settings;
    s.resume = "latest";
    const auto resumed = start(s);
    EXPECT_EQ(fp8_receipt(resumed->trained, resumed->settings.max_seq_length)["fallbacks"],
              receipt["fallbacks"]);
    EXPECT_EQ(plan_of(*resumed, kDown).reason, plan_of(*run, kDown).reason);
    EXPECT_EQ(plan_of(*resumed, kDown).layer->fp8, nullptr);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(train_step(*resumed).loss, train_step(*run).loss) << i;
    EXPECT_EQ(differences(*resumed, state_of(*run)), "");
  }
}

// A run that is stopped after a dropped step continues as one that is not.
TEST_F(Fp8Faults, AResumeAfterADroppedStepIsBitwise) {
  const auto run = settled(Fp8Recipe::kDelayed, Fp8Guard::kLog);
  put_nan();
  EXPECT_TRUE(train_step(*run).skipped);
  faults = {};
  save(*run, "dropped", false, nullptr);
  auto s = run->settings;
  s.resume = "latest";
  const auto resumed = start(s);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(train_step(*resumed).loss, train_step(*run).loss) << i;
    EXPECT_EQ(differences(*resumed, state_of(*run)), "") << i;
  }
}

}  // namespace
}  // namespace octavo::train
