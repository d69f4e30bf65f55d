// Rows with answers: which tokens count in the loss, how documents share samples, and that neither
// the number of workers nor an interruption changes a byte.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "data/dataset_index.h"
#include "data/journal.h"
#include "data/packer.h"
#include "data/shard.h"
#include "data/token_data.h"
#include "helpers.h"

namespace octavo::data {
namespace {

std::string make_rows(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (int i = 0; i < count; ++i)
    text += Json{{"prompt", str(i, ": ", make_text(1 + random() % 60, random()))},
                 {"response", make_text(1 + random() % 120, random())}}
                .dump() +
            "\n";
  return text;
}

PrepareOptions packed_options(const fs::path& input, const fs::path& output, uint64_t length) {
  PrepareOptions options = quiet_options({input}, output);
  options.chat_template = config::ChatTemplate::kNone;
  options.max_seq_length = length;
  options.val_fraction = 0;
  return options;
}

std::vector<uint32_t> words_of(const fs::path& folder, const std::string& split = "train") {
  const auto data = TokenData::open(folder, split);
  std::vector<int32_t> tokens(data->tokens());
  data->read(0, tokens);
  return {tokens.begin(), tokens.end()};
}

// Documents of a packed `bytes` set as text: loss tokens upper case, '|' the end of a document,
// '.' for padding; samples are cut by spaces.
std::string shown(const std::vector<uint32_t>& words, size_t length) {
  std::string text;
  bool padding = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && i % length == 0) text += ' ';
    const uint32_t id = words[i] & kIdMask;
    if ((words[i] & kStartFlag) != 0) {
      padding = id == 256;
      text += '(';
    }
    const char c = padding ? '.' : id == 256 ? '|' : static_cast<char>(id);
    text += (words[i] & kLossFlag) != 0 ? static_cast<char>(std::toupper(c)) : c;
    if ((words[i] & kLossFlag) != 0 && id == 256) text += '!';
  }
  return text;
}

TEST(Packed, AnswersCountInTheLossAndDocumentsFillSamplesBestFit) {
  Scratch scratch;
  put_file(scratch / "in.jsonl",
           "{\"prompt\":\"ab\",\"response\":\"cd\"}\n"          // 5 tokens
           "{\"prompt\":\"e\",\"response\":\"fghi\"}\n"         // 6: a sample of its own
           "{\"prompt\":\"\",\"response\":\"j\"}\n"             // 2: fits the second best
           "{\"prompt\":\"k\",\"response\":\"l\"}\n"            // 3: only into the first
           "{\"prompt\":\"m\",\"response\":\"\"}\n"             // left out
           "{\"prompt\":\"nopqrs\",\"response\":\"tuv\"}\n"     // cut
           "{\"prompt\":\"nopqrstuv\",\"response\":\"w\"}\n");  // no loss token left
  PrepareOptions options = packed_options(scratch / "in.jsonl", scratch / "out", 8);
  const PrepareResult result = prepare(options);
  EXPECT_EQ(result.documents, 5u);
  EXPECT_EQ(result.train_tokens, 24u);
  EXPECT_EQ(shown(words_of(scratch / "out"), 8), "(eFGHI|!(j|! (abCD|!(kL|! (nopqrsTU");
  options.train_on = config::TrainOn::kAll;
  options.output = scratch / "all";
  prepare(options);
  EXPECT_EQ(shown(words_of(scratch / "all"), 8).substr(0, 13), "(eFGHI|!(j|! ");
  EXPECT_EQ(shown(words_of(scratch / "all"), 8).substr(13, 7), "(aBCD|!");
  options.packing = false;
  options.output = scratch / "alone";
  prepare(options);
  EXPECT_EQ(shown(words_of(scratch / "alone"), 8).substr(0, 35),
            "(aBCD|!(... (eFGHI|!(.. (j|!(......");
  EXPECT_EQ(prepare(options).padding_tokens, 3u + 2 + 6 + 5);
}

// Two of seven rows: 28.6%.
TEST(Packed, RowsLeftOutAreNamedAndTooManyAreAnError) {
  Scratch scratch;
  put_file(scratch / "in.jsonl",
           "{\"prompt\":\"ab\",\"response\":\"cd\"}\n{\"prompt\":\"e\",\"response\":\"f\"}\n"
           "{\"prompt\":\"e\",\"response\":\"\"}\n{\"prompt\":\"g\",\"response\":\"h\"}\n"
           "{\"prompt\":\"nopqrstuv\",\"response\":\"w\"}\n"
           "{\"prompt\":\"i\",\"response\":\"j\"}\n{\"prompt\":\"k\",\"response\":\"l\"}\n");
  PrepareOptions options = packed_options(scratch / "in.jsonl", scratch / "out", 8);
  options.max_skipped_rows = PrepareOptions().max_skipped_rows;
  expect_failure([&] { prepare(options); }, ExitCode::kUsage,
                 {"5%", "2 of 7", "1 whose answer begins behind max_seq_length 8",
                  "1 without an answer", "in.jsonl:3", "in.jsonl:5", "--max_skipped_rows 0.29"});
  EXPECT_FALSE(fs::exists(scratch / "out/dataset.json"));
  options.max_skipped_rows = 0.29;
  const PrepareResult result = prepare(options);  // behind the shards that are there
  EXPECT_EQ(result.shards_reused, result.shards);
  EXPECT_EQ(result.documents, 5u);
  EXPECT_EQ(read_index(scratch / "out").sets[0]["train_documents"], 5);
}

