#include <gtest/gtest.h>

#include <cmath>

#include "expect_failure.h"
#include "foreign_logs/log_file.h"
#include "foreign_logs/scan.h"

namespace octavo::foreign_logs {
namespace {

class TextLogTest : public LogTest {};

TEST(ScanTest, ReadsNumbersAsTrainersPrintThem) {
  EXPECT_EQ(leading_number("  1.044022E+01 |"), 10.44022);
  EXPECT_EQ(leading_number("1,110,094 | x"), 1110094);
  EXPECT_EQ(leading_number("4.1234, time 3"), 4.1234);
  EXPECT_EQ(leading_number("12, 13"), 12);
  EXPECT_EQ(leading_number("+0.5z"), 0.5);
  EXPECT_EQ(leading_number("-2,000"), -2000);
  EXPECT_TRUE(std::isnan(*leading_number("nan, time")));
  EXPECT_TRUE(std::isinf(*leading_number("-inf")));
  for (const char* none : {"", "   ", "x1", ",1", "--1", "-", "+"})
    EXPECT_EQ(leading_number(none), std::nullopt) << none;
  EXPECT_EQ(whole_number_text(" 5 "), 5);
  EXPECT_EQ(whole_number_text("5 6"), std::nullopt);
  EXPECT_EQ(step_after("step: 2.5", "step:"), std::nullopt);
  EXPECT_EQ(step_after("step: -1", "step:"), std::nullopt);
  EXPECT_EQ(number_before("| 120.51 ms |", " ms"), 120.51);
  EXPECT_EQ(number_before("ms", "ms"), std::nullopt);
  EXPECT_EQ(without_colors("\x1b[31mstep: 1\x1b[0m \x1b[x"), "step: 1 \x1b[x");
}

TEST_F(TextLogTest, Megatron) {
  const Log log = read(
      "using world size: 8 | iteration 3/ nothing\n"
      " [2025-08-01 07:19:50] iteration        1/    5000 | consumed samples:          128 | "
      "elapsed "
      "time per iteration (ms): 19138.8 | learning rate: 6.9E-08 | global batch size:   128 | lm "
      "loss: 1.043863E+01 | loss scale: 1.0 | grad norm: 26.203 | number of skipped iterations:   "
      "0 "
      "| number of nan iterations:   0 |\n"
      " iteration        2/    5000 | consumed samples:          256 | elapsed time per iteration "
      "(ms): 12936.1 | learning rate: 1.3E-07 | global batch size:   128 | loss scale: 1.0 | "
      "number "
      "of skipped iterations:   3 | number of nan iterations:   1 |\n"
      " validation loss at iteration 2 | lm loss value: 2.700000E+00 | lm loss PPL: 1.48E+01 | \n"
      " validation loss at iteration 2 on test set | lm loss value: 9.900000E+00 | \n");
  EXPECT_EQ(log.format, "Megatron-LM's text log");
  EXPECT_EQ(log.loss_name, "lm loss");
  ASSERT_EQ(log.steps.size(), 2u);
  EXPECT_EQ(log.steps.at(1).loss, 10.43863);
  EXPECT_DOUBLE_EQ(log.steps.at(1).seconds, 19.1388);
  EXPECT_FALSE(log.steps.at(2).loss.has_value());
  EXPECT_EQ(log.lost_losses, 1);
  EXPECT_EQ(log.skipped_steps, 3);
  ASSERT_EQ(log.evaluations.size(), 1u);
  EXPECT_EQ(log.evaluations.at(2), 2.7);
}

TEST_F(TextLogTest, TorchtitanWithColorsAndRanks) {
  const Log log = read(
      "[rank0]:[titan] 2025-12-17 01:18:26,708 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: "
      "12.4153  \x1b[38;2;180;60;0mgrad_norm:  8.2782  \x1b[38;2;54;234;195mmemory: "
      "87.50GiB(62.89%)  \x1b[34mtps: 945  \x1b[36mtflops: 47.71  \x1b[35mmfu: 4.82%\x1b[39m\n"
      "[rank0]:[titan] 2025-12-17 01:18:34,942 - root - INFO - step:  2  loss:     nan  grad_norm: "
      " "
      "8.0045  memory: 116.16GiB(83.14%)  tps: 5,970  tflops: 301.33  mfu: 30.47%\n"
      "[rank1]:[titan] 2025-12-17 01:18:34,942 - root - INFO - step:  2  loss: 12.3984  grad_norm: "
      " "
      "8.0045  memory: 116.16GiB(83.14%)  tps: 5,970  tflops: 301.33  mfu: 30.47%\n"
      "validate step:  2  loss: 12.5000  memory: 1.00GiB(1%)  tps: 7\n");
  EXPECT_EQ(log.format, "torchtitan's text log");
  EXPECT_EQ(log.steps.at(1).loss, 12.4153);
  EXPECT_EQ(log.steps.at(2).loss, 12.3984);
  EXPECT_EQ(log.steps.at(2).tokens_per_second, 5970);
  EXPECT_TRUE(log.rate_of_one_gpu);
  EXPECT_EQ(log.repeated_steps, 1);
  EXPECT_EQ(log.lost_losses, 0);
  EXPECT_EQ(log.evaluations.at(2), 12.5);
  EXPECT_EQ(log.peak_bytes, 116.16 * (1 << 30));
}

TEST_F(TextLogTest, NanoGpt) {
  const Log log = read(
      "number of parameters: 10.65M\n"
      "step 0: train loss 4.2874, val loss 4.2823\n"
      "iter 0: loss 4.2654, time 35032.43ms, mfu -100.00%\n"
      "iter 10: loss 3.1462, time 25.10ms, mfu 14.84%\n");
  EXPECT_EQ(log.format, "nanoGPT's text log");
  EXPECT_EQ(log.loss_name, "loss");
  EXPECT_EQ(log.steps.at(10).loss, 3.1462);
  EXPECT_DOUBLE_EQ(log.steps.at(10).seconds, 0.0251);
  EXPECT_EQ(log.evaluations.at(0), 4.2823);
  EXPECT_TRUE(has_remark(log, "'train loss' is there too"));
  const Log tokens = read("iter 10: loss 3.1, time 25.10ms, mfu 14.84%\n", {.step_tokens = 512});
  EXPECT_EQ(tokens.steps.at(10).tokens, 5120);
  EXPECT_EQ(read("iter 1: loss 3, time 2ms\nstep 1: train loss 7.5, val loss 8.0\n",
                 {.loss_name = "train loss"})
                .steps.at(1)
                .loss,
            7.5);
}

TEST_F(TextLogTest, Nanochat) {
  const Log log = read(
      "Step 00000 | Validation bpb: 3.3013\n"
      "step 00000/21400 (0.00%) | loss: 11.090355 | lrm: 1.00 | dt: 23156.74ms | tok/sec: 22,640 | "
      "mfu: 1.00 | total time: 0.00m\n"
      "step 00001/21400 (0.00%) | loss: 10.808654 | lrm: 1.00 | dt: 649.22ms | tok/sec: 807,569 | "
      "mfu: 35.64 | total time: 0.00m\n");
  EXPECT_EQ(log.format, "nanochat's text log");
  EXPECT_EQ(log.steps.at(1).loss, 10.808654);
  EXPECT_EQ(log.steps.at(1).tokens_per_second, 807569);
  EXPECT_DOUBLE_EQ(log.steps.at(1).seconds, 0.64922);
  EXPECT_EQ(log.evaluations.at(0), 3.3013);
  EXPECT_TRUE(has_remark(log, "running mean"));
}

TEST_F(TextLogTest, LlmC) {
  const Log file = read(
      "s:0 tel:11.0094\ns:0 trl:11.0091 lr:0.000001 norm:15.35\ns:1 trl:10.9 lr:0.000002 "
      "norm:14.00\ns:2 eval:0.2500\ns:2 tel:10.5\n");
  EXPECT_EQ(file.format, "llm.c's log");
  EXPECT_EQ(file.steps.at(1).loss, 10.9);
  EXPECT_EQ(file.steps.size(), 2u);
  EXPECT_EQ(file.evaluations.at(2), 10.5);
  const Log screen = read(
      "| run hellaswag | no |\n"
      "val loss 11.009400\n"  // resumed: before step 251, so of step 250
      "step  251/19560 | loss 10.998000 (+0.10z)| norm 15.3507 (+0.20z)| lr 1.71e-06 | 1620.51 ms "
      "| "
      "45.1% bf16 MFU | 323456 tok/s\n"
      "evaluating HellaSwag: 0/79\rHellaSwag: 2539/10042 = 0.252838\n"
      "val loss 10.5\n");
  EXPECT_EQ(screen.steps.at(251).loss, 10.998);
  EXPECT_DOUBLE_EQ(screen.steps.at(251).seconds, 1.62051);
  EXPECT_EQ(screen.steps.at(251).tokens_per_second, 323456);
  EXPECT_EQ(screen.evaluations.at(250), 11.0094);
  EXPECT_EQ(screen.evaluations.at(251), 10.5);
}

TEST_F(TextLogTest, OtherTextIsRefusedWithWhatIsKnown) {
  expect_failure(ExitCode::kUsage, "torchtitan", [&] { read("hello\nworld\n"); });
  expect_failure(ExitCode::kUsage, "LLaMA-Factory", [&] { read(""); });
  expect_failure(ExitCode::kUsage, "found none in", [&] { read_log(scratch_ / "missing"); });
  expect_failure(ExitCode::kUsage, "a training loss",
                 [&] { read("s:0 tel:11.0094\ns:2 tel:10.5\n"); });
  expect_failure(ExitCode::kUsage, "'no such name'",
                 [&] { read("s:0 trl:11.0 lr:1\n", {.loss_name = "no such name"}); });
}

}  // namespace
}  // namespace octavo::foreign_logs
