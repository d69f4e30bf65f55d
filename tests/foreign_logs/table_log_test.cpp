#include <gtest/gtest.h>

#include "expect_failure.h"
#include "foreign_logs/log_file.h"

namespace octavo::foreign_logs {
namespace {

class TableLogTest : public LogTest {};

TEST_F(TableLogTest, TrainerState) {
  const Log log = read(
      "{\n  \"best_metric\": null,\n  \"global_step\": 20,\n  \"log_history\": [\n"
      "    {\"epoch\": 0.5, \"loss\": 2.5, \"step\": 10, \"num_input_tokens_seen\": 1000},\n"
      "    {\"eval_loss\": 2.25, \"step\": 10, \"note\": \"NaN is \\\"not\\\" here\"},\n"
      "    {\"loss\": NaN, \"step\": 20},\n    {\"loss\": -Infinity, \"step\": 30},\n"
      "    {\"train_loss\": 2.1, \"step\": 30}\n  ]\n}\n");
  EXPECT_EQ(log.format, "transformers' trainer_state.json");
  EXPECT_EQ(log.steps.size(), 3u);
  EXPECT_EQ(log.steps.at(10).tokens, 1000);
  EXPECT_EQ(log.lost_losses, 2);
  EXPECT_EQ(log.evaluations.at(10), 2.25);
  EXPECT_TRUE(has_remark(log, "'train_loss' is there too"));
  expect_failure(ExitCode::kUsage, "wanted a log of one of these",
                 [&] { read("{\n \"log_history\": 3\n}\n"); });
  expect_failure(ExitCode::kDamaged, "", [&] { read("{\n \"log_history\": [\n"); });
}

TEST_F(TableLogTest, Jsonl) {
  const Log factory = read(
      "{\"current_steps\": 5, \"total_steps\": 93, \"loss\": 5.7013, \"lr\": 1e-06, "
      "\"elapsed_time\": "
      "\"0:02:03\", \"total_tokens\": 1614784}\n"
      "{\"current_steps\": 10, \"total_steps\": 93, \"eval_loss\": 4.169}\n");
  EXPECT_EQ(factory.format, "LLaMA-Factory's trainer_log.jsonl");
  EXPECT_EQ(factory.steps.at(5).tokens, 1614784);
  EXPECT_EQ(factory.evaluations.at(10), 4.169);
  const Log own = read(
      "{\"step\":1,\"train\":{\"loss\":3.5}}\n\n{\"step\":2,\"train\":{\"loss\":null}}\n"
      "{\"step\":2,\"train\":{\"loss\":null},\"val\":{\"loss\":3}}\n"
      "{\"step\":1,\"train\":{\"loss\":3.25}}\n[1]\nno "
      "json\n{\"step\":2.5,\"train\":{\"loss\":1}}\n"
      "{\"train\":{\"loss\":1}}\n{\"step\":3,\"train\":{\"loss\":Infinity}}\n");
  EXPECT_EQ(own.format, "JSONL");
  EXPECT_EQ(own.steps.size(), 3u);
  EXPECT_EQ(own.steps.at(1).loss, 3.25);
  EXPECT_FALSE(own.steps.at(2).loss.has_value());  // null without an evaluation: not finite
  EXPECT_EQ(own.repeated_steps, 1);
  EXPECT_EQ(own.bad_lines, 2);
  EXPECT_EQ(own.lost_losses, 2);
  EXPECT_EQ(own.evaluations.at(2), 3);
  EXPECT_TRUE(has_remark(own, "2 rows without a step"));
  expect_failure(ExitCode::kUsage, "'my_loss'; name it",
                 [&] { read("{\"step\":1,\"my_loss\":2}\n"); });
  EXPECT_EQ(read("{\"step\":1,\"my_loss\":2}\n", {.loss_name = "my_loss"}).steps.at(1).loss, 2);
}

TEST_F(TableLogTest, Csv) {
  const std::string exported =
      "\"Step\",\"brisk-1 - train/loss\",\"brisk-1 - train/loss__MIN\",\"brisk-1 - "
      "train/loss__MAX\",\"calm, \"\"2\"\" - train/loss\"\n"
      "\"0\",\"1.6425\",\"1\",\"2\",\"\"\r\n"
      "10,1.5,1,2,NaN\n20,,,,1.25,9,9\n";
  expect_failure(ExitCode::kUsage, "log#brisk-1", [&] { read(exported); });
  const fs::path path = write("log", exported);
  const Log brisk = read_log(path.string() + "#brisk-1");
  EXPECT_EQ(brisk.steps.size(), 2u);
  EXPECT_EQ(brisk.steps.at(0).loss, 1.6425);
  EXPECT_EQ(brisk.bad_lines, 1);
  const Log calm = read_log(path.string() + "#calm, \"2\"");
  EXPECT_EQ(calm.steps.size(), 1u);
  EXPECT_EQ(calm.lost_losses, 1);
  expect_failure(ExitCode::kUsage, "the run 'none'", [&] { read_log(path.string() + "#none"); });
  const Log lightning = read("epoch,step,train_loss,val_loss\n0,9,2.5,\n0,9,,2.25\n0,19.0,2,\n");
  EXPECT_EQ(lightning.format, "CSV table");
  EXPECT_EQ(lightning.steps.at(19).loss, 2);
  EXPECT_EQ(lightning.evaluations.at(9), 2.25);
  expect_failure(ExitCode::kUsage, "wanted a log", [&] { read("a,b\n1,2\n"); });
}

TEST_F(TableLogTest, Folders) {
  const std::string line = "{\"current_steps\": 5, \"loss\": 5.5}\n";
  write("llama/trainer_log.jsonl", line);
  write("llama/trainer_state.json", "{\"log_history\": [{\"step\": 1, \"loss\": 1}]}");
  const Log log = read_log(scratch_ / "llama");
  EXPECT_EQ(log.steps.at(5).loss, 5.5);
  EXPECT_TRUE(has_remark(log, "trainer_state.json is there too"));
  const std::string state = "{\"log_history\": [{\"step\": 1, \"loss\": 1}]}";
  write("hf/checkpoint-9/trainer_state.json", state);
  write("hf/checkpoint-100/trainer_state.json", "{\"log_history\": [{\"step\": 1, \"loss\": 7}]}");
  EXPECT_EQ(read_log(scratch_ / "hf").steps.at(1).loss, 7);
  write("two/a.log", "s:0 trl:1\n");
  write("two/b.log", "s:0 trl:1\n");
  expect_failure(ExitCode::kUsage, "name one", [&] { read_log(scratch_ / "two"); });
  fs::create_directories(scratch_ / "empty");
  expect_failure(ExitCode::kUsage, "found none in", [&] { read_log(scratch_ / "empty"); });
}

}  // namespace
}  // namespace octavo::foreign_logs
