// Folders in the Hugging Face layout: which files train, and which validate.

#include "data/splits.h"

#include <gtest/gtest.h>

#include "data/token_data.h"
#include "helpers.h"

namespace octavo::data {
namespace {

std::string row(const std::string& letters) {
  return "{\"text\": \"" + letters + "\"}\n";
}

std::vector<std::string> names(const std::vector<fs::path>& paths) {
  std::vector<std::string> result;
  for (const fs::path& path : paths) result.push_back(path.filename().string());
  return result;
}

using Names = std::vector<std::string>;

class Layout : public testing::Test {
 protected:
  SplitInputs resolve(const std::string& split, double val_fraction = 0.1) {
    config::Settings settings;
    settings.split_name = split;
    settings.val_fraction = val_fraction;
    settings.offline = true;
    return resolve_inputs(settings, {(scratch_ / "set").string()});
  }

  Scratch scratch_;
};

TEST_F(Layout, SplitsAreFilesOfThatName) {
  for (const char* name : {"data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl",
                           "data/train_1M-00000-of-00001.jsonl", "data/test-00000-of-00001.jsonl"})
    put_file(scratch_ / "set" / name, row("x"));
  put_file(scratch_ / "set/README.md", "# about");
  const SplitInputs train = resolve("");
  EXPECT_EQ(names(train.inputs),
            (Names{"train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"}));
  EXPECT_EQ(names(train.validation), Names{"test-00000-of-00001.jsonl"});
  EXPECT_EQ(names(resolve("train_1M").inputs), Names{"train_1M-00000-of-00001.jsonl"});
  EXPECT_TRUE(resolve("test").validation.empty());
  EXPECT_TRUE(resolve("", 0).validation.empty());
  expect_failure([&] { resolve("none"); }, ExitCode::kUsage, {"'none'", "train_1M"});
}

TEST_F(Layout, AFolderOfTextIsNoDataSetWithSplits) {
  put_file(scratch_ / "set/train.txt", "a");
  put_file(scratch_ / "set/training.jsonl", row("b"));
  const SplitInputs all = resolve("");
  EXPECT_EQ(names(all.inputs), Names{"set"});
  EXPECT_TRUE(all.validation.empty());
}

TEST_F(Layout, TheValidationSplitIsAllThatIsValidatedOn) {
  put_file(scratch_ / "set/train.jsonl", row("aaaa") + row("bbbb"));
  put_file(scratch_ / "set/validation.jsonl", row("cc") + row("dd"));
  put_file(scratch_ / "set/test.jsonl", row("ee"));
  config::Settings settings;
  settings.offline = true;
  PrepareOptions options = prepare_options(settings, {(scratch_ / "set").string()});
  EXPECT_EQ(names(options.val_inputs), Names{"validation.jsonl"});
  options.output = scratch_ / "out";
  options.quiet = true;
  const PrepareResult result = prepare(options);
  EXPECT_EQ(result.train_tokens, 10u);
  EXPECT_EQ(result.val_tokens, 5u);
}

TEST(Splits, AMissingFileIsNotLookedForOnTheHub) {
  config::Settings settings;
  settings.offline = true;
  EXPECT_EQ(names(resolve_inputs(settings, {"none.jsonl"}).inputs), Names{"none.jsonl"});
  EXPECT_EQ(resolve_inputs(settings, {"s3://bucket/x"}).inputs[0].string(), "s3://bucket/x");
}

// Rows in columns come through liboctavo_arrow.so; tests/conformance/data_formats has the sound
// ones.
TEST(Columns, FilesThatAreNoneAreDamage) {
  Scratch scratch;
  for (const char* name : {"a.parquet", "a.arrow"}) {
    for (const std::string& content :
         {std::string("x"), std::string("PAR1PAR1"), std::string("ARROW1\0\0", 8),
          std::string("PAR1\xff\xff\xff\x7fPAR1", 12), std::string(5000, '\0'),
          std::string(5000, '\xff')}) {
      put_file(scratch / name, content);
      expect_failure([&] { prepare(quiet_options({scratch / name}, scratch / "out")); },
                     ExitCode::kDamaged, {name, "restore"});
    }
  }
}

}  // namespace
}  // namespace octavo::data
