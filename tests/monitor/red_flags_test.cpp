#include "monitor/red_flags.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace octavo::monitor {
namespace {

// Steps as a healthy run has them: a loss that falls and is noisy, norms that vary.
class Healthy {
 public:
  explicit Healthy(uint64_t seed = 1) : random_(seed) {}
  StepRecord next() {
    StepRecord r;
    r.step = ++step_;
    const auto t = static_cast<double>(step_);
    r.loss = 2 + 3 * std::exp(-t / 500) - 0.15 * std::log10(t) + 0.2 * noise_(random_);
    r.grad_norm = std::exp(0.4 * noise_(random_));
    r.learning_rate = 1e-3 * (0.55 + 0.45 * std::cos(M_PI * t / 10'000));
    r.seconds = 0.1;
    r.data_wait_seconds = 0.001;
    r.tokens_per_second = 1000 * (1 + 0.02 * noise_(random_));
    return r;
  }

 private:
  int64_t step_ = 0;
  std::mt19937_64 random_;
  std::normal_distribution<double> noise_;
};

std::vector<std::string> names(const std::vector<Flag>& flags) {
  std::vector<std::string> found;
  for (const Flag& flag : flags) found.push_back(flag.name);
  return found;
}

// Feeds healthy steps that `change` makes ill, and returns what was raised.
template <typename Change>
std::vector<Flag> raised(RedFlags& flags, Healthy& healthy, int steps, Change&& change) {
  std::vector<Flag> all;
  for (int i = 0; i < steps; ++i) {
    StepRecord r = healthy.next();
    change(r);
    for (Flag& flag : flags.on_step(r)) all.push_back(std::move(flag));
  }
  return all;
}

// Of 8 experts of which a token has 2, as the busiest two take this share of the rows.
ExpertLoad load_of(double busiest) {
  return {.busiest_share = busiest,
          .even_share = 0.25,
          .largest = 4 * busiest,
          .idle = 1,
          .token_shares = {}};
}

const auto kNothing = [](StepRecord&) {};
const std::vector<std::string> kNone;

constexpr double kUniform = 5.55;  // of bytes

TEST(RedFlags, ExpertsThatCollapse) {
  RedFlags flags({});
  Healthy healthy;
  const auto with_load = [](double first, double second) {
    return [=](StepRecord& r) { r.expert_loads = {load_of(first), load_of(second)}; };
  };
  EXPECT_EQ(names(raised(flags, healthy, 40, with_load(0.25, 0.8))), kNone);
  const auto found = raised(flags, healthy, 5, with_load(0.3, 0.97));
  ASSERT_EQ(names(found), std::vector<std::string>{"expert_collapse"});
  EXPECT_NE(found[0].seen.find("layer 1"), std::string::npos) << found[0].seen;
  EXPECT_NE(found[0].seen.find("97%"), std::string::npos) << found[0].seen;
  EXPECT_NE(found[0].remedy.find("router_aux_loss_coef"), std::string::npos);
  EXPECT_EQ(flags.open(), std::vector<std::string>{"expert_collapse"});
  EXPECT_EQ(names(raised(flags, healthy, 20, with_load(0.3, 0.4))), kNone);
  EXPECT_TRUE(flags.open().empty());
}

// Two layers of 8 experts, 2 of a token; those of the second layer get these shares of its tokens.
auto with_shares(const std::vector<double>& second) {
  return [=](StepRecord& r) {
    ExpertLoad even = load_of(0.25), other = load_of(0.5);
    even.token_shares.assign(8, 0.25);
    other.token_shares = second;
    r.expert_loads = {even, other};
  };
}

TEST(RedFlags, ExpertsThatGetNothingForManySteps) {
  RedFlags flags({});
  Healthy healthy;
  const auto idle = with_shares({0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.198, 0.002});
  const auto few = with_shares({0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.19, 0.01});
  // A hundredth of 25% is the limit; a few steps without a token are no trouble.
  EXPECT_EQ(names(raised(flags, healthy, 60, few)), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 15, idle)), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 30, few)), kNone);
  const auto found = raised(flags, healthy, 40, idle);
  ASSERT_EQ(names(found), std::vector<std::string>{"idle_expert"});
  EXPECT_NE(found[0].seen.find("layer 1 "), std::string::npos) << found[0].seen;
  EXPECT_NE(found[0].seen.find("expert 7, "), std::string::npos) << found[0].seen;
  EXPECT_NE(found[0].remedy.find("router_aux_loss_coef"), std::string::npos);
  EXPECT_EQ(flags.open(), std::vector<std::string>{"idle_expert"});
  raised(flags, healthy, 40, with_shares(std::vector<double>(8, 0.25)));
  EXPECT_TRUE(flags.open().empty());
}

