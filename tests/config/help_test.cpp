#include "config/help.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"

namespace octavo::config {
namespace {

TEST(Help, HoldsTheVerbsKeysOnly) {
  const std::string text = help_text(reader::kSchedule);
  EXPECT_NE(text.find("--warmup_steps"), text.npos);
  EXPECT_NE(text.find("--max_lr"), text.npos);
  EXPECT_EQ(text.find("--batch_size"), text.npos);
  EXPECT_EQ(text.find("model:"), text.npos) << "a section without keys";
  const std::string all = help_text(reader::kAll);
  for (const Key& key : keys()) EXPECT_NE(all.find(key.name), all.npos) << key.name;
  EXPECT_EQ(section_help(reader::kSchedule, "model"), "");
  EXPECT_EQ(section_help(reader::kAll, "nonsense"), "");
}

TEST(Help, CommonKeysHaveASentence) {
  const std::vector<std::string> names = {"max_steps", "shuffle", "mixed_precision"};
  EXPECT_EQ(
      common_help(names),
      "  --max_steps N           Steps to train. 0: num_epochs decides. [0]\n"
      "  --[no_]shuffle          Train on the samples in a new random order every epoch, drawn "
      "from seed.\n"
      "                          [true]\n"
      "  --mixed_precision WORD  What the GEMMs run in (fp8, bf16, fp32). [bf16]\n");
}

TEST(Help, OtherKeysAreThoseThatAreNotShown) {
  const std::vector<std::string> shown = {"max_steps", "learning_rate"};
  EXPECT_EQ(other_keys(reader::kSchedule, shown),
            "  train        min_lr_ratio warmup_steps\n  results      output json\n");
}

TEST(Help, OfAKey) {
  EXPECT_EQ(
      key_help(*find_key("warmup_steps")),
      "--warmup_steps <integer>\n\n"
      "  Steps of linear warm-up. -1: a twentieth of the run, at most 2000. When a flag makes "
      "the run of a\n"
      "  file shorter, the file's warm-up shrinks with it, and the run says so.\n\n"
      "  values    an integer from -1 to 1099511627776\n"
      "  default   -1\n"
      "  YAML      warmup_steps: -1\n"
      "  section   train: How it is trained.\n"
      "  read by   train, schedule\n"
      "  rule      warmup_steps must not exceed max_steps, or learning_rate is never reached; "
      "lower it or\n"
      "            give -1 (warmup_fits)\n");
  const std::string list = key_help(*find_key("dataset_name"));
  for (const char* part :
       {"--dataset <list>\n", "  default   empty\n", "  also      dataset_name\n",
        "  flag      --dataset a,b\n", "  YAML      dataset: [a, b]\n"})
    EXPECT_NE(list.find(part), list.npos) << part << list;
  const std::string word = key_help(*find_key("fp8_format"));
  EXPECT_NE(word.find("  values    one of auto, hybrid, e4m3, e5m2\n"), word.npos) << word;
  EXPECT_NE(key_help(*find_key("shuffle")).find("--no_shuffle for false"), std::string::npos);
}

TEST(Help, LinesAreNoLongerThanAScreen) {
  EXPECT_EQ(wrapped("a b", 4), "a b");
  const std::string word(60, 'x');
  EXPECT_EQ(wrapped(word + " " + word, 4), word + "\n    " + word);
  for (const Key& key : keys())
    for (const std::string& line : split(key_help(key), '\n'))
      EXPECT_LE(line.size(), kHelpColumns + 4) << line;  // bytes: … has three
}

TEST(Help, NearKeys) {
  EXPECT_EQ(near_keys("batchsize").front(), "batch_size");
  const std::vector<std::string> amax = near_keys("amax");
  EXPECT_EQ(std::ranges::count(amax, "fp8_amax_history"), 1);
  EXPECT_EQ(std::ranges::count(amax, "fp8_amax_algo"), 1);
  EXPECT_EQ(near_keys("fp8").size(), 8u) << "there are more, and too many help nobody";
  EXPECT_TRUE(near_keys("qqqqqqqqqqqqqqq").empty());
}

TEST(Help, FirstSentence) {
  EXPECT_EQ(first_sentence("One. Two."), "One");
  EXPECT_EQ(first_sentence("tokenizer.json alone."), "tokenizer.json alone");
}

}  // namespace
}  // namespace octavo::config
