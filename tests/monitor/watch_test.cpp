#include "monitor/watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "expect_failure.h"
#include "monitor/background.h"
#include "monitor/history.h"
#include "scratch.h"

namespace octavo::monitor {
namespace {

size_t characters(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

TEST(Sparkline, HeightsFollowTheNumbers) {
  EXPECT_EQ(sparkline({1, 2, 3, 4, 5, 6, 7, 8}, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({8, 8, 1, 1}, 2), "█▁");
  EXPECT_EQ(sparkline({3, 3, 3}, 8), "▁▁▁");
  EXPECT_EQ(sparkline({1, std::nan(""), 2}, 8), "▁ █");
  EXPECT_EQ(sparkline({}, 8), "");
  EXPECT_EQ(characters(sparkline(std::vector<double>(1000, 1.0), 24)), 24u);
}

Watch watched(bool with_flag) {
  Watch watch(0, 1000);
  for (int step = 1; step <= 400; ++step) {
    StepRecord r;
    r.step = step;
    r.loss = 4 - 0.005 * step;
    r.fp8_layers = 8;
    r.fp8_fallbacks = 1;
    if (step % 100 == 0) {
      Fp8Tensor t{.layer = "h.3.mlp.c_fc", .tensor = "gradient"};
      t.health.elements = t.health.nonzero = 1000;
      t.health.incidents.underflowed = 600;
      t.trouble = "underflow";
      r.fp8_tensors = {t};
    }
    watch.add(r, 0.25 * step);
  }
  if (with_flag) watch.add(Flag{.step = 390, .name = "spike"});
  return watch;
}

TEST(Watch, SaysEverythingWhereThereIsRoom) {
  const std::string line = watched(true).line(200);
  for (const char* part :
       {"[========            ] 40%", "2 m 30 s left", "4.00 steps/s", "loss 2.0000 █", "▁",
        "h.3.mlp.c_fc in trouble (under 60.0%, over 0.00%)", "1 in BF16",
        "1 flag: spike at step 390"})
    EXPECT_NE(line.find(part), std::string::npos) << part << " in: " << line;
}

TEST(Watch, IsNeverWiderThanTheTerminal) {
  for (const bool with_flag : {false, true}) {
    const Watch watch = watched(with_flag);
    for (size_t columns = 5; columns <= 200; ++columns) {
      const std::string line = watch.line(columns);
      EXPECT_LT(characters(line), columns) << line;
      EXPECT_NE(line.find("40%"), std::string::npos) << line;
      if (columns >= 80) {
        EXPECT_NE(line.find("fp8"), std::string::npos) << line;
      }
      if (columns >= 50) EXPECT_NE(line.find("flag"), std::string::npos) << line;
    }
  }
}

// A start that was a hundred times as slow says nothing about what is left.
TEST(Watch, TheTimeLeftIsThatOfTheLastSteps) {
  Watch watch(0, 2000);
  double seconds = 0;
  for (int step = 1; step <= 1800; ++step) {
    StepRecord r;
    r.step = step;
    seconds += step <= 100 ? 10 : 0.05;
    watch.add(r, seconds);
    if (step == 100) EXPECT_NE(watch.line(200).find("5 h 16 m left"), std::string::npos);
  }
  const std::string line = watch.line(200);
  EXPECT_NE(line.find("10.0 s left"), std::string::npos) << line;
  EXPECT_NE(line.find("20 steps/s"), std::string::npos) << line;
}

TEST(Watch, AFlagThatIsOverIsNotShownAsOne) {
  Watch watch = watched(true);
  watch.add(Flag{.step = 395, .name = "plateau"});
  EXPECT_NE(watch.line(200).find("2 flags, last: plateau at step 395"), std::string::npos);
  watch.add(Flag{.step = 400, .name = "plateau", .over = true});
  EXPECT_NE(watch.line(200).find("1 flag: spike at step 390, 1 over"), std::string::npos);
  watch.add(Flag{.step = 400, .name = "spike", .over = true});
  EXPECT_NE(watch.line(200).find("no flags now, 2 over"), std::string::npos) << watch.line(200);
  watch.add(Flag{.step = 401, .name = "never_raised", .over = true});
  EXPECT_NE(watch.line(200).find("no flags now, 2 over"), std::string::npos) << watch.line(200);
}

TEST(Console, ASlowerStepShowsTheSameParts) {
  StepRecord r;
  const auto parts = [&](double seconds) {
    r.seconds = seconds;
    return std::ranges::count(step_line(r, 100), '|');
  };
  EXPECT_EQ(parts(0.52825), parts(1.46615));
}

TEST(Console, TheStepLineFitsTheTerminal) {
  StepRecord r;
  r.step = 12345;
  r.loss = 3.25;
  r.learning_rate = 1e-3;
  r.seconds = 1.5;
  r.tokens_per_second = 123456.78;
  r.precision = "FP8 rehearsal";
  const std::string whole =
      "step 12345 | epoch 0 | loss: 3.250000 | lr: 1.00e-03 | norm: 0.0000 | dt: 1500.00ms | "
      "tok/sec: 123456.78 | FP8 rehearsal";
  EXPECT_EQ(step_line(r), whole);
  EXPECT_EQ(step_line(r, 200), whole);
  EXPECT_EQ(step_line(r, 80),
            "step 12345 | loss: 3.250000 | lr: 1.00e-03 | norm: 0.0000 | tok/sec: 123456.78");
  for (size_t columns = 10; columns <= 200; ++columns)
    EXPECT_LE(characters(step_line(r, columns)), columns) << columns;
  EXPECT_EQ(step_line(r, 27), "step 12345 | loss: 3.250000");
  EXPECT_EQ(step_line(r, 1), "step 12345");
}

// Standard output as a pipe that nobody reads, for the life of it.
class UnreadStdout {
 public:
  UnreadStdout() {
    std::fflush(stdout);
    kept_ = ::dup(STDOUT_FILENO);
    if (::pipe(ends_) != 0) throw std::runtime_error("pipe");
    ::dup2(ends_[1], STDOUT_FILENO);
  }
  ~UnreadStdout() {
    // Whoever still writes finds nobody, and is given time to end.
    ::close(ends_[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::dup2(kept_, STDOUT_FILENO);
    ::close(ends_[1]);
    ::close(kept_);
  }
  UnreadStdout(const UnreadStdout&) = delete;
  UnreadStdout& operator=(const UnreadStdout&) = delete;
  std::string read_all() {
    std::string text(1 << 20, '\0');
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    const ssize_t got = ::read(ends_[0], text.data(), text.size());
    return text.substr(0, got > 0 ? static_cast<size_t>(got) : 0);
  }

 private:
  int kept_ = -1, ends_[2] = {-1, -1};
};

StepRecord numbered(int64_t step) {
  StepRecord r;
  r.step = step;
  return r;
}

TEST(Console, EveryLineArrivesInOrder) {
  UnreadStdout out;
  const auto console = open_console(0, 100, 10);
  for (int i = 1; i <= 100; ++i) console->on_step(numbered(i));
  console->on_eval({.step = 100, .val_loss = 1, .tokens = 5, .best = true});
  console->settle(std::chrono::milliseconds(5000));
  console->on_end(0);
  std::string wanted;
  for (int i = 10; i <= 100; i += 10) wanted += step_line(numbered(i)) + "\n";
  EXPECT_EQ(out.read_all(), wanted + "eval   100 | val loss: 1.000000 | tokens: 5 | best\n");
  EXPECT_EQ(console->failures(), 0);
}

TEST(Console, APipeThatNobodyReadsHoldsNobodyUp) {
  const auto start = std::chrono::steady_clock::now();
  int64_t lost = 0;
  {
    const UnreadStdout out;
    const auto console = open_console(0, 1'000'000, 1);
    for (int i = 1; i <= 20'000; ++i) console->on_step(numbered(i));
    console->on_end(0);
    lost = console->failures();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
  EXPECT_GT(lost, 10'000);  // a pipe takes some 64 KiB
  EXPECT_LT(lost, 20'000);
}

TEST(History, TheLastStepsOfAFileThatIsPartlyDamaged) {
  const Scratch scratch;
  EXPECT_TRUE(read_last_steps(scratch / "none", 10).empty());
  std::ofstream(scratch / "metrics.jsonl")
      << R"({"step":1,"train/loss":3.5,"train/grad_norm":2,"perf/tokens_per_second":100})"
      << "\n"
      << R"({"step":1,"val/loss":9})"
      << "\n"
      << "{\"step\":2,\"train/lo\n"
      << R"({"step":2,"flag":"spike","seen":"x","remedy":"y"})"
      << "\n"
      << R"({"step":3,"train/loss":null,"perf/tokens_per_second":"fast"})"
      << "\n"
      << R"({"step":9,"train/loss":1})";
  const auto steps = read_last_steps(scratch / "metrics.jsonl", 8);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].loss, 3.5);
  EXPECT_EQ(steps[0].tokens_per_second, 100);
  EXPECT_TRUE(std::isnan(steps[1].loss));
  EXPECT_TRUE(std::isnan(steps[1].tokens_per_second));
}

TEST(History, ABaselineIsANumberOrARun) {
  const Scratch scratch;
  EXPECT_EQ(baseline_speed(""), 0);
  EXPECT_EQ(baseline_speed("1234.5"), 1234.5);
  expect_failure(ExitCode::kUsage, "above 0", [] { baseline_speed("-3"); });
  expect_failure(ExitCode::kUsage, "bf16_baseline", [&] { baseline_speed(scratch.path()); });
  std::ofstream out(scratch / "metrics.jsonl");
  for (int i = 1; i <= 103; ++i)
    out << "{\"step\":" << i << ",\"train/loss\":1,\"perf/tokens_per_second\":" << (i <= 3 ? 1 : i)
        << "}\n";
  out.close();
  EXPECT_EQ(baseline_speed(scratch.path()), 53);
}

}  // namespace
}  // namespace octavo::monitor