TEST(RedFlags, AnExpertThatMostTokensGoThrough) {
  RedFlags flags({});
  Healthy healthy;
  // Half of the way from 25% to all is 62.5%.
  const auto crowded = with_shares({0.2, 0.2, 0.2, 0.65, 0.2, 0.2, 0.2, 0.15});
  EXPECT_EQ(
      names(raised(flags, healthy, 60, with_shares({0.2, 0.2, 0.2, 0.6, 0.2, 0.2, 0.2, 0.2}))),
      kNone);
  const auto found = raised(flags, healthy, 40, crowded);
  ASSERT_EQ(names(found), std::vector<std::string>{"crowded_expert"});
  EXPECT_NE(found[0].seen.find("expert 3, "), std::string::npos) << found[0].seen;
  EXPECT_EQ(names(raised(flags, healthy, 40, crowded)), kNone) << "it lasts, and was said";
}

TEST(RedFlags, WhereEveryExpertHasEveryTokenNoneIsCrowded) {
  RedFlags flags({});
  Healthy healthy;
  const auto all = [](StepRecord& r) {
    r.expert_loads = {
        {.busiest_share = 1, .even_share = 1, .largest = 1, .idle = 0, .token_shares = {1, 1, 1}}};
  };
  EXPECT_EQ(names(raised(flags, healthy, 60, all)), kNone);
}

TEST(RedFlags, WorseThanUniformIsFlaggedAndLastsToTheEnd) {
  RedFlags flags({.uniform_loss = kUniform, .warmup_steps = 20});
  Healthy healthy;
  // Before the end of the warm-up and shortly after it a model may be as bad as one that guesses.
  EXPECT_EQ(names(raised(flags, healthy, 100, [](auto& r) { r.loss = kUniform + 0.1; })), kNone);
  EXPECT_EQ(flags.final_remark(), "");
  const auto late = raised(flags, healthy, 50, [](auto& r) { r.loss = kUniform + 0.1; });
  EXPECT_EQ(names(late), std::vector<std::string>{"worse_than_uniform"});
  EXPECT_EQ(late.front().step, 121);
  EXPECT_NE(flags.final_remark().find("5.65"), std::string::npos) << flags.final_remark();
  EXPECT_EQ(names(raised(flags, healthy, 30, [](auto& r) { r.loss = 3; })), kNone);
  EXPECT_EQ(flags.final_remark(), "");
}

TEST(RedFlags, FarWorseThanUniformIsFlaggedAtOnce) {
  RedFlags flags({.uniform_loss = kUniform, .warmup_steps = 20});
  Healthy healthy;
  const auto found = raised(flags, healthy, 5, [](auto& r) { r.loss = 488; });  // in the warm-up
  EXPECT_EQ(names(found), std::vector<std::string>{"worse_than_uniform"});
  EXPECT_EQ(found.front().step, 2);
}

TEST(RedFlags, AnEvaluationWorseThanUniformIsFlagged) {
  RedFlags flags({.uniform_loss = kUniform});
  EXPECT_EQ(names(flags.on_eval({.step = 10, .val_loss = 5.6})), kNone);
  EXPECT_EQ(names(flags.on_eval({.step = 20, .val_loss = 85.4})),
            std::vector<std::string>{"worse_than_uniform"});
  EXPECT_NE(flags.final_remark().find("validation loss 85.4"), std::string::npos);
  EXPECT_EQ(names(flags.on_eval({.step = 120, .val_loss = 5.6})), kNone);  // the same trouble
  RedFlags others({.uniform_loss = kUniform});
  EXPECT_EQ(names(others.on_eval({.step = 120, .val_loss = 5.6})),
            std::vector<std::string>{"worse_than_uniform"});
}