// Nothing is lost with an empty text: a data set of lines has many.
TEST(Packed, EmptyTextsAreNoLoss) {
  Scratch scratch;
  put_file(scratch / "in.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\"}\n{\"text\":\"\"}\n");
  PrepareOptions options = quiet_options({scratch / "in.jsonl"}, scratch / "out");
  options.max_skipped_rows = 0;
  EXPECT_EQ(prepare(options).documents, 1u);
}

TEST(Packed, ABatchKnowsWhereDocumentsBeginAndItsLossTokens) {
  Scratch scratch;
  put_file(scratch / "in.jsonl",
           "{\"prompt\":\"ab\",\"response\":\"cd\"}\n{\"prompt\":\"e\",\"response\":\"f\"}\n"
           "{\"prompt\":\"gh\",\"response\":\"i\"}\n");
  prepare(packed_options(scratch / "in.jsonl", scratch / "out", 9));
  const std::shared_ptr<const TokenData> data = TokenData::open(scratch / "out", "train");
  EXPECT_EQ(data->sample_length(), 9);
  EXPECT_EQ(sample_count(*data, 9), 2u);
  Loader loader(data, {.rows = 2, .length = 9, .shuffle = false}, {});
  EXPECT_EQ(loader.samples_per_epoch(), 2u);
  const Batch batch = loader.next();
  EXPECT_EQ(batch.inputs, (std::vector<int32_t>{'a', 'b', 'c', 'd', 256, 'e', 'f', 256, 256,  //
                                                'g', 'h', 'i', 256, 256, 256, 256, 256, 256}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{-1, 'c', 'd', 256, -1, 'f', 256, -1, -1,  //
                                                 -1, 'i', 256, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 5, 8, 9, 13}));
  EXPECT_EQ(batch.loss_tokens, 7);
  expect_failure([&] { Loader(data, {.length = 8}, {}); }, ExitCode::kUsage,
                 {"max_seq_length 9", "found 8"});
}

TEST(Packed, PlainBatchesHaveOneDocumentPerRow) {
  Scratch scratch;
  put_file(scratch / "in.txt", make_text(1000, 1));
  prepare(quiet_options({scratch / "in.txt"}, scratch / "out"));
  Loader loader(TokenData::open(scratch / "out", "train"), {.rows = 3, .length = 10}, {});
  const Batch batch = loader.next();
  EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 10, 20}));
  EXPECT_EQ(batch.loss_tokens, 30);
}

// Every document comes out once and whole, whatever the packing.
TEST(Packed, NoDocumentIsLostOrDoubled) {
  Scratch scratch;
  put_file(scratch / "in.jsonl", make_rows(3000, 5));
  std::vector<std::vector<uint32_t>> wanted;
  for (const bool packing : {false, true}) {
    const fs::path folder = scratch / (packing ? "packed" : "alone");
    PrepareOptions options = packed_options(scratch / "in.jsonl", folder, 300);
    options.packing = packing;
    options.shard_tokens = 100'000;
    const PrepareResult result = prepare(options);
    const auto words = words_of(folder);
    std::vector<std::vector<uint32_t>> documents;
    for (size_t i = 0; i < words.size(); ++i) {
      if (i % 300 == 0) EXPECT_NE(words[i] & kStartFlag, 0u) << i;
      if ((words[i] & kStartFlag) != 0) documents.emplace_back();
      documents.back().push_back(words[i]);
    }
    std::erase_if(documents, [](const auto& d) { return (d[0] & kIdMask) == 256; });
    EXPECT_EQ(documents.size(), 3000u);
    EXPECT_EQ(result.documents, 3000u);
    std::sort(documents.begin(), documents.end());
    if (packing) {
      EXPECT_EQ(documents, wanted);
      EXPECT_LT(result.padding_tokens * 20, result.train_tokens);  // under 5%
      EXPECT_GT(result.shards, 2);
    }
    wanted = std::move(documents);
    EXPECT_NO_THROW(inspect(folder, true));
  }
}

