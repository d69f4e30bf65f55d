#include "compare/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "compare/synthetic_run.h"

namespace octavo::compare {
namespace {

// The same noise for the same step, as of the same batch; `own` is the run's own.
std::function<double(int64_t)> curve(double factor, double own, int64_t seed = 1) {
  return [=](int64_t step) {
    const auto wave = [&](double speed) { return std::sin(speed * static_cast<double>(step)); };
    const double batch = 0.05 * wave(12.9898) * wave(78.233);
    return factor * (2 + 2 * std::exp(-static_cast<double>(step) / 60)) + batch +
           own * wave(39.425 + static_cast<double>(seed)) * wave(7.31);
  };
}

class ComparisonTest : public ScratchTest {
 protected:
  RunFolder run(const std::string& name, double factor, SyntheticRun made = {}) {
    made.name = name;
    made.loss = curve(factor, factor == 1 ? 0 : 0.01);
    return read_run(make_run(folder_, made));
  }
  // A pair for each factor, of which B's losses are so much higher.
  std::vector<Pair> seeds(const std::vector<double>& factors) {
    std::vector<Pair> pairs;
    for (const double factor : factors)
      pairs.push_back(compare_pair(run("base", 1), run(str("b", factor), factor), 0.25));
    return pairs;
  }
  static const Judgement& line(const Comparison& c, const std::string& name) {
    for (const Judgement& one : c.judgements)
      if (one.name.starts_with(name)) return one;
    ADD_FAILURE() << name;
    return c.judgements.front();
  }
};

TEST(Verdict, OnlyAnIntervalOnOneSideDecides) {
  EXPECT_EQ(judge_at_most({1, 0.5, 1.9, 9}, 2), Verdict::kPass);
  EXPECT_EQ(judge_at_most({1, 0.5, 2.1, 9}, 2), Verdict::kNotEnoughData);
  EXPECT_EQ(judge_at_most({3, 2.1, 4, 9}, 2), Verdict::kFail);
  EXPECT_EQ(judge_at_least({1.2, 1.1, 1.3, 9}, 1.1), Verdict::kPass);
  EXPECT_EQ(judge_at_least({1.2, 1.0, 1.3, 9}, 1.1), Verdict::kNotEnoughData);
  EXPECT_EQ(judge_at_least({0.9, 0.8, 1.0, 9}, 1.1), Verdict::kFail);
  using enum Verdict;
  const Verdict mixed[] = {kPass, kNotEnoughData, kFail}, open[] = {kPass, kNotEnoughData},
                good[] = {kPass, kNotAsked}, nothing[] = {kNotAsked};
  EXPECT_EQ(overall(mixed), kFail);
  EXPECT_EQ(overall(open), kNotEnoughData);
  EXPECT_EQ(overall(good), kPass);
  EXPECT_EQ(overall(nothing), kNotEnoughData);
  EXPECT_EQ(exit_code(kPass), 0);
  EXPECT_EQ(exit_code(kFail), 4);
  EXPECT_EQ(exit_code(kNotEnoughData), 6);
}

TEST_F(ComparisonTest, PassesFailsAndDoubts) {
  const Comparison good = judge(seeds({1.001, 1.002, 1.0015}), {});
  EXPECT_EQ(good.verdict, Verdict::kPass) << text_of(good);
  EXPECT_NEAR(line(good, "training").interval->mean, 0.15, 0.1);
  EXPECT_NE(line(good, "training").why.find("equivalent within ±0.5%"), std::string::npos);
  EXPECT_EQ(line(good, "training").seeds_wanted, 0);
  const Comparison better = judge(seeds({0.981, 0.98, 0.979}), {});
  EXPECT_EQ(better.verdict, Verdict::kPass);
  EXPECT_NE(line(better, "training").why.find("lower by more than 0.5%"), std::string::npos);
  const Comparison bad = judge(seeds({1.05, 1.051, 1.049}), {});
  EXPECT_EQ(bad.verdict, Verdict::kFail);
  EXPECT_EQ(line(bad, "validation").verdict, Verdict::kFail);
  // Right at the bound: no interval can lie on one side of it.
  const Comparison edge = judge(seeds({1.004, 1.005, 1.006}), {.validation_gap = 5});
  EXPECT_EQ(edge.verdict, Verdict::kNotEnoughData) << text_of(edge);
  EXPECT_NE(line(edge, "training").why.find("seeds"), std::string::npos);
  const RunFolder short_a = run("short_a", 1, {.steps = 30}),
                  short_b = run("short_b", 1, {.steps = 30});
  const Comparison few = judge({compare_pair(short_a, short_b, 0.25)}, {});
  EXPECT_EQ(few.verdict, Verdict::kNotEnoughData);
  EXPECT_NE(line(few, "training").why.find("steps"), std::string::npos);
}

// However good or bad two runs look: what another seed would give is not known.
TEST_F(ComparisonTest, FewerThanThreeSeedsGiveNoVerdictOnLosses) {
  const std::vector<std::vector<double>> few = {{1.0001}, {1.05}, {1.0001, 1.0002}, {1.05, 1.0501}};
  for (const std::vector<double>& factors : few) {
    const Comparison c = judge(seeds(factors), {});
    EXPECT_EQ(c.verdict, Verdict::kNotEnoughData) << text_of(c);
    for (const char* name : {"training", "validation"}) {
      const Judgement& row = line(c, name);
      EXPECT_EQ(row.verdict, Verdict::kNotEnoughData);
      EXPECT_GE(row.seeds_wanted, 3);
      EXPECT_NE(row.why.find(str("--seeds ", row.seeds_wanted)), std::string::npos) << row.why;
    }
  }
}

// A hundred steps decide about speed and memory, and say what the loss needs.
TEST_F(ComparisonTest, ShortRunsGetVerdictsOnSpeedAndMemory) {
  const auto half = [](int64_t step) { return 0.05 + 0.0005 * static_cast<double>(step % 7); };
  const RunFolder a = run("a", 1, {.steps = 100, .device = "cuda:0", .eval_freq = 50});
  RunFolder b = run("b", 1, {.steps = 100, .seconds = half, .device = "cuda:0", .eval_freq = 50});
  const Comparison c = judge({compare_pair(a, b, 0.25)}, {});
  EXPECT_EQ(c.verdict, Verdict::kNotEnoughData);
  EXPECT_EQ(line(c, "speed").verdict, Verdict::kPass);
  EXPECT_EQ(line(c, "memory").verdict, Verdict::kPass);
  EXPECT_NE(line(c, "training").why.find("about 200 steps"), std::string::npos)
      << line(c, "training").why;
  EXPECT_NE(line(c, "validation").why.find("every 6 steps"), std::string::npos)
      << line(c, "validation").why;
  EXPECT_NE(text_of(c).find("verdict: NOT ENOUGH DATA for training loss, validation loss; speed "
                            "PASS, memory peak PASS\n"),
            std::string::npos)
      << text_of(c);
  b.peak_bytes = 1.2 * a.peak_bytes;
  const Comparison more = judge({compare_pair(a, b, 0.25)}, {});
  EXPECT_EQ(line(more, "memory").verdict, Verdict::kFail);
  EXPECT_EQ(more.verdict, Verdict::kNotEnoughData) << "nobody asked for a bound on memory";
  EXPECT_EQ(judge({compare_pair(a, b, 0.25)}, {.memory_gap = 10}).verdict, Verdict::kFail);
  EXPECT_EQ(line(judge({compare_pair(a, b, 0.25)}, {.memory_gap = 25}), "memory").verdict,
            Verdict::kPass);
}

TEST_F(ComparisonTest, TheShortestRunsAreToldHowManyStepsAreNeeded) {
  const RunFolder a = run("a", 1, {.steps = 10}), b = run("b", 1, {.steps = 10});
  const Comparison c = judge({compare_pair(a, b, 0.25)}, {});
  EXPECT_NE(line(c, "training").why.find("10 steps in common, and a verdict needs 200"),
            std::string::npos)
      << line(c, "training").why;
  EXPECT_NE(line(c, "speed").why.find("in common, and 26 are needed"), std::string::npos)
      << line(c, "speed").why;
}

TEST_F(ComparisonTest, StepsForAVerdictFollowFromTheLastPart) {
  EXPECT_EQ(steps_for_verdict({}), 200);
  EXPECT_EQ(steps_for_verdict({.tail_share = 0.3}), 170);
}

TEST_F(ComparisonTest, SeedsGiveAnIntervalOverSeeds) {
  const Comparison c = judge(seeds({1.004, 1.006, 1.005}), {.train_gap = 2, .validation_gap = 3});
  EXPECT_EQ(c.verdict, Verdict::kPass);
  const Interval& gap = *line(c, "training").interval;
  EXPECT_NEAR(gap.mean, 0.5, 0.05);
  EXPECT_NEAR(gap.half(), 4.3026527 * 0.1 / std::sqrt(3), 0.08);  // Student, two degrees
  EXPECT_EQ(gap.effective, 3);
  EXPECT_NE(text_of(c).find("3 pairs"), std::string::npos);
}

TEST_F(ComparisonTest, OtherDataIsNotCompared) {
  const RunFolder base = run("base", 1);
  const RunFolder other = run("other", 1, {.settings = "seed: 1\nmax_seq_length: 32\n"});
  const Comparison c = judge({compare_pair(base, other, 0.25)}, {});
  EXPECT_FALSE(c.pairs[0].pairing.comparable);
  EXPECT_EQ(c.verdict, Verdict::kNotEnoughData);
  EXPECT_NE(line(c, "training").why.find("max_seq_length"), std::string::npos);
  const RunFolder seed = run("seed", 1, {.settings = "seed: 2\n"});
  const Comparison unpaired = judge({compare_pair(base, seed, 0.25)}, {});
  EXPECT_FALSE(unpaired.pairs[0].pairing.same_batches);
  // As wholes the batches' noise is in the interval, which is wider for it.
  const Comparison paired = judge({compare_pair(base, run("same", 1), 0.25)}, {});
  EXPECT_GT(line(unpaired, "training").interval->half(), line(paired, "training").interval->half());
  EXPECT_NE(text_of(unpaired).find("did not see the same batches"), std::string::npos);
}

TEST_F(ComparisonTest, TokensTellThatBatchesDiffer) {
  RunFolder a = run("a", 1), b = run("b", 1);
  b.steps[7].tokens += 1;
  const Pairing pairing = pair_up(a, b);
  EXPECT_FALSE(pairing.same_batches);
  EXPECT_NE(pairing.why.find("step 7"), std::string::npos);
}

TEST_F(ComparisonTest, ABrokenRunFails) {
  const RunFolder base = run("base", 1);
  RunFolder nan = run("nan", 1);
  nan.steps[390].loss.reset();
  nan.lost_losses = 1;
  EXPECT_EQ(judge({compare_pair(base, nan, 0.25)}, {}).verdict, Verdict::kFail);
  EXPECT_EQ(judge({compare_pair(nan, base, 0.25)}, {}).verdict, Verdict::kNotEnoughData);
  const RunFolder ended = run("ended", 1, {.steps = 200, .status = "ended by a guard: loss"});
  EXPECT_EQ(judge({compare_pair(base, ended, 0.25)}, {}).verdict, Verdict::kFail);
}

TEST_F(ComparisonTest, AValidationLossThatIsNotFiniteFails) {
  const auto at_the_end = [](int64_t step) { return step == 400 ? NAN : 2.0; };
  const RunFolder base = run("base", 1), nan = run("nan", 1, {.validation = at_the_end});
  const Comparison b = judge({compare_pair(base, nan, 0.25)}, {});
  EXPECT_EQ(b.verdict, Verdict::kFail);
  EXPECT_EQ(line(b, "training").verdict, Verdict::kNotEnoughData);
  EXPECT_NE(line(b, "validation").why.find("1 validation losses that are not finite"),
            std::string::npos);
  EXPECT_EQ(judge({compare_pair(nan, base, 0.25)}, {}).verdict, Verdict::kNotEnoughData);
}

TEST_F(ComparisonTest, SpeedIsAskedForOnGpusOnly) {
  const auto half = [](int64_t step) { return 0.05 + 0.0005 * static_cast<double>(step % 7); };
  const RunFolder base = run("base", 1), fast = run("fast", 1, {.seconds = half});
  const Comparison cpu = judge({compare_pair(base, fast, 0.25)}, {});
  EXPECT_EQ(line(cpu, "speed").verdict, Verdict::kNotAsked);
  EXPECT_NEAR(line(cpu, "speed").interval->mean, 2, 1e-6);
  EXPECT_NE(line(cpu, "speed").why.find("nothing about a GPU"), std::string::npos);
  const RunFolder slow = run("gpu_a", 1, {.device = "cuda:0"});
  const RunFolder gpu = run("gpu_b", 1, {.seconds = half, .device = "cuda:0"});
  EXPECT_EQ(line(judge({compare_pair(slow, gpu, 0.25)}, {}), "speed").verdict, Verdict::kPass);
  EXPECT_EQ(line(judge({compare_pair(gpu, slow, 0.25)}, {}), "speed").verdict, Verdict::kFail);
  EXPECT_EQ(line(judge({compare_pair(slow, gpu, 0.25)}, {.speedup = 3}), "speed").verdict,
            Verdict::kFail);
}

// A step of half the batch that takes more than half the time is slower, not faster.
TEST_F(ComparisonTest, SpeedIsTokensPerSecond) {
  const auto steady = [](double seconds) {
    return [=](int64_t step) { return seconds * (1 + 0.01 * static_cast<double>(step % 7)); };
  };
  const RunFolder large = run("large", 1,
                              {.seconds = steady(0.1),
                               .device = "cuda:0",
                               .settings = "seed: 1\nbatch_size: 8\n",
                               .step_tokens = 1024});
  const RunFolder small = run("small", 1,
                              {.seconds = steady(0.06),
                               .device = "cuda:0",
                               .settings = "seed: 1\nbatch_size: 4\n",
                               .step_tokens = 512});
  const Comparison c = judge({compare_pair(large, small, 0.25)}, {});
  const Judgement& speed = line(c, "speed");
  ASSERT_TRUE(speed.interval);
  EXPECT_NEAR(speed.interval->mean, 0.5 / 0.6, 1e-3);
  EXPECT_EQ(speed.verdict, Verdict::kFail);
  EXPECT_NE(speed.a.find("tokens/s"), std::string::npos);
  EXPECT_NE(speed.why.find("1024 and 512 tokens"), std::string::npos) << speed.why;
  EXPECT_NE(page_of(c, {}).find("tokens per second"), std::string::npos);
  // Without tokens nothing says what a step's time was for.
  RunFolder silent = small;
  for (auto& [step, point] : silent.steps) point.step_tokens = 0;
  EXPECT_FALSE(judge({compare_pair(large, silent, 0.25)}, {}).pairs[0].speed);
}

// The gap that is judged is that of the two numbers beside it, with one pair and with seeds.
TEST_F(ComparisonTest, WhatIsShownIsWhatIsJudged) {
  std::vector<Pair> pairs;
  for (const double factor : {1.02, 1.01, 0.985}) {
    // B's last evaluation alone is better, the last part as a whole is not.
    const auto validation = [=](int64_t step) {
      return 2.5 * factor * (step == 400 ? 0.9 : 1) +
             0.002 * std::sin(static_cast<double>(step * step));
    };
    const RunFolder a = run(str("a", factor), factor < 1 ? 3 : 1);
    pairs.push_back(
        compare_pair(a, run(str("b", factor), factor, {.validation = validation}), 0.25));
    for (const auto& shown : {std::vector<Pair>{pairs.back()}, pairs})
      for (const char* name : {"training", "validation", "speed"}) {
        const Comparison c = judge(shown, {});
        const Judgement& row = line(c, name);
        ASSERT_TRUE(row.interval) << name;
        const double ratio = std::stod(row.b) / std::stod(row.a);
        EXPECT_NEAR(*name == 's' ? ratio : 100 * (ratio - 1), row.interval->mean, 0.01)
            << name << " of " << shown.size();
      }
  }
}

TEST_F(ComparisonTest, HellaSwagWithoutADifferenceIsNoProofOfNone) {
  Pair pair = compare_pair(run("a", 1), run("b", 1.001), 0.25);
  const auto of_equal_rows = [&](size_t rows) {
    pair.task = TaskScores{30, 30, std::vector<double>(rows)};
    return line(judge({pair}, {}), "HellaSwag");
  };
  EXPECT_EQ(of_equal_rows(2).verdict, Verdict::kNotEnoughData);
  EXPECT_EQ(of_equal_rows(12).verdict, Verdict::kNotEnoughData);
  EXPECT_EQ(of_equal_rows(200).verdict, Verdict::kNotEnoughData);
  const Judgement many = of_equal_rows(10042);
  EXPECT_EQ(many.verdict, Verdict::kPass);
  EXPECT_NEAR(many.interval->half(), 100 * 3.84 / 10046, 0.001);
  // Twelve of twelve that only A has right are enough for FAIL.
  pair.task = TaskScores{100, 0, std::vector<double>(12, -1)};
  EXPECT_EQ(line(judge({pair}, {}), "HellaSwag").verdict, Verdict::kFail);
}

TEST_F(ComparisonTest, HellaSwagByRows) {
  Pair pair = compare_pair(run("a", 1), run("b", 1.001), 0.25);
  TaskScores scores{30, 29.9, std::vector<double>(10000)};
  for (size_t i = 0; i < 40; ++i) scores.differences[i * 50] = i % 2 == 0 ? 1 : -1;
  pair.task = scores;
  EXPECT_EQ(line(judge({pair}, {}), "HellaSwag").verdict, Verdict::kPass);
  pair.task->differences.resize(100);
  EXPECT_EQ(line(judge({pair}, {}), "HellaSwag").verdict, Verdict::kNotEnoughData);
  pair.task.reset();
  pair.no_task = "no checkpoint";
  EXPECT_EQ(judge({pair}, {}).verdict, Verdict::kNotEnoughData);
}

TEST_F(ComparisonTest, PageAndJsonHoldEverythingAndNoUntrustedMarkup) {
  SyntheticRun made;
  made.precision = "<script>alert(1)</script>";
  RunFolder b = run("b", 1.004, made);
  b.sample_step = 3;
  b.sample = "</pre><img src=x onerror=alert(1)>";
  const Bounds bounds;
  const Comparison c = judge({compare_pair(run("a", 1), b, 0.25)}, bounds);
  const std::string html = page_of(c, bounds);
  EXPECT_EQ(html.find("<script"), html.npos);
  EXPECT_EQ(html.find("<img"), html.npos);
  EXPECT_NE(html.find("NOT ENOUGH DATA"), html.npos);
  const auto json = json_of(c, bounds);
  EXPECT_EQ(json["verdict"], "NOT ENOUGH DATA");
  EXPECT_EQ(json["judgements"][0]["seeds_wanted"], 3);
  EXPECT_EQ(json["pairs"][0]["steps"], 400);
  EXPECT_NEAR(json["judgements"][0]["interval"]["mean"].get<double>(), 0.4, 0.1);
}

}  // namespace
}  // namespace octavo::compare