TEST(RedFlags, TenThousandHealthyStepsRaiseNone) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    RedFlags flags({.bf16_baseline = 900, .uniform_loss = kUniform});
    Healthy healthy(seed);
    EXPECT_EQ(names(raised(flags, healthy, 10'000, kNothing)), kNone) << "seed " << seed;
    EXPECT_EQ(flags.total(), 0);
  }
}

TEST(RedFlags, ASpikeIsOneFlagAtItsFirstStepAndAgainOnlyAfterCalm) {
  RedFlags flags({});
  Healthy healthy;
  ASSERT_EQ(names(raised(flags, healthy, 200, kNothing)), kNone);
  const auto found = raised(flags, healthy, 8, [](StepRecord& r) { r.loss += 10; });
  ASSERT_EQ(names(found), std::vector<std::string>{"spike"});
  EXPECT_EQ(found[0].step, 201);
  EXPECT_NE(found[0].seen.find("sigmas"), std::string::npos);
  EXPECT_FALSE(found[0].remedy.empty());
  EXPECT_EQ(names(raised(flags, healthy, 5, kNothing)), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 1, [](StepRecord& r) { r.loss += 10; })), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 12, kNothing)), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 1, [](StepRecord& r) { r.loss += 10; })),
            std::vector<std::string>{"spike"});
  EXPECT_EQ(flags.receipt()["spike"], 2);
  EXPECT_EQ(flags.total(), 2);
}

TEST(RedFlags, AFlagThatIsNoLongerTrueIsOver) {
  RedFlags flags({.plateau_steps = 0});
  Healthy healthy;
  raised(flags, healthy, 300, kNothing);
  EXPECT_TRUE(flags.open().empty());
  const auto found = raised(flags, healthy, 3, [](StepRecord& r) { r.loss = 9; });
  ASSERT_EQ(names(found), std::vector<std::string>{"spike"});
  EXPECT_EQ(flags.open(), std::vector<std::string>{"spike"});
  EXPECT_TRUE(flags.take_ended(303).empty());
  int64_t step = 303;
  std::vector<Flag> over;
  for (; over.empty() && step < 400; over = flags.take_ended(step)) {
    raised(flags, healthy, 1, kNothing);
    ++step;
  }
  ASSERT_EQ(names(over), std::vector<std::string>{"spike"});
  EXPECT_TRUE(over[0].over);
  EXPECT_EQ(over[0].step, step);
  EXPECT_EQ(over[0].seen, "raised at step 301");
  EXPECT_GE(step, 313) << "ten usual losses, and not one";
  EXPECT_TRUE(flags.open().empty());
  EXPECT_TRUE(flags.take_ended(step).empty()) << "it ends once";
}

TEST(RedFlags, OneOddBatchIsNoSpikeAndTwoAre) {
  RedFlags flags({});
  Healthy healthy;
  const auto odd = [](StepRecord& r) { r.loss += 1.8; };  // some nine sigmas
  ASSERT_EQ(names(raised(flags, healthy, 2000, kNothing)), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 1, odd)), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 20, kNothing)), kNone);
  const auto found = raised(flags, healthy, 2, odd);
  ASSERT_EQ(names(found), std::vector<std::string>{"spike"});
  EXPECT_EQ(found[0].step, 2023);
}