TEST(Packed, WorkersAndInterruptionsDoNotChangeAByte) {
  Scratch scratch;
  for (int i = 0; i < 3; ++i)
    put_file(scratch / str("in/", i, ".jsonl"), make_rows(9000, uint64_t(i)));
  PrepareOptions options = packed_options(scratch / "in", scratch / "one", 256);
  options.shard_tokens = 200'000;
  options.val_fraction = 0.1;
  options.workers = 1;
  prepare(options);
  const auto wanted = get_folder(scratch / "one");
  options.workers = 4;
  options.output = scratch / "four";
  prepare(options);
  EXPECT_TRUE(get_folder(scratch / "four") == wanted);
  const DatasetIndex index = read_index(scratch / "one");
  EXPECT_GT(index.splits.at("train").shards.size(), 5u);
  EXPECT_GE(index.splits.at("val").shards.size(), 1u);

  // A real journal of a stop after each shard: kept lines of one that was written to the end.
  for (const size_t kept : {size_t{1}, size_t{4}}) {
    options.output = scratch / str("stopped", kept);
    const pid_t child = ::fork();
    if (child == 0) {
      set_log_level(LogLevel::kError);
      std::thread([&] {
        for (;;) {
          const std::string journal = get_file(options.output / "prepare.journal");
          if (size_t(std::count(journal.begin(), journal.end(), '\n')) > kept) ::_exit(0);
        }
      }).detach();
      prepare(options);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    prepare(options);
    EXPECT_TRUE(get_folder(options.output) == wanted) << kept;
  }
}

TEST(Packed, KnownDataSetsAreRecognised) {
  Scratch scratch;
  const auto run = [&](const std::string& row) {
    put_file(scratch / "in.jsonl", row + "\n");
    fs::remove_all(scratch / "out");
    prepare(packed_options(scratch / "in.jsonl", scratch / "out", 16));
    const std::string text = shown(words_of(scratch / "out"), 16);
    return text.substr(0, text.rfind("(."));
  };
  EXPECT_EQ(run(R"({"problem":"p","generated_solution":"s","expected_answer":"x"})"), "(pS|!");
  EXPECT_EQ(run(R"({"question":"q","answer":"a"})"), "(qA|!");
  EXPECT_EQ(run(R"({"instruction":"i","input":"","output":"o","text":"t"})"), "(iO|!");
  EXPECT_EQ(run(R"({"instruction":"i","input":"n","output":"o"})"), "(i\n\nnO|!");
  EXPECT_EQ(run(R"({"messages":[{"role":"user","content":"u"},)"
                R"({"role":"assistant","content":"a"},{"role":"user","content":"v"},)"
                R"({"role":"assistant","content":"b"}]})"),
            "(uA|!vB|!");
  EXPECT_EQ(run(R"({"conversations":[{"from":"human","value":"h"},{"from":"gpt","value":"g"}]})"),
            "(hG|!");
}

TEST(Packed, RowsThatDoNotFitAreNamed) {
  Scratch scratch;
  const auto run = [&](const std::string& rows, ExitCode code,
                       const std::vector<std::string>& words,
                       const std::string& messages_field = "") {
    put_file(scratch / "in.jsonl", rows);
    PrepareOptions options = packed_options(scratch / "in.jsonl", scratch / "out", 16);
    options.messages_field = messages_field;
    expect_failure([&] { prepare(options); }, code, words);
    fs::remove_all(scratch / "out");
  };
  const std::string good = "{\"prompt\":\"a\",\"response\":\"b\"}\n";
  run(good + "{\"prompt\":\"a\"}\n", ExitCode::kDamaged, {"in.jsonl:2", "'response'"});
  run(good + "{\"prompt\":1,\"response\":\"b\"}\n", ExitCode::kDamaged, {"in.jsonl:2", "number"});
  run("{\"messages\":[{\"role\":\"<|im_end|>\",\"content\":\"b\"}]}\n", ExitCode::kDamaged,
      {"in.jsonl:1", "role"});
  run("{\"messages\":[5]}\n", ExitCode::kDamaged, {"in.jsonl:1", "role"});
  run(good, ExitCode::kUsage, {"in.jsonl:1", "'chat'", "prompt, response"}, "chat");
  run(good, ExitCode::kUsage, {"list of messages in the field 'prompt'", "string"}, "prompt");
  run("{\"a\":\"x\",\"b\":\"y\"}\n", ExitCode::kUsage, {"a, b", "prompt_field"});
}

TEST(Packed, AShardOfAnotherLengthIsDamage) {
  Scratch scratch;
  put_file(scratch / "in.jsonl", make_rows(10, 3));
  prepare(packed_options(scratch / "in.jsonl", scratch / "out", 512));
  std::string index = get_file(scratch / "out/dataset.json");
  const auto change = [&](const std::string& from, const std::string& to) {
    std::string bad = index;
    const size_t place = bad.rfind(from);  // the options have one as well
    ASSERT_NE(place, std::string::npos) << from;
    put_file(scratch / "out/dataset.json", bad.replace(place, from.size(), to));
    expect_failure([&] { words_of(scratch / "out"); }, ExitCode::kDamaged, {"dataset.json"});
  };
  change("\"sample_length\": 512", "\"sample_length\": 256");
  change("\"sample_length\": 512", "\"sample_length\": -1");
  change("\"sample_length\": 512", "\"sample_length\": 511");
}

TEST(Packer, MemoryIsBounded) {
  Packer packer(1000, true);
  std::mt19937_64 random(1);
  const std::vector<int32_t> tokens(1000, 1);
  for (int i = 0; i < 5000; ++i) {
    packer.add(std::span(tokens).first(501 + random() % 400));  // no two fit together
    ASSERT_LE(packer.open_samples(), Packer::kMaxOpen);
  }
}

}  // namespace
}  // namespace octavo::data
