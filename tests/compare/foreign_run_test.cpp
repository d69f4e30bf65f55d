#include <gtest/gtest.h>

#include <cmath>

#include "compare/comparison.h"
#include "compare/synthetic_run.h"

namespace octavo::compare {
namespace {

class ForeignRunTest : public ScratchTest {
 protected:
  // As nanoGPT prints it.
  fs::path log(const std::string& name, double gap, double period = 7) {
    std::string lines;
    for (int step = 1; step <= 400; ++step) {
      const double loss = (2 + 0.01 * std::sin(step * period)) * (1 + gap);
      lines += str("iter ", step, ": loss ", loss, ", time 20.0ms, mfu 3%\n");
      if (step % 20 == 0) lines += str("step ", step, ": train loss 1, val loss ", loss, "\n");
    }
    write_file_atomic(folder_ / name, lines);
    return folder_ / name;
  }
};

TEST_F(ForeignRunTest, LogsGetAVerdict) {
  const fs::path a = log("a.log", 0), good = log("good.log", 0.001), bad = log("bad.log", 0.05);
  const auto verdict = [&](const fs::path& b, bool same, size_t count = 1) {
    std::vector<Pair> pairs;
    while (pairs.size() < count)
      pairs.push_back(
          compare_pair(read_foreign_run(a, {}, same), read_foreign_run(b, {}, same), 0.25));
    return judge(std::move(pairs), {});
  };
  EXPECT_EQ(verdict(good, false, 3).verdict, Verdict::kPass);
  EXPECT_EQ(verdict(bad, false, 3).verdict, Verdict::kFail);
  EXPECT_EQ(verdict(good, false).verdict, Verdict::kNotEnoughData);
  EXPECT_NE(verdict(good, false).judgements[0].why.find("--against"), std::string::npos);
  const Comparison same = verdict(good, true), apart = verdict(good, false);
  EXPECT_TRUE(same.pairs[0].pairing.same_batches);
  EXPECT_LT(same.judgements[0].interval->half(), apart.judgements[0].interval->half());
  EXPECT_EQ(apart.label_a, a.string());
  EXPECT_NE(text_of(apart).find("nanoGPT"), std::string::npos);
  // Without a device there is no bound on the speed unless one is given.
  EXPECT_EQ(apart.judgements[3].verdict, Verdict::kNotAsked);
}

TEST_F(ForeignRunTest, WhatIsTrueOfAllRunsIsSaidOnce) {
  const fs::path a = log("a.log", 0), b = log("b.log", 0), cut = log("cut.log", 0);
  write_file_atomic(cut, read_file(cut, 1 << 20) + "iter 401: loss 2.0, time 20.0ms, mfu 3%\n");
  const auto notes = [&](const fs::path& other) {
    std::vector<Pair> pairs;
    pairs.push_back(
        compare_pair(read_foreign_run(a, {}, false), read_foreign_run(other, {}, false), 0.25));
    return text_of(judge(std::move(pairs), {}));
  };
  const std::string same = notes(b), apart = notes(cut);
  EXPECT_NE(same.find("both runs: nanoGPT's text log: 400 values"), std::string::npos) << same;
  EXPECT_EQ(same.find("run A ("), std::string::npos) << same;
  EXPECT_NE(apart.find("): nanoGPT's text log: 400 values"), std::string::npos) << apart;
  EXPECT_NE(apart.find("): nanoGPT's text log: 401 values"), std::string::npos) << apart;
}

TEST_F(ForeignRunTest, SpeedNeedsTokens) {
  const fs::path a = log("a.log", 0), b = log("b.log", 0);
  const auto speed_of = [&](int64_t tokens) {
    const foreign_logs::Options options{.step_tokens = tokens};
    return compare_pair(read_foreign_run(a, options, true), read_foreign_run(b, options, true),
                        0.25);
  };
  EXPECT_FALSE(speed_of(0).speed.has_value());
  const Pair pair = speed_of(1000);
  ASSERT_TRUE(pair.speed.has_value());
  EXPECT_NEAR(pair.speed->a, 50'000, 1);
}

// torchtitan prints the rate of one GPU.
TEST_F(ForeignRunTest, RatesOfOneGpuAreComparedWithSuch) {
  std::string lines;
  for (int step = 1; step <= 400; ++step)
    lines += str("step:  ", step, "  loss:  2.0  memory: 1.00GiB(1%)  tps: 1,000  mfu: 3%\n");
  write_file_atomic(folder_ / "titan.log", lines);
  const RunFolder titan = read_foreign_run(folder_ / "titan.log", {}, false);
  EXPECT_TRUE(titan.rate_of_one_gpu);
  const Pair two = compare_pair(titan, titan, 0.25);
  ASSERT_TRUE(two.speed.has_value());
  EXPECT_TRUE(two.speed_of_one_gpu);
  EXPECT_NEAR(two.speed->a, 1000, 1);
  // Of a run of eight GPUs an eighth.
  RunFolder ours = read_foreign_run(log("a.log", 0), {.step_tokens = 1000}, false);
  const Pair unknown = compare_pair(ours, titan, 0.25);
  EXPECT_FALSE(unknown.speed.has_value());
  EXPECT_NE(unknown.no_speed.find("are of one GPU"), std::string::npos) << unknown.no_speed;
  ours.ranks = 8;
  const Pair known = compare_pair(ours, titan, 0.25);
  ASSERT_TRUE(known.speed.has_value());
  EXPECT_NEAR(known.speed->a, 50'000.0 / 8, 1);
  EXPECT_NEAR(known.speed->b, 1000, 1);
}

}  // namespace
}  // namespace octavo::compare