TEST(RedFlags, ALossIsJudgedBeforeItIsLearnedFrom) {
  SpikeDetector detector;
  EXPECT_FALSE(detector.judge(1e9).spike);  // nothing is usual yet
  for (int i = 0; i < 128; ++i) detector.add(2 + 0.01 * (i % 10));
  EXPECT_TRUE(detector.judge(4).spike);
  EXPECT_TRUE(detector.judge(4).spike);      // looking changes nothing
  EXPECT_FALSE(detector.judge(2.15).spike);  // many sigmas, but not a tenth
  EXPECT_FALSE(detector.judge(0.1).spike);

  detector.add(3);  // the ring goes round
  SpikeDetector again;
  for (const double loss : detector.recent()) again.add(loss);
  EXPECT_EQ(again.recent(), detector.recent());
  EXPECT_EQ(again.recent().back(), 3);
  EXPECT_EQ(again.recent().size(), 128u);
}

TEST(RedFlags, GradientExplosion) {
  RedFlags flags({});
  Healthy healthy;
  ASSERT_EQ(names(raised(flags, healthy, 100, kNothing)), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 10, [](StepRecord& r) { r.grad_norm = 60; })),
            std::vector<std::string>{"gradient_explosion"});
  // A run that never was healthy has nothing usual to compare with.
  RedFlags young({});
  Healthy again;
  ASSERT_EQ(names(raised(young, again, 2, kNothing)), kNone);
  EXPECT_EQ(names(raised(young, again, 3, [](StepRecord& r) { r.grad_norm = 500; })),
            std::vector<std::string>{"gradient_explosion"});
  RedFlags skipping({});
  Healthy third;
  EXPECT_EQ(names(raised(skipping, third, 3,
                         [](StepRecord& r) {
                           r.skipped = true;
                           r.grad_norm = std::numeric_limits<double>::infinity();
                         })),
            std::vector<std::string>{"gradient_explosion"});
}

TEST(RedFlags, APlateauNeedsAHighLearningRate) {
  const auto flat = [](StepRecord& r) {
    r.loss = 3 + 0.1 * std::sin(static_cast<double>(r.step) * 1.7);
    r.learning_rate = 1e-3;
  };
  RedFlags flags({.plateau_steps = 100});
  Healthy healthy;
  const auto found = raised(flags, healthy, 1000, flat);
  ASSERT_EQ(names(found), std::vector<std::string>{"plateau"});
  EXPECT_EQ(found[0].step, 100);
  RedFlags off({.plateau_steps = 0});
  EXPECT_EQ(names(raised(off, healthy, 1000, flat)), kNone);
  RedFlags decayed({.plateau_steps = 100});
  EXPECT_EQ(names(raised(decayed, healthy, 1000,
                         [&](StepRecord& r) {
                           const bool early = r.step < 2050;
                           flat(r);
                           r.learning_rate = early ? 1e-3 : 1e-4;
                         })),
            kNone);
}

TEST(RedFlags, WhatWasUsualBeforeAResumeStillIs) {
  RedFlags flags({});
  Healthy healthy;
  for (int i = 0; i < 200; ++i) flags.remember(healthy.next());
  EXPECT_EQ(names(raised(flags, healthy, 1,
                         [](StepRecord& r) {
                           r.loss += 5;
                           r.grad_norm = 100;
                         })),
            (std::vector<std::string>{"spike", "gradient_explosion"}));
}

Fp8Tensor tensor(const std::string& layer, int64_t saturated, int64_t underflowed) {
  Fp8Tensor t{.layer = layer, .tensor = "gradient"};
  t.health.elements = t.health.nonzero = 1000;
  t.health.incidents.saturated = saturated;
  t.health.incidents.underflowed = underflowed;
  t.health.signal = 1e6;
  t.health.noise = 1;
  t.trouble = fp8::health_problem(t.health);
  return t;
}

