// Folders in the Hugging Face layout: which files train, and which validate.

#include "data/splits.h"

#include <gtest/gtest.h>

#include "data/dataset_index.h"
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
  SplitInputs resolve(const std::string& split, double val_fraction = 0.1,
                      const std::string& val_split = "") {
    config::Settings settings;
    settings.split_name = split;
    settings.val_split_name = val_split;
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
  EXPECT_TRUE(train.validation.empty());  // test is for the end, unless it is asked for
  EXPECT_EQ(names(resolve("", 0.1, "test").validation), Names{"test-00000-of-00001.jsonl"});
  EXPECT_EQ(names(resolve("", 0, "test").validation), Names{"test-00000-of-00001.jsonl"});
  expect_failure([&] { resolve("", 0.1, "validation"); }, ExitCode::kUsage, {"'validation'"});
  expect_failure([&] { resolve("test", 0.1, "test"); }, ExitCode::kUsage, {"val_split_name"});
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

// A Hugging Face home of its own, without the network.
class Benchmark : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH"}) ::unsetenv(name);
    ::setenv("HF_HOME", scratch_.path().c_str(), 1);
    settings_.offline = true;
    settings_.dataset_config = "of-the-training-data";
  }
  void TearDown() override { ::unsetenv("HF_HOME"); }
  // A file of Rowan/hellaswag in the cache.
  fs::path put_cached(const std::string& name) {
    const std::string commit(40, 'a');
    const fs::path repository = scratch_ / "hub/datasets--Rowan--hellaswag";
    put_file(repository / "refs/main", commit);
    put_file(repository / "snapshots" / commit / name, row("x"));
    return repository / "snapshots" / commit / name;
  }
  fs::path file_of(const std::string& name) const {
    return benchmark_file(settings_, "eval_data", name);
  }
  Scratch scratch_;
  config::Settings settings_;
};

TEST_F(Benchmark, ANameIsItsValidationSplit) {
  put_cached("data/train-00000-of-00001.jsonl");
  const fs::path rows = put_cached("data/validation-00000-of-00001.jsonl");
  for (const char* name : {"hellaswag", "HellaSwag", "Rowan/hellaswag"})
    EXPECT_EQ(file_of(name), rows) << name;
  put_file(scratch_ / "set/validation.jsonl", row("x"));
  EXPECT_EQ(file_of((scratch_ / "set").string()), scratch_ / "set/validation.jsonl");
  EXPECT_EQ(file_of(rows.string()), rows);
}

TEST_F(Benchmark, WhatIsNotThereIsSaid) {
  expect_failure([&] { file_of("hellaswag"); }, ExitCode::kUsage,
                 {"Rowan/hellaswag", "offline", "Run once with a network"});
  for (const char* name : {"", "none.jsonl", "none.parquet", "./none"})
    expect_failure([&] { file_of(name); }, ExitCode::kUsage,
                   {"eval_data: wanted a file of rows", "the name hellaswag"});
  put_cached("data/validation-00000-of-00002.jsonl");
  put_cached("data/validation-00001-of-00002.jsonl");
  expect_failure([&] { file_of("hellaswag"); }, ExitCode::kUsage, {"in one file, found 2"});
}

class Sets : public testing::Test {
 protected:
  // Training and validation text of what `inputs` below the scratch folder become.
  std::pair<std::string, std::string> prepared(const std::vector<std::string>& inputs,
                                               double val_fraction) {
    config::Settings settings;
    settings.offline = true;
    settings.val_fraction = val_fraction;
    std::vector<std::string> paths;
    for (const std::string& input : inputs) paths.push_back((scratch_ / input).string());
    PrepareOptions options = prepare_options(settings, paths);
    options.output = scratch_ / str("out", ++count_);
    options.quiet = true;
    prepare(options);
    sets_ = read_index(options.output).sets;
    return {split_text(options.output, "train"), split_text(options.output, "val")};
  }
  std::string rows(const std::string& text, int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) lines += row(text);
    return lines;
  }
  Scratch scratch_;
  Json sets_;
  int count_ = 0;
};

TEST_F(Sets, EachHoldsOutItsOwnPart) {
  put_file(scratch_ / "a.jsonl", rows("aa", 5));
  put_file(scratch_ / "b.jsonl", rows("bb", 5));
  const auto [train, val] = prepared({"a.jsonl", "b.jsonl"}, 0.2);
  EXPECT_EQ(train, "aa|aa|aa|aa|bb|bb|bb|bb|");
  EXPECT_EQ(val, "aa|bb");
  ASSERT_EQ(sets_.size(), 2u);
  EXPECT_EQ(sets_[0]["name"], "a.jsonl");
  for (const Json& set : sets_) {
    EXPECT_EQ(set["train_documents"], 4);
    EXPECT_EQ(set["val_documents"], 1);
    EXPECT_EQ(set["validation"], "the last 0.2 of it");
  }
}

TEST_F(Sets, OneWithASplitDoesNotSpeakForTheOthers) {
  put_file(scratch_ / "a/train.jsonl", rows("aa", 5));
  put_file(scratch_ / "a/validation.jsonl", rows("vv", 2));
  put_file(scratch_ / "b.jsonl", rows("bb", 5));
  const auto [train, val] = prepared({"a", "b.jsonl"}, 0.2);
  EXPECT_EQ(train, "aa|aa|aa|aa|aa|bb|bb|bb|bb|");
  EXPECT_EQ(val, "bb|vv|vv");
  EXPECT_EQ(sets_[0]["validation"], "its split validation");
  EXPECT_EQ(sets_[0]["val_documents"], 2);
  EXPECT_EQ(sets_[1]["val_documents"], 1);
}

// A set of one document is cut; what follows in either split is another document.
TEST_F(Sets, ALoneDocumentInFrontIsCutBetweenDocuments) {
  put_file(scratch_ / "a.jsonl", row(std::string(100, 'a')));
  put_file(scratch_ / "b.jsonl", rows("bb", 5));
  const auto [train, val] = prepared({"a.jsonl", "b.jsonl"}, 0.2);
  const size_t cut = train.find('|');
  EXPECT_GT(cut, 50u);
  EXPECT_LT(cut, 90u);
  EXPECT_EQ(train, std::string(cut, 'a') + "|bb|bb|bb|bb|");
  EXPECT_EQ(val, std::string(100 - cut, 'a') + "|bb");
}

// As a folder of them is: the last files validate, none is cut but the last.
TEST_F(Sets, TextFilesOneAfterAnotherAreOne) {
  for (const char* name : {"a", "b", "c", "d"})
    put_file(scratch_ / (std::string(name) + ".txt"), std::string(10, *name));
  const auto [train, val] = prepared({"a.txt", "b.txt", "c.txt", "d.txt"}, 0.4);
  EXPECT_EQ(train, "aaaaaaaaaa|bbbbbbbbbb|cccccccccc|");
  EXPECT_EQ(val, "dddddddddd");
  ASSERT_EQ(sets_.size(), 1u);
  EXPECT_EQ(sets_[0]["name"], "a.txt and 3 more files");
}

TEST(Splits, AMissingFileIsNotLookedForOnTheHub) {
  config::Settings settings;
  settings.offline = true;
  EXPECT_EQ(names(resolve_inputs(settings, {"none.jsonl"}).inputs), Names{"none.jsonl"});
  EXPECT_EQ(resolve_inputs(settings, {"s3://bucket/x"}).inputs[0].string(), "s3://bucket/x");
}

// Rows in columns come through liboctavo_arrow.so; tests/conformance/data_formats.py has the sound
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
