// Text to shards: what becomes a document, where the validation split begins, and that the number
// of workers does not matter.

#include "data/prepare.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/log.h"
#include "data/dataset_index.h"
#include "data/token_data.h"
#include "data/units.h"
#include "helpers.h"

namespace octavo::data {
namespace {

fs::path shared_data() {
  const char* given = std::getenv("OCTAVO_TEST_DATA");
  if (given != nullptr) return given;
  for (fs::path at = fs::current_path(); at != at.root_path(); at = at.parent_path())
    if (fs::exists(at / "../shared/data")) return at / "../shared";
  return {};
}

TEST(Prepare, TinyshakespeareSplitsAsUsual) {
  const fs::path text_path = shared_data() / "data/text/tinyshakespeare.txt";
  if (!fs::exists(text_path)) {
    const char* ci = std::getenv("CI");
    ASSERT_FALSE(ci != nullptr && std::string(ci) == "true") << "missing " << text_path;
    GTEST_SKIP() << "no tinyshakespeare.txt; set OCTAVO_TEST_DATA";
  }
  Scratch scratch;
  const PrepareResult result = prepare(quiet_options({text_path}, scratch / "out"));
  EXPECT_EQ(result.train_tokens, 1'003'854u);
  EXPECT_EQ(result.val_tokens, 111'540u);
  EXPECT_EQ(result.documents, 1u);
  EXPECT_EQ(result.bytes, 1'115'394u);
  EXPECT_EQ(split_text(scratch / "out", "train") + split_text(scratch / "out", "val"),
            get_file(text_path));
}

TEST(Prepare, SeveralDocumentsSplitAtADocument) {
  Scratch scratch;
  for (int i = 0; i < 10; ++i) put_file(scratch / str("in/", i, ".txt"), std::string(100, 'a' + i));
  PrepareOptions options = quiet_options({scratch / "in"}, scratch / "out");
  options.val_fraction = 0.25;  // byte 750 is inside document 7: it stays whole
  const PrepareResult result = prepare(options);
  EXPECT_EQ(result.train_tokens, 808u);
  EXPECT_EQ(result.documents, 10u);
  EXPECT_EQ(split_text(scratch / "out", "val"),
            std::string(100, 'i') + "|" + std::string(100, 'j'));
  EXPECT_EQ(split_text(scratch / "out", "train").substr(701),
            "ggggg|" + std::string(100, 'h') + "|");
}

TEST(Prepare, TheLastDocumentIsCutWhenTheSplitFallsInsideIt) {
  Scratch scratch;
  put_file(scratch / "a.txt", std::string(100, 'a'));
  put_file(scratch / "b.txt", std::string(50, 'b') + std::string(50, 'c'));
  PrepareOptions options = quiet_options({scratch / "a.txt", scratch / "b.txt"}, scratch / "out");
  options.val_fraction = 0.1;
  prepare(options);
  EXPECT_EQ(split_text(scratch / "out", "val"), std::string(20, 'c'));
  EXPECT_EQ(split_text(scratch / "out", "train").size(), 181u);
  put_file(scratch / "c.jsonl", "{\"text\": \"aaaa\"}\n{\"text\": \"bbbbbbbbbb\"}\n\n \n");
  options.inputs = {scratch / "c.jsonl"};
  options.output = scratch / "jsonl";
  options.val_fraction = 0.5;
  prepare(options);
  const std::string val = split_text(scratch / "jsonl", "val");
  EXPECT_EQ(split_text(scratch / "jsonl", "train") + val, "aaaa|bbbbbbbbbb");
  EXPECT_TRUE(!val.empty() && val.size() < 10) << val;
}

TEST(Prepare, WithoutValidationThereIsNoSuchSplit) {
  Scratch scratch;
  put_file(scratch / "a.txt", "hello");
  PrepareOptions options = quiet_options({scratch / "a.txt"}, scratch / "out");
  options.val_fraction = 0;
  prepare(options);
  EXPECT_EQ(split_text(scratch / "out", "train"), "hello");
  expect_failure([&] { TokenData::open(scratch / "out", "val"); }, ExitCode::kUsage,
                 {"'val'", "train", "val_fraction"});
}

TEST(Prepare, FoldersAreReadSortedAndSkipsAreLeftOut) {
  Scratch scratch;
  put_file(scratch / "in/b.txt", "B");
  put_file(scratch / "in/a/z.cpp", "Z");
  put_file(scratch / "in/c.jsonl", "{\"text\":\"C1\"}\r\n\n{\"text\":\"\"}\n{\"text\":\"C2\"}");
  put_file(scratch / "in/d.md", "D");
  put_file(scratch / "in/binary.txt", std::string("x\0y", 3));
  put_file(scratch / "in/empty.txt", "");
  put_file(scratch / "in/.git/config", "hidden");
  put_file(scratch / "in/.env", "TOKEN=secret");
  put_file(scratch / "in/build/x.txt", "built");
  PrepareOptions options = quiet_options({scratch / "in"}, scratch / "in/out");
  put_file(scratch / "in/out/old.txt", "in the output folder");
  options.val_fraction = 0;
  const PrepareResult result = prepare(options);
  EXPECT_EQ(split_text(scratch / "in/out", "train"), "Z|B|C1|C2|D");
  EXPECT_EQ(result.documents, 5u);
  const std::string sources = get_file(scratch / "in/out/sources.jsonl");
  EXPECT_NE(sources.find("\"in/a/z.cpp\""), std::string::npos);
  EXPECT_EQ(sources.find((scratch / "in").string()), std::string::npos);  // no machine's folders
}

TEST(Prepare, JsonlErrorsNameFileAndLine) {
  Scratch scratch;
  const auto run = [&](const std::string& bad, const std::vector<std::string>& words) {
    put_file(scratch / "in.jsonl", "{\"text\": \"fine\"}\n\n" + bad + "\n{\"text\": \"fine\"}\n");
    std::vector<std::string> all = words;
    all.push_back("in.jsonl:3");
    expect_failure([&] { prepare(quiet_options({scratch / "in.jsonl"}, scratch / "out")); },
                   ExitCode::kDamaged, all);
    EXPECT_FALSE(fs::exists(scratch / "out/dataset.json"));
  };
  run("{\"text\": \"cut", {"JSON"});
  run("{\"body\": \"x\"}", {"'text'", "no such field"});
  run("{\"text\": 5}", {"'text'", "number"});
  run("[\"text\"]", {"array"});
  run("{\"text\": \"\xff\"}", {"JSON"});
}

TEST(Prepare, AKeyThatNamesNoFieldIsAMistakeOfTheUser) {
  Scratch scratch;
  put_file(scratch / "in.jsonl", "{\"id\": 5, \"body\": \"x\"}\n{\"id\": 6, \"body\": \"y\"}\n");
  const auto run = [&](auto change, const std::vector<std::string>& words) {
    PrepareOptions options = quiet_options({scratch / "in.jsonl"}, scratch / "out");
    change(options);
    std::vector<std::string> all = words;
    all.push_back("body, id");
    expect_failure([&] { prepare(options); }, ExitCode::kUsage, all);
  };
  run([](auto& o) { o.text_field = "content"; }, {"'content'", "no such field", "set text_field"});
  run([](auto& o) { o.text_field = "id"; }, {"'id'", "number", "set text_field"});
  run([](auto& o) { o.prompt_field = "body", o.response_field = "answer"; },
      {"'answer'", "set response_field"});
  run([](auto& o) { o.messages_field = "body"; }, {"list of messages", "set messages_field"});
  run([](auto&) {}, {"text_field"});
  PrepareOptions options = quiet_options({scratch / "in.jsonl"}, scratch / "out");
  options.text_field = "body";
  EXPECT_EQ(prepare(options).documents, 2u);
  // Another row that lacks it is damage, of that row.
  put_file(scratch / "in.jsonl", "{\"body\": \"x\"}\n{\"id\": 6}\n");
  options.output = scratch / "other";
  expect_failure([&] { prepare(options); }, ExitCode::kDamaged, {"in.jsonl:2", "'body'"});
}

TEST(Prepare, ALineNumberHoldsBehindManyBatches) {
  Scratch scratch;
  std::string lines;
  int count = 1;
  while (lines.size() < (9u << 20)) {
    lines += "{\"text\": \"" + std::string(5000, 'x') + "\"}\n";
    ++count;
  }
  put_file(scratch / "in.jsonl", lines + "oops\n" + lines.substr(0, 6000) + "\n");
  PrepareOptions options = quiet_options({scratch / "in.jsonl"}, scratch / "out");
  options.workers = 3;
  expect_failure([&] { prepare(options); }, ExitCode::kDamaged, {str("in.jsonl:", count, ":")});
}

TEST(Prepare, WrongUseIsRefused) {
  Scratch scratch;
  put_file(scratch / "a.txt", "hello");
  put_file(scratch / "only.bin", std::string(10, '\0'));
  const auto run = [&](auto change, const std::vector<std::string>& words) {
    PrepareOptions options = quiet_options({scratch / "a.txt"}, scratch / "out");
    change(options);
    expect_failure([&] { prepare(options); }, ExitCode::kUsage, words);
  };
  run([](auto& o) { o.inputs.clear(); }, {"input"});
  run([](auto& o) { o.val_fraction = 1; }, {"val_fraction"});
  run([](auto& o) { o.shard_tokens = 0; }, {"shard_tokens"});
  run([](auto& o) { o.workers = -1; }, {"workers"});
  run([&](auto& o) { o.inputs = {scratch / "none.txt"}; }, {"none.txt"});
  run([&](auto& o) { o.inputs = {scratch / "only.bin"}; }, {"found none"});
  run([&](auto& o) { o.output = scratch / "a.txt"; }, {"both"});
}

TEST(Prepare, TheNumberOfWorkersDoesNotChangeAByte) {
  Scratch scratch;
  for (uint64_t i = 0; i < 40; ++i)
    put_file(scratch / str("in/part", i % 3, "/", i, ".txt"), make_text(1000 + i * 3777, i));
  put_file(scratch / "in/part1/rows.jsonl", make_jsonl(7 << 20, 99));
  std::map<std::string, std::string> serial;
  for (const int workers : {1, 4}) {
    const fs::path output = scratch / str("out", workers);
    PrepareOptions options = quiet_options({scratch / "in"}, output);
    options.workers = workers;
    options.shard_tokens = 1'234'567;
    prepare(options);
    auto files = get_folder(output);
    EXPECT_GE(files.size(), 8u);
    if (workers == 1)
      serial = std::move(files);
    else
      EXPECT_TRUE(files == serial);
  }
}

TEST(Prepare, AFinishedFolderIsKeptAndAnotherDataSetRefused) {
  Scratch scratch;
  put_file(scratch / "a.txt", make_text(5000, 1));
  PrepareOptions options = quiet_options({scratch / "a.txt"}, scratch / "out");
  options.shard_tokens = 1000;
  const PrepareResult first = prepare(options);
  EXPECT_EQ(first.shards_reused, 0);
  const auto files = get_folder(scratch / "out");
  options.workers = 3;
  const PrepareResult again = prepare(options);
  EXPECT_EQ(again.shards_reused, first.shards);
  EXPECT_EQ(again.train_tokens, first.train_tokens);
  EXPECT_EQ(get_folder(scratch / "out"), files);
  options.val_fraction = 0.2;
  expect_failure([&] { prepare(options); }, ExitCode::kUsage,
                 {"other options", "delete the folder"});
  options.val_fraction = 0.1;
  put_file(scratch / "a.txt", make_text(5000, 2));
  expect_failure([&] { prepare(options); }, ExitCode::kUsage, {"other inputs"});
  EXPECT_EQ(get_folder(scratch / "out"), files);
}

TEST(Prepare, InspectDescribesTheData) {
  Scratch scratch;
  put_file(scratch / "a.txt", "First Citizen:\nBefore we proceed" + make_text(5000, 1));
  prepare(quiet_options({scratch / "a.txt"}, scratch / "out"));
  const std::string text = inspect(scratch / "out", true);
  const DatasetIndex index = read_index(scratch / "out");
  for (const std::string& word :
       {std::string("bytes (257 ids, u16"), std::string("First Citizen:\\nBefore we"),
        index.fingerprint(), std::string("train-00000.tok"),
        index.splits.at("val").shards[0].hash_text(), std::string("  ok\n")})
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
  EXPECT_NO_THROW(inspect(scratch / "out", false));
  fs::resize_file(scratch / "out/train-00000.tok", 5000);
  expect_failure([&] { inspect(scratch / "out", false); }, ExitCode::kDamaged,
                 {"train-00000.tok", "found 5000"});
  fs::remove(scratch / "out/train-00000.tok");
  expect_failure([&] { inspect(scratch / "out", false); }, ExitCode::kDamaged,
                 {"train-00000.tok", "missing"});
}

std::vector<Unit> all_units(const std::vector<Source>& sources, UnitPosition start,
                            UnitLimits limits) {
  UnitReader reader(sources, start, limits);
  std::vector<Unit> units;
  while (auto unit = reader.next()) units.push_back(std::move(*unit));
  return units;
}

TEST(Units, LargeInputsAreCutAtLinesAndTakenUpAnywhere) {
  Scratch scratch;
  put_file(scratch / "a.txt", make_text(50'000, 1));
  put_file(scratch / "b.jsonl", make_jsonl(50'000, 2));
  std::string unbroken;
  for (int i = 0; i < 3000; ++i) unbroken += "🐳é";
  put_file(scratch / "c.txt", unbroken);
  const auto sources =
      list_sources({scratch / "a.txt", scratch / "b.jsonl", scratch / "c.txt"}, scratch / "out");
  const UnitLimits limits{
      .text_bytes = 1500, .part_bytes = 1000, .batch_bytes = 700, .line_bytes = 8000};
  set_log_level(LogLevel::kError);  // each cut without a line end is said
  const auto units = all_units(sources, {}, limits);
  std::string texts[3];
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit& unit = units[i];
    const std::string& file = texts[unit.start.file] += unit.text;
    EXPECT_EQ(unit.ends_file, file.size() == sources[unit.start.file].bytes);
    if (unit.start.file < 2 && !unit.ends_file) EXPECT_EQ(unit.text.back(), '\n');
    EXPECT_NE(static_cast<unsigned char>(unit.text.front()) & 0xc0, 0x80);  // a whole character
    if (i % 10 == 0) {
      const auto rest = all_units(sources, unit.start, limits);
      ASSERT_EQ(rest.size(), units.size() - i);
      EXPECT_EQ(rest.back().text, units.back().text);
      EXPECT_EQ(rest[0].text, unit.text);
      if (rest.size() > 1) EXPECT_EQ(rest[1].start.line, units[i + 1].start.line);
    }
  }
  set_log_level(LogLevel::kInfo);
  for (size_t file = 0; file < 3; ++file) EXPECT_EQ(texts[file], get_file(sources[file].path));
  EXPECT_GT(units.size(), 80u);
}

TEST(Units, ALineBeyondTheLimitIsRefusedByName) {
  Scratch scratch;
  put_file(scratch / "a.jsonl", "{}\n{\"text\": \"" + std::string(5000, 'x') + "\"}\n");
  const auto sources = list_sources({scratch / "a.jsonl"}, scratch / "out");
  expect_failure([&] { all_units(sources, {}, {.batch_bytes = 500, .line_bytes = 2000}); },
                 ExitCode::kDamaged, {"a.jsonl:2", "2000"});
}

TEST(Units, AFileThatChangesUnderwayIsRefused) {
  Scratch scratch;
  put_file(scratch / "a.txt", "before");
  const auto sources = list_sources({scratch / "a.txt"}, scratch / "out");
  put_file(scratch / "a.txt", "and after");
  expect_failure([&] { all_units(sources, {}, {}); }, ExitCode::kUsage, {"changed"});
}

// By one of the same size, which an object on a server can be at any moment.
TEST(Units, AFileThatIsReplacedBetweenTwoReadsIsRefused) {
  Scratch scratch;
  const std::string rows = make_jsonl(20'000, 1);
  const auto replace = [&](const char* name, UnitPosition end) {
    const fs::path path = scratch / name;
    put_file(path, rows);
    const auto sources = list_sources({path}, scratch / "out");
    UnitReader reader(sources, {}, {.batch_bytes = 700}, {}, end);
    ASSERT_TRUE(reader.next().has_value());
    put_file(path, rows);
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1));
    const auto read_rest = [&] {
      while (reader.next()) {
      }
    };
    expect_failure(read_rest, ExitCode::kUsage, {name, "changed", "another date"});
  };
  const UnitPosition whole{.file = UINT64_MAX}, half{.offset = rows.find('\n', 10'000) + 1};
  replace("a.jsonl", whole);
  replace("a.jsonl", half);
  replace("a.json", whole);
}

}  // namespace
}  // namespace octavo::data