TEST(RedFlags, Fp8LayersByTheirWorst) {
  RedFlags flags({});
  Healthy healthy;
  const auto with = [&](std::vector<Fp8Tensor> tensors) {
    return raised(flags, healthy, 1, [&](StepRecord& r) { r.fp8_tensors = tensors; });
  };
  EXPECT_EQ(names(with({tensor("a", 0, 300)})), kNone);
  auto found = with({tensor("a", 20, 0), tensor("b", 50, 0), tensor("c", 0, 0)});
  ASSERT_EQ(names(found), std::vector<std::string>{"saturating_layer"});
  EXPECT_NE(found[0].seen.find("b gradient: 5%"), std::string::npos) << found[0].seen;
  EXPECT_NE(found[0].seen.find("2 layers"), std::string::npos) << found[0].seen;
  EXPECT_NE(found[0].remedy.find("fp8_skip b"), std::string::npos) << found[0].remedy;
  EXPECT_EQ(names(with({tensor("a", 20, 0)})), kNone);  // it lasts
  EXPECT_EQ(names(with({tensor("a", 0, 700)})), std::vector<std::string>{"underflowing_layer"});
  EXPECT_EQ(names(with({tensor("a", 20, 0)})), std::vector<std::string>{"saturating_layer"});
  // The first steps of delayed scaling are no verdict.
  Fp8Tensor early = tensor("a", 0, 700);
  early.trouble = "";
  RedFlags fresh({});
  StepRecord r = healthy.next();
  r.fp8_tensors = {early};
  EXPECT_EQ(names(fresh.on_step(r)), kNone);
}

// What grows is named with its layer; what stood out from the first statistics on is not.
TEST(RedFlags, AChannelThatGrows) {
  RedFlags flags({});
  Healthy healthy;
  const auto with = [&](double mild, double other) {
    return raised(flags, healthy, 1, [&](StepRecord& r) {
      Fp8Tensor a = tensor("a.down_proj", 0, 0), b = tensor("b.down_proj", 0, 0);
      a.tensor = b.tensor = "input";
      a.channels = {.largest = mild, .median = 1, .worst = 5};
      b.channels = {.largest = other, .median = 1, .worst = 7};
      r.fp8_tensors = {a, b, tensor("c", 0, 0)};
    });
  };
  EXPECT_EQ(names(with(10, 150)), kNone);  // b: a pretrained model's
  EXPECT_EQ(names(with(99, 500)), kNone);
  const auto found = with(450, 590);
  ASSERT_EQ(names(found), std::vector<std::string>{"amplified_channel"});
  EXPECT_NE(found[0].seen.find("a.down_proj input: channel 5 has 450.0 times"), std::string::npos)
      << found[0].seen;
  EXPECT_NE(found[0].seen.find("was 10.0 times"), std::string::npos) << found[0].seen;
  EXPECT_NE(found[0].remedy.find("fp8_skip a.down_proj"), std::string::npos) << found[0].remedy;
  EXPECT_EQ(names(with(450, 590)), kNone);  // it lasts
  EXPECT_EQ(names(with(20, 590)), kNone);
  EXPECT_EQ(names(with(20, 1000)), std::vector<std::string>{"amplified_channel"});
}

TEST(RedFlags, DataStarvationIsNoHiccup) {
  RedFlags flags({});
  Healthy healthy;
  ASSERT_EQ(names(raised(flags, healthy, 20, kNothing)), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 1,
                         [](StepRecord& r) {
                           r.seconds = 5;
                           r.data_wait_seconds = 4.9;
                         })),
            kNone);
  EXPECT_EQ(names(raised(flags, healthy, 30, kNothing)), kNone);
  const auto starving = [](StepRecord& r) {
    r.seconds = 0.3;
    r.data_wait_seconds = 0.2;
  };
  const auto found = raised(flags, healthy, 100, starving);
  ASSERT_EQ(names(found), std::vector<std::string>{"data_starvation"});
  EXPECT_LE(found[0].step, 51 + 20);
}

TEST(RedFlags, TheSlowRankIsNamed) {
  RedFlags flags({});
  Healthy healthy;
  ASSERT_EQ(names(raised(flags, healthy, 50,
                         [](StepRecord& r) {
                           // Uneven, but nobody for long.
                           r.rank_seconds = {0.1, 0.1, 0.1, 0.1};
                           r.rank_seconds[static_cast<size_t>(r.step) % 4] = 0.19;
                         })),
            kNone);
  const auto found = raised(flags, healthy, 30, [](StepRecord& r) {
    r.rank_seconds = {0.1, 0.1, 0.25, 0.1};
  });
  ASSERT_EQ(names(found), std::vector<std::string>{"slow_rank"});
  EXPECT_LE(found[0].step, 50 + 20);
  EXPECT_NE(found[0].seen.find("rank 2"), std::string::npos) << found[0].seen;
}

