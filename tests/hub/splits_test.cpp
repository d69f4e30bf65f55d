#include "hub/splits.h"

#include "fixtures.h"
#include "hub/card.h"

namespace octavo::hub {
namespace {

using Names = std::vector<std::string>;

Names pick(Names names, const std::string& split, const std::string& card = "",
           const std::string& subset = "") {
  std::sort(names.begin(), names.end());
  return files_of_split(names, card, {"org/data", split, subset});
}

TEST(Splits, ShardNamesAreExact) {
  const Names names = {"data/train-00000-of-00002.parquet",
                       "data/train-00001-of-00002.parquet",
                       "data/train_1M-00000-of-00001.parquet",
                       "data/test-00000-of-00001-ab12.parquet",
                       "README.md",
                       "dataset_infos.json"};
  EXPECT_EQ(pick(names, "train"), (Names{names[0], names[1]}));
  EXPECT_EQ(pick(names, "train_1M"), Names{names[2]});
  EXPECT_EQ(pick(names, "test"), Names{names[3]});
  expect_failure(ExitCode::kUsage, "the splits test, train, train_1M; perhaps 'train_1M' is meant",
                 [&] { pick(names, "train_2M"); });
}

TEST(Splits, WordsInNames) {
  EXPECT_EQ(pick({"gsm8k_train.jsonl", "gsm8k_test.jsonl"}, "train"), Names{"gsm8k_train.jsonl"});
  EXPECT_EQ(pick({"train/a.txt", "valid/b.txt"}, "validation"), Names{"valid/b.txt"});
  EXPECT_EQ(pick({"dev.json", "train.json"}, "validation"), Names{"dev.json"});
  EXPECT_EQ(pick({"train.jsonl", "train_1M.jsonl"}, "train_1M"), Names{"train_1M.jsonl"});
  // "training-day" has the word; "constrain" has not.
  EXPECT_EQ(pick({"constrain.txt", "x.txt"}, "train"), (Names{"constrain.txt", "x.txt"}));
  EXPECT_EQ(pick({"a.parquet", "b.parquet", "LICENSE.txt"}, "train"),
            (Names{"a.parquet", "b.parquet"}));
  expect_failure(ExitCode::kUsage, "no files in a known format", [] { pick({"a.csv"}, "train"); });
  expect_failure(ExitCode::kUsage, "the splits train", [] { pick({"a.parquet"}, "test"); });
}

TEST(Splits, OneFormat) {
  EXPECT_EQ(pick({"train.parquet", "train.jsonl", "train.txt"}, "train"), Names{"train.parquet"});
}

const std::string kCard = R"(---
license: mit
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: ["main/test-*", "extra/**/t?.parquet"]
- config_name: other
  default: true
  data_files: "other/*.jsonl"
- config_name: folder
  data_dir: sub
dataset_info: {broken: [
---
configs: not this
)";

TEST(Splits, TheCardDecides) {
  const Names names = {"main/train-0.parquet",  "main/test-0.parquet", "extra/a/b/t1.parquet",
                       "extra/a/b/t10.parquet", "other/x.jsonl",       "other/deep/x.jsonl",
                       "sub/train.txt",         "sub/test.txt"};
  EXPECT_EQ(pick(names, "train", kCard, "main"), Names{"main/train-0.parquet"});
  EXPECT_EQ(pick(names, "test", kCard, "main"),
            (Names{"extra/a/b/t1.parquet", "main/test-0.parquet"}));
  EXPECT_EQ(pick(names, "train", kCard), Names{"other/x.jsonl"});
  EXPECT_EQ(pick(names, "test", kCard, "folder"), Names{"sub/test.txt"});
  expect_failure(ExitCode::kUsage, "main, other, folder",
                 [&] { pick(names, "train", kCard, "none"); });
  EXPECT_EQ(pick({"a/train.txt", "b/train.txt"}, "train", "", "b"), Names{"b/train.txt"});
}

TEST(Splits, CardsThatSayNothing) {
  for (const char* card :
       {"", "# title", "---\nlicense: mit\n---\n", "---\nconfigs:\n---\n",
        "---\nconfigs:\n- [1, 2]\n  x\n---\n", "---\nconfigs:\n  a: &x [*x]\n---",
        "---\nconfigs:\n- config_name: [a]\n  data_files: {a: {b: c}}\n"})
    EXPECT_TRUE(read_card(card, "t").empty() || read_card(card, "t")[0].name == "default") << card;
  EXPECT_TRUE(read_card("---\nconfigs:\n- " + std::string(100'000, '['), "t").empty());
  EXPECT_TRUE(read_card("---\nconfigs:\n- " + std::string(2'000'000, 'a'), "t").empty());
}

TEST(Splits, Globs) {
  EXPECT_TRUE(path_match("data/train-*", "data/train-1.parquet"));
  EXPECT_FALSE(path_match("data/*", "data/a/b"));
  EXPECT_TRUE(path_match("data/**", "data/a/b"));
  EXPECT_TRUE(path_match("**/x.json", "x.json"));
  EXPECT_TRUE(path_match("data/", "data/a/b"));
  EXPECT_FALSE(path_match("", "a"));
  EXPECT_FALSE(path_match("data", "data/a"));
  // Untrusted patterns must not cost more than a moment.
  std::string many = "**/a", name = "a";
  for (int i = 0; i < 30; ++i) {
    many += "/**/a";
    name += "/a";
  }
  EXPECT_FALSE(path_match(many, name + "/b"));
}

TEST(Splits, MissingShards) {
  EXPECT_FALSE(shards_missing({"a-00000-of-00002.x", "a-00001-of-00002.x", "b.x"}));
  EXPECT_TRUE(shards_missing({"a-00001-of-00002.x"}));
  EXPECT_TRUE(shards_missing({"d/a-00000-of-00002.x", "e/a-00001-of-00002.x"}));
  EXPECT_FALSE(shards_missing({"a-0000x-of-00002.x", "a-1-of-2"}));
}

}  // namespace
}  // namespace octavo::hub
