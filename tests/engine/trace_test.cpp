#include "engine/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "engine/range.h"
#include "expect_failure.h"
#include "scratch.h"

namespace octavo::engine::trace {
namespace {

struct Trace : testing::Test {
  Scratch folder;
  const fs::path file = folder / "trace.json";
  void TearDown() override { finish(); }

  static std::vector<Json> events_of(const fs::path& path, const std::string& phase) {
    const Json all = read_json(path);
    std::vector<Json> found;
    for (const Json& event : all["traceEvents"])
      if (event["ph"] == phase) found.push_back(event);
    return found;
  }
  std::vector<Json> events(const std::string& phase) const { return events_of(file, phase); }
};

double end_of(const Json& slice) {
  return slice["ts"].get<double>() + slice["dur"].get<double>();
}

TEST_F(Trace, OffRecordsNothingAndWritesNothing) {
  EXPECT_FALSE(is_on());
  { const Range range("before"); }
  begin("gather", "before", 1).end();
  finish();
  start(file, 0);
  EXPECT_TRUE(is_on());
  EXPECT_FALSE(fs::exists(file));  // only whole
  finish();
  EXPECT_FALSE(is_on());
  EXPECT_TRUE(events("X").empty());
  EXPECT_TRUE(events("b").empty());
  { const Range range("after"); }
  finish();
  EXPECT_TRUE(events("X").empty());
}

TEST_F(Trace, RangesNestOnTheirThread) {
  start(file, 0);
  {
    const Range step("step", 7);
    { const Range forward("forward \"quoted\"\n"); }
    std::thread([] { const Range other("elsewhere"); }).join();
  }
  finish();
  std::map<std::string, Json> slices;
  for (const Json& event : events("X")) slices[event["name"]] = event;
  ASSERT_EQ(slices.size(), 3u);
  const Json &outer = slices.at("step 7"), &inner = slices.at("forward \"quoted\"\n"),
             &other = slices.at("elsewhere");
  EXPECT_LE(outer["ts"], inner["ts"]);
  EXPECT_GE(end_of(outer), end_of(inner));
  EXPECT_EQ(outer["tid"], inner["tid"]);
  EXPECT_NE(outer["tid"], other["tid"]);
  EXPECT_EQ(outer["pid"], 0);
  std::map<int, std::string> threads;
  for (const Json& event : events("M"))
    if (event["name"] == "thread_name") threads[event["tid"]] = event["args"]["name"];
  EXPECT_EQ(threads.at(outer["tid"]), "main");
  EXPECT_TRUE(threads.contains(other["tid"]));
}

TEST_F(Trace, SpansEndOnAnyThreadAndKeepTheirBytes) {
  start(file, 3);
  Span gather = begin("gather", "all-gather layers.3", 4096);
  Span reduce = begin("reduce", "reduce-scatter layers.3", 8192);
  std::thread([moved = std::move(gather)]() mutable {
    moved.end();
    moved.end();  // once is enough
  }).join();
  Span hung = begin("other", "barrier", 0);
  reduce = Span();  // ends what it was
  finish();
  hung.end();  // too late, and harmless
  const fs::path mine = folder / "trace-rank3.json";
  EXPECT_FALSE(fs::exists(file));
  const auto begun = events_of(mine, "b"), ended = events_of(mine, "e");
  ASSERT_EQ(begun.size(), 3u);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(begun[0]["cat"], "gather");
  EXPECT_EQ(begun[0]["name"], "all-gather layers.3");
  EXPECT_EQ(begun[0]["args"]["bytes"], 4096);
  EXPECT_EQ(begun[0]["pid"], 3);
  EXPECT_NE(begun[0]["id"], begun[1]["id"]);
  for (size_t i = 0; i < 2; ++i) {
    for (const char* field : {"id", "cat", "name"}) EXPECT_EQ(begun[i][field], ended[i][field]);
    EXPECT_LE(begun[i]["ts"], ended[i]["ts"]);
  }
  EXPECT_NE(ended[0]["tid"], begun[0]["tid"]);
}

TEST_F(Trace, ASpanOfAnEarlierFileIsNotInTheNext) {
  start(file, 0);
  Span early = begin("other", "early", 1);
  finish();
  start(file, 0);
  early.end();
  finish();
  EXPECT_TRUE(events("e").empty());
}

TEST_F(Trace, BeyondItsBoundEventsAreCountedAndSpansStayWhole) {
  start(file, 0);
  Span open = begin("gather", "first", 1);
  for (int64_t i = 0; i < kMostEvents - 3; ++i) add_slice(number_of_name("many"), now_ns());
  begin("gather", "has no room for both its ends", 1).end();
  { const Range last("fits"); }
  { const Range beyond("beyond"); }
  open.end();
  finish();
  const std::string text = read_file(file, size_t{1} << 30);
  std::map<std::string, int64_t> counts;
  for (size_t at = 0; (at = text.find(R"("ph":")", at)) != std::string::npos; ++at)
    ++counts[text.substr(at + 6, 1)];
  EXPECT_NE(text.find(R"("dropped":3})"), std::string::npos);
  EXPECT_EQ(counts["b"], 1);
  EXPECT_EQ(counts["e"], 1);
  EXPECT_EQ(counts["X"], kMostEvents - 2);
  EXPECT_NE(text.find("fits"), std::string::npos);
  EXPECT_EQ(text.find("has no room"), std::string::npos);
  EXPECT_EQ(text.find("beyond"), std::string::npos);
}

TEST_F(Trace, AFileThatCannotBeWrittenIsRefusedAtTheStart) {
  write_file_atomic(folder / "file", "no folder");
  EXPECT_ANY_THROW(start(folder / "file" / "trace.json", 0));
  EXPECT_FALSE(is_on());
  start(folder / "new" / "trace.json", 0);  // folders are made
  expect_failure(ExitCode::kUsage, "is being recorded", [&] { start(file, 0); });
  finish();
  EXPECT_TRUE(fs::exists(folder / "new" / "trace.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "new"), fs::directory_iterator()), 1);
}

TEST_F(Trace, FilesOfRanks) {
  EXPECT_EQ(file_of_rank("a/trace.json", 0), "a/trace.json");
  EXPECT_EQ(file_of_rank("a/trace.json", 12), "a/trace-rank12.json");
  EXPECT_EQ(file_of_rank("trace", 1), "trace-rank1");
}

}  // namespace
}  // namespace octavo::engine::trace
