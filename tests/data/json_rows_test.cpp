// JSON files as rows: the same as JSON lines, at any cut, and damage is named.

#include "data/json_rows.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "data/token_data.h"
#include "data/units.h"
#include "helpers.h"

namespace octavo::data {
namespace {

std::string rows_of(const fs::path& path, uint64_t batch_bytes) {
  const auto sources = list_sources({path}, path.parent_path() / "out");
  UnitReader reader(sources, {}, {.batch_bytes = batch_bytes});
  std::string lines;
  while (const auto unit = reader.next()) lines += unit->text;
  return lines;
}

TEST(JsonRows, ArraysAndSequencesAreTheirElements) {
  Scratch scratch;
  const auto expect = [&](const std::string& json, const std::string& lines) {
    put_file(scratch / "a.json", json);
    EXPECT_EQ(rows_of(scratch / "a.json", 1), lines) << json;
  };
  expect("[]", "");
  expect(" [ ]\n", "");
  expect("[1]", "1\n");
  expect("[\"a]\", \"b\\\"]\"\n]\n", "\"a]\"\n\"b\\\"]\"\n");
  expect("\xef\xbb\xbf[{\"a\":\n[1,\r\n{}]}\n,null]", "{\"a\": [1,  {}]}\nnull\n");
  expect("{\"a\":1}\n{\"b\":\"}\"}", "{\"a\":1}\n{\"b\":\"}\"}\n");
  expect("{\n \"a\": 1\n}\n", "{  \"a\": 1 }\n");
}

TEST(JsonRows, UnitsCanBeTakenUpAnywhere) {
  Scratch scratch;
  Json array = Json::array();
  for (uint64_t i = 0; i < 2000; ++i) array.push_back({{"text", make_text(700 + i % 1500, i)}});
  put_file(scratch / "a.json", array.dump(1));
  std::string lines;
  for (const Json& row : array) lines += row.dump() + "\n";
  put_file(scratch / "a.jsonl", lines);
  const auto sources = list_sources({scratch / "a.json"}, scratch / "out");
  EXPECT_GT(sources[0].bytes, uint64_t{2} << 20);  // more than one window
  std::vector<Unit> units;
  UnitReader reader(sources, {}, {.batch_bytes = 100'000});
  uint64_t bytes = 0;
  while (auto unit = reader.next()) {
    bytes += unit->source_bytes;
    units.push_back(std::move(*unit));
  }
  EXPECT_EQ(bytes, sources[0].bytes);
  EXPECT_GT(units.size(), 10u);
  EXPECT_EQ(units.back().places.back().end, sources[0].bytes);
  for (size_t i = 0; i < units.size(); i += 3) {
    UnitReader again(sources, units[i].start, {.batch_bytes = 100'000});
    for (size_t j = i; j < std::min(i + 2, units.size()); ++j) {
      const auto unit = again.next();
      ASSERT_TRUE(unit);
      EXPECT_EQ(unit->text, units[j].text);
      EXPECT_EQ(unit->start.line, units[j].start.line);
    }
  }
  for (const std::string name : {"a.json", "a.jsonl"}) {
    PrepareOptions options = quiet_options({scratch / name}, scratch / ("out-" + name));
    options.val_fraction = 0;
    options.shard_tokens = 300'000;
    prepare(options);
  }
  for (const char* shard : {"train-00000.tok", "train-00003.tok"})
    EXPECT_TRUE(get_file(scratch / "out-a.json" / shard) ==
                get_file(scratch / "out-a.jsonl" / shard));
}

TEST(JsonRows, InAFolderOnlyWhatLooksLikeRowsIsRows) {
  Scratch scratch;
  put_file(scratch / "in/a.json", "[\"one\", \"two\"]");
  put_file(scratch / "in/b.json", "{\"text\": \"three\"}\n{\"text\": \"four\"}\n");
  put_file(scratch / "in/package.json", "{\n\"name\": \"x\"\n}\n");
  put_file(scratch / "in/small.json", "{\"name\": 1}");
  put_file(scratch / "in/numbers.json", "[1, 2]");
  std::string formats;
  for (const Source& source : list_sources({scratch / "in"}, scratch / "out"))
    formats += source.format == SourceFormat::kJson ? 'r' : 't';
  EXPECT_EQ(formats, "rrttt");  // a, b, numbers, package, small
  EXPECT_EQ(list_sources({scratch / "in/small.json"}, scratch / "out")[0].format,
            SourceFormat::kJson);
}

TEST(JsonRows, DamageIsNamed) {
  Scratch scratch;
  const auto expect = [&](const std::string& json, const std::string& word) {
    put_file(scratch / "a.json", json);
    expect_failure([&] { rows_of(scratch / "a.json", 1000); }, ExitCode::kDamaged,
                   {"a.json", word});
  };
  expect("[1, 2", "row 2");
  expect("[1 2]", "comma");
  expect("[1,]", "value");
  expect("[1] x", "end of the file");
  expect("[] x", "end of the file");
  expect("[\"abc", "string");
  expect("[\"a\nb\"]", "control");
  expect("[{\"a\": 1", "ends inside");
  expect("[1}]", "comma");
  put_file(scratch / "b.json", "[\"" + std::string(5000, 'x') + "\"]");
  const auto sources = list_sources({scratch / "b.json"}, scratch / "out");
  UnitReader reader(sources, {}, {.batch_bytes = 100, .line_bytes = 2000});
  expect_failure([&] { reader.next(); }, ExitCode::kDamaged, {"b.json", "2000"});
}

}  // namespace
}  // namespace octavo::data
