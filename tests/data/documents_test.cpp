// Where the ids of a document begin and end, and which data sets of earlier versions are still the
// same.

#include <gtest/gtest.h>

#include "data/dataset_index.h"
#include "data/token_data.h"
#include "helpers.h"
#include "tokenizer/fixtures.h"

namespace octavo::data {
namespace {

using tokenizer::added_token;
using tokenizer::small_file;
using Ids = std::vector<int32_t>;

constexpr int kBegin = 256, kEnd = 257;

// Bytes between <s> and, with `ends`, <eos>.
std::string tokenizer_file(bool ends) {
  Json file = small_file();
  file["added_tokens"] = {added_token(kBegin, "<s>"), added_token(kEnd, "<eos>")};
  const auto special = [](const char* id) {
    return Json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}};
  };
  const auto entry = [](const char* id, int number) {
    return Json{{"id", id}, {"ids", {number}}, {"tokens", {id}}};
  };
  Json single = {special("<s>"), {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
  if (ends) single.push_back(special("<eos>"));
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", single},
      {"pair", Json::array()},
      {"special_tokens", {{"<s>", entry("<s>", kBegin)}, {"<eos>", entry("<eos>", kEnd)}}}};
  return file.dump();
}

Ids ids_of(const fs::path& folder) {
  const auto data = TokenData::open(folder, "train");
  Ids ids(data->tokens());
  data->read(0, ids);
  return ids;
}

class Documents : public testing::Test {
 protected:
  Ids prepared(const fs::path& input, bool special = false) {
    PrepareOptions options = quiet_options({input}, scratch_ / str("out", ++count_));
    options.val_fraction = 0;
    options.tokenizer = (scratch_ / "tokenizer.json").string();
    options.special_tokens_in_text = special;
    prepare(options);
    plan_ = read_index(options.output).plan;
    return ids_of(options.output);
  }
  Scratch scratch_;
  int count_ = 0;
  std::string plan_;
};

TEST_F(Documents, BeginAndEndAsThePostProcessorSays) {
  put_file(scratch_ / "rows.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"\"}\n{\"text\":\"c\"}\n");
  put_file(scratch_ / "text.txt", "ab");
  put_file(scratch_ / "tokenizer.json", tokenizer_file(false));
  EXPECT_EQ(prepared(scratch_ / "rows.jsonl"), (Ids{kBegin, 'a', 'b', kEnd, kBegin, 'c'}));
  EXPECT_EQ(prepared(scratch_ / "text.txt"), (Ids{kBegin, 'a', 'b'}));
  put_file(scratch_ / "tokenizer.json", tokenizer_file(true));  // no second end behind its own
  EXPECT_EQ(prepared(scratch_ / "rows.jsonl"), (Ids{kBegin, 'a', 'b', kEnd, kBegin, 'c', kEnd}));
}

TEST_F(Documents, TextIsTextUnlessTheKeySaysOtherwise) {
  put_file(scratch_ / "text.txt", "a<eos>");
  put_file(scratch_ / "tokenizer.json", tokenizer_file(false));
  EXPECT_EQ(prepared(scratch_ / "text.txt"), (Ids{kBegin, 'a', '<', 'e', 'o', 's', '>'}));
  const std::string plain = plan_;
  EXPECT_EQ(prepared(scratch_ / "text.txt", true), (Ids{kBegin, 'a', kEnd}));
  EXPECT_NE(plan_, plain);
}

// Plans that version 1.0 wrote: where the ids are the same its folders are found again.
TEST_F(Documents, DataSetsOfEarlierVersionsAreFoundAgainWhereTheirIdsAreTheSame) {
  put_file(scratch_ / "a.txt", "First Citizen:\nBefore we proceed");
  put_file(scratch_ / "b.jsonl", "{\"prompt\":\"ab\",\"response\":\"cd\"}\n");
  const auto plan_of = [&](const fs::path& input, const std::string& tokenizer, bool special) {
    PrepareOptions options = quiet_options({input}, scratch_ / str("plan", ++count_));
    options.tokenizer = tokenizer;
    options.special_tokens_in_text = special;
    prepare(options);
    return read_index(options.output).plan;
  };
  EXPECT_EQ(plan_of(scratch_ / "a.txt", "bytes", false), "296919ae7500d431119816b37e18d360");
  EXPECT_EQ(plan_of(scratch_ / "b.jsonl", "bytes", false), "e1a960b1dce9603153028335cc97f24b");
  const fs::path gpt2 = tokenizer::shared_file("tokenizers/gpt2/tokenizer.json");
  OCTAVO_NEED_FILE(gpt2);
  EXPECT_EQ(plan_of(scratch_ / "b.jsonl", gpt2.string(), false),
            "61bae8531ee12357f034f4710a1d5236");
  EXPECT_EQ(plan_of(scratch_ / "a.txt", gpt2.string(), true), "f82985730d038de531bc156f772a4ebb");
  EXPECT_NE(plan_of(scratch_ / "a.txt", gpt2.string(), false), "f82985730d038de531bc156f772a4ebb");
}

}  // namespace
}  // namespace octavo::data