TEST(RedFlags, AFailedSaveIsOneFlagUntilOneSucceeds) {
  RedFlags flags({});
  Healthy healthy;
  ASSERT_EQ(names(raised(flags, healthy, 20, [](StepRecord& r) { r.save_seconds = 2; })), kNone);
  const auto found = raised(flags, healthy, 10, [](StepRecord& r) { r.failed_saves = 1; });
  ASSERT_EQ(names(found), std::vector<std::string>{"failed_save"});
  EXPECT_EQ(flags.open(), std::vector<std::string>{"failed_save"});
  EXPECT_EQ(names(raised(flags, healthy, 10, [](StepRecord& r) { r.failed_saves = 2; })), kNone);
  EXPECT_EQ(names(raised(flags, healthy, 10, kNothing)), kNone);
  EXPECT_TRUE(flags.open().empty());
}

TEST(RedFlags, UploadsThatFail) {
  RedFlags flags({});
  Healthy healthy;
  ASSERT_EQ(names(raised(flags, healthy, 20, [](StepRecord& r) { r.upload_seconds = 2; })), kNone);
  const auto found = raised(flags, healthy, 10, [](StepRecord& r) { r.failed_uploads = 3; });
  ASSERT_EQ(names(found), std::vector<std::string>{"failed_upload"});
  EXPECT_EQ(flags.open(), std::vector<std::string>{"failed_upload"});
  EXPECT_EQ(names(raised(flags, healthy, 10, kNothing)), kNone);
  EXPECT_TRUE(flags.open().empty());
}

TEST(RedFlags, Fp8SlowerThanItsBaseline) {
  const auto in_fp8 = [](StepRecord& r) { r.precision = "FP8 rehearsal"; };
  RedFlags flags({.bf16_baseline = 1200});
  Healthy healthy;
  EXPECT_EQ(names(raised(flags, healthy, 30, kNothing)), kNone);  // not in FP8
  const auto found = raised(flags, healthy, 30, in_fp8);
  ASSERT_EQ(names(found), std::vector<std::string>{"fp8_slower"});
  EXPECT_LE(found[0].step, 30 + 20);
  EXPECT_NE(found[0].seen.find("rehearsal"), std::string::npos);
  RedFlags fast({.bf16_baseline = 800});
  EXPECT_EQ(names(raised(fast, healthy, 100, in_fp8)), kNone);
}

TEST(RedFlags, AGuardAndAnEvaluation) {
  RedFlags flags({});
  const Flag flag = flags.on_guard(7, "the loss of step 7 is nan", false);
  EXPECT_EQ(flag.name, "nan_loss");
  EXPECT_EQ(flags.on_guard(7, "the loss of step 7 is 9", true).name, "spike");
  EXPECT_EQ(flag.step, 7);
  EXPECT_EQ(names(flags.on_eval({.step = 8, .val_loss = 1})), kNone);
  EXPECT_EQ(names(flags.on_eval({.step = 8, .val_loss = std::nan("")})),
            std::vector<std::string>{"nan_loss"});
  EXPECT_EQ(flags.receipt()["nan_loss"], 2);
  // The run continues, and so may the trouble: one flag, and again after a loss that is a number.
  EXPECT_EQ(names(flags.on_eval({.step = 9, .val_loss = HUGE_VAL})), kNone);
  EXPECT_EQ(names(flags.on_eval({.step = 10, .val_loss = 2})), kNone);
  EXPECT_EQ(names(flags.on_eval({.step = 11, .val_loss = std::nan("")})),
            std::vector<std::string>{"nan_loss"});
}

}  // namespace
}  // namespace octavo::monitor
