#include "config/parse.h"

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "config/expect_refused.h"
#include "config/yaml.h"

namespace octavo::config {
namespace {

Parsed parse_words(const Words& words, const Arguments& arguments = {}) {
  return parse(words, arguments);
}

class ParseFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    path_ = std::filesystem::path(testing::TempDir()) /
            ("octavo_" + name + "_" + std::to_string(getpid()) + ".yaml");
    std::ofstream(path_, std::ios::binary) << text;
    return path_.string();
  }
  ~ParseFile() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

TEST(Parse, NothingGivenIsTheDefault) {
  const Parsed parsed = parse_words({});
  EXPECT_EQ(parsed.settings, Settings{});
  EXPECT_TRUE(parsed.origins.empty());
  EXPECT_EQ(parsed.origin_of("batch_size").text(), "default");
}

TEST(Parse, FlagForms) {
  const Parsed parsed =
      parse_words({"--batch_size", "4", "--max_steps=10", "--no_shuffle", "--list_checkpoints",
                   "--json", "true", "--max-grad-norm", "0.5", "--prompt=--x=y", "--dataset",
                   "a.txt,b.jsonl", "--mixed_precision", "fp32"});
  EXPECT_EQ(parsed.settings.batch_size, 4);
  EXPECT_EQ(parsed.settings.max_steps, 10);
  EXPECT_FALSE(parsed.settings.shuffle);
  EXPECT_TRUE(parsed.settings.list_checkpoints);
  EXPECT_TRUE(parsed.settings.json);
  EXPECT_EQ(parsed.settings.max_grad_norm, 0.5);
  EXPECT_EQ(parsed.settings.prompt, "--x=y");
  EXPECT_EQ(parsed.settings.dataset, (Words{"a.txt", "b.jsonl"}));
  EXPECT_EQ(parsed.settings.mixed_precision, Precision::kFp32);
  EXPECT_EQ(parsed.origin_of("batch_size").text(), "flag");
}

TEST(Parse, NegativeNumbersAreValues) {
  EXPECT_EQ(parse_words({"--warmup_steps", "-1"}).settings.warmup_steps, -1);
  expect_refused(
      [] {
        parse_words({"--batch_size", "-1"});
      },
      {"wanted an integer from 1 to 65536", "found '-1'"});
}

TEST(Parse, AliasesAreTheSameKey) {
  const Parsed parsed = parse_words({"--max_lr", "0.001", "--dataset_name", "d"});
  EXPECT_EQ(parsed.settings.learning_rate, 0.001);
  EXPECT_EQ(parsed.settings.dataset, Words{"d"});
  EXPECT_TRUE(parsed.given("learning_rate"));
  expect_refused(
      [] {
        parse_words({"--max_lr", "0.001", "--learning_rate", "0.002"});
      },
      {"learning_rate", "twice"});
}

TEST(Parse, MistakesSayWantedAndFound) {
  expect_refused(
      [] {
        parse_words({"--batchsize", "4"});
      },
      {"unknown key 'batchsize'", "did you mean batch_size?"});
  expect_refused(
      [] {
        parse_words({"--qqqqqqqqqqqqqqqq", "4"});
      },
      {"unknown key", "octavo config show"});
  expect_refused(
      [] {
        parse_words({"--batch_size", "many"});
      },
      {"batch_size", "wanted an integer", "found 'many'"});
  expect_refused([] { parse_words({"--batch_size"}); }, {"batch_size", "found nothing"});
  expect_refused(
      [] {
        parse_words({"--batch_size", "--shuffle"});
      },
      {"found the flag --shuffle", "--batch_size=--shuffle"});
  expect_refused(
      [] {
        parse_words({"--mixed_precision", "fp16"});
      },
      {"wanted one of fp8, bf16, fp32", "found 'fp16'"});
  expect_refused([] { parse_words({"--shuffle=maybe"}); }, {"wanted true or false", "'maybe'"});
  expect_refused([] { parse_words({"--no_shuffle=true"}); }, {"--no_shuffle", "no value"});
  expect_refused([] { parse_words({"--no_batch_size"}); }, {"unknown key 'no_batch_size'"});
  expect_refused([] { parse_words({"--seed", "1", "--seed", "2"}); }, {"seed", "twice"});
  expect_refused([] { parse_words({"-b", "4"}); }, {"wanted --key value", "'-b'"});
  expect_refused([] { parse_words({"--dataset", "a,,b"}); }, {"dataset", "list"});
  expect_refused([] { parse_words({"--prompt", "\xff"}); }, {"prompt", "UTF-8"});
  expect_refused([] { parse_words({"stray"}); }, {"found 'stray'"});
}

TEST(Parse, FlagsThatTheVerbDoesNotReadAreRefused) {
  expect_refused(
      [] {
        parse_words({"--prompt", "x"}, kTrainArguments);
      },
      {"--prompt", "not read by train", "only by generate"});
  EXPECT_EQ(parse_words({"--prompt", "x"}, kGenerateArguments).settings.prompt, "x");
}

TEST(Parse, PositionalsBesideTheFile) {
  const Parsed parsed = parse_words({"list", "--json", "folder"}, kCheckpointsArguments);
  EXPECT_EQ(parsed.positionals, (Words{"list", "folder"}));
  EXPECT_TRUE(parsed.settings.json);
  expect_refused([] { parse_words({"list", "a", "b"}, kCheckpointsArguments); }, {"found 'b'"});
}

TEST_F(ParseFile, FlagBeatsFileWhereverItStands) {
  const std::string file =
      write("# a run\nbatch_size: 16\nmax_lr: 3e-4\nprompt: 'for another verb'\n");
  for (const Words& words : {Words{file, "--batch_size", "2"}, Words{"--batch_size", "2", file}}) {
    const Parsed parsed = parse_words(words, kTrainArguments);
    EXPECT_EQ(parsed.settings.batch_size, 2);
    EXPECT_EQ(parsed.settings.learning_rate, 3e-4);
    EXPECT_EQ(parsed.config_file, file);
    EXPECT_EQ(parsed.origin_of("batch_size").text(), "flag");
    EXPECT_EQ(parsed.origin_of("learning_rate").text(), file + ":3");
    EXPECT_EQ(parsed.origin_of("seed").text(), "default");
  }
}

// A flag equal to the default must still beat the file.
TEST_F(ParseFile, FlagWithTheDefaultValueBeatsFile) {
  const std::string file = write("batch_size: 16\n");
  EXPECT_EQ(parse_words({file, "--batch_size", "8"}).settings.batch_size, 8);
}

TEST_F(ParseFile, MistakesNameFileAndLine) {
  expect_refused([] { parse_words({"/nonexistent/a.yaml"}); }, {"no file /nonexistent/a.yaml"});
  const std::string file = write("batch_size: 16\nlearning_rat: 1\n");
  expect_refused([&] { parse_words({file}); },
                 {file + ":2", "unknown key 'learning_rat'", "learning_rate"});
  write("batch_size: 16\n\nseed: [1, 2]\n");
  expect_refused([&] { parse_words({file}); }, {file + ":3", "seed", "found a list"});
  write("max_lr: 1\nlearning_rate: 1\n");
  expect_refused([&] { parse_words({file}); }, {file + ":2", "twice", file + ":1"});
  write(std::string(kMaxYamlBytes + 1, '#'));
  expect_refused([&] { parse_words({file}); }, {"1048576 bytes", "found 1048577"});
}

// The message of a refusal, a line for each mistake.
std::vector<std::string> mistakes_of(const Words& words, const Arguments& arguments) {
  try {
    parse(words, arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return split(error.what(), '\n');
  }
  return {};
}

TEST_F(ParseFile, EveryMistakeIsNamedAtOnce) {
  const std::string file = write(
      "batchsize: 4\nseed: many\nshuffle: true\nmax_steps: 10\nnum_epochs: 2\nn_embd: [1, 2]\n"
      "n_head: 3\n");
  const auto lines = mistakes_of(
      {file, "--log_frequency", "5", "--prompt", "x", "--val_fraction", "2"}, kTrainArguments);
  ASSERT_EQ(lines.size(), 7u) << join(lines, "\n");
  const char* parts[] = {"[config] unknown key 'log_frequency'",
                         "  and --prompt: not read by train",
                         "  and --val_fraction: wanted a number from 0 to 0.9, found '2'",
                         ":1: unknown key 'batchsize'; did you mean batch_size?",
                         ":2: seed: wanted an integer",
                         ":6: n_embd: wanted an integer",
                         "max_steps and num_epochs both say how long to train"};
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_NE(lines[i].find(parts[i]), std::string::npos) << parts[i] << " in: " << lines[i];
}

TEST_F(ParseFile, WhatFollowsFromAMistakeIsNotSaid) {
  // The value of an unknown flag is no stray word, a flag that lacks its value hides no other, and
  // rules do not judge a key that was misspelt.
  EXPECT_EQ(mistakes_of({"--batchsize", "-4", "--warmup_stps", "3"}, kTrainArguments).size(), 2u);
  EXPECT_EQ(mistakes_of({"--seed", "--batch_size", "x"}, kTrainArguments).size(), 2u);
  EXPECT_EQ(mistakes_of({"--foo"}, kTrainArguments).size(), 1u);
  const std::string file = write("model_name: custom\nn_layer: 1\nn_head: 1\nn_embed: 8\n");
  EXPECT_EQ(mistakes_of({"--qqqqqqqqqqqqqqqq", file}, kTrainArguments).size(), 2u);
  // Without the file nothing is known about the rest.
  const auto lines = mistakes_of(
      {"none.yaml", "--sed", "1", "--max_steps", "1", "--num_epochs", "1"}, kTrainArguments);
  ASSERT_EQ(lines.size(), 2u) << join(lines, "\n");
  EXPECT_NE(lines[1].find("found no file none.yaml"), std::string::npos);
}

TEST_F(ParseFile, ALongListOfMistakesIsCut) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "qqqqqqqqqqqqqqqq" + std::to_string(i) + ": 1\n";
  const auto lines = mistakes_of({write(text)}, kTrainArguments);
  ASSERT_EQ(lines.size(), 21u);
  EXPECT_EQ(lines.back(), "  and 30 more; correct these first");
}

}  // namespace
}  // namespace octavo::config
