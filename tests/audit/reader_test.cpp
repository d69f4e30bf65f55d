// Files of every format, whole, cut and hostile.

#include <gtest/gtest.h>

#include "audit/trace.h"
#include "expect_failure.h"
#include "made_trace.h"

namespace octavo::audit {
namespace {

std::vector<Json> small() {
  return {op("aten::mm", 1, 10, 5, {{8, 4}, {4, 2}}, {"c10::BFloat16", "c10::BFloat16"}),
          launch(2.5, 1, 9), kernel("nvjet_tst_1_TNT", 20.125, 3.5, 9, 5),
          event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 30, 1, {{"bytes", 64}})};
}

TEST(ReadTrace, TakesAPyTorchTrace) {
  const TraceFolder folder;
  const Trace trace = read_trace(folder.write(small()));
  EXPECT_EQ(trace.format, Format::kKineto);
  EXPECT_EQ(trace.gpu, "NVIDIA H100");
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.world_size, 8);
  ASSERT_EQ(trace.work.size(), 2u);
  EXPECT_EQ(trace.work[0].begin, 20'125);
  EXPECT_EQ(trace.work[0].end, 23'625);
  EXPECT_EQ(trace.work[0].external, 5);
  EXPECT_EQ(trace.work[1].bytes, 64);
  ASSERT_EQ(trace.ops.size(), 1u);
  EXPECT_EQ(trace.names.text(trace.ops[0].shapes),
            R"([[8,4],[4,2]]|["c10::BFloat16","c10::BFloat16"])");
  EXPECT_FALSE(trace.is_cut);
}

TEST(ReadTrace, KeepsNanosecondsOfLargeTimes) {
  const TraceFolder folder;
  const Trace trace = read_trace(folder.write(
      "t.json", R"([{"ph":"X","cat":"Kernel","name":"k","ts":1740461679479712.123,"dur":0.001}])"));
  ASSERT_EQ(trace.work.size(), 1u);
  EXPECT_EQ(trace.work[0].begin, 1'740'461'679'479'712'123);
  EXPECT_EQ(trace.work[0].end - trace.work[0].begin, 1);
}

TEST(ReadTrace, TakesGzipAlsoOfSeveralMembersAndCut) {
  const TraceFolder folder;
  const std::string text = trace_text(small());
  const fs::path path = folder.write_gzip("t.json.gz", text);
  EXPECT_EQ(read_trace(path).work.size(), 2u);
  const std::string first = read_file(folder.write_gzip("a.gz", text.substr(0, 100)), 1 << 20);
  const std::string second = read_file(folder.write_gzip("b.gz", text.substr(100)), 1 << 20);
  EXPECT_EQ(read_trace(folder.write("ab.json.gz", first + second)).work.size(), 2u);
  const std::string whole = read_file(path, 1 << 20);
  const Trace cut = read_trace(folder.write("cut.gz", whole.substr(0, whole.size() - 12)));
  EXPECT_TRUE(cut.is_cut);
}

TEST(ReadTrace, ReadsACutTraceAsFarAsItGoes) {
  const TraceFolder folder;
  const std::string text = trace_text(small());
  const size_t second = text.find("gpu_memcpy");
  const Trace trace = read_trace(folder.write("cut.json", text.substr(0, second)));
  EXPECT_TRUE(trace.is_cut);
  EXPECT_EQ(trace.ops.size() + trace.work.size() + trace.launches.size(), 3u);
  // At every byte: read or refused, and never anything else.
  for (size_t size = 1; size < text.size(); size += 7) {
    try {
      EXPECT_TRUE(read_trace(folder.write("at.json", text.substr(0, size))).is_cut) << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
    }
  }
}

TEST(ReadTrace, IsLenientWithWhatProfilersWrite) {
  const TraceFolder folder;
  const Trace trace = read_trace(
      folder.write("t.json",
                   "{\"x\": NaN, \"y\": [-Infinity, {\"z\": null}], \"traceEvents\": [\n"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"a\\u00e9\\q\\\"b\",\"ts\":1,"
                   "\"dur\":2,\"args\":{\"memory bandwidth (GB/s)\": Infinity}},\n"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"no time\"},\n"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"back\",\"ts\":5,\"dur\":-2},\n"
                   "7, ]}"));
  ASSERT_EQ(trace.work.size(), 1u);
  EXPECT_EQ(trace.names.text(trace.work[0].name), "a\xc3\xa9q\"b");
  EXPECT_EQ(trace.malformed, 3);
}

TEST(ReadTrace, RefusesWhatIsNoTrace) {
  const TraceFolder folder;
  const auto refused = [&](ExitCode code, const char* part, std::string_view content) {
    const fs::path path = folder.write("x", content);
    expect_failure(code, part, [&] { read_trace(path); });
  };
  refused(ExitCode::kUsage, "is empty", "");
  refused(ExitCode::kUsage, "wanted a PyTorch profiler trace", "hello");
  refused(ExitCode::kUsage, "wanted traceEvents", "{\"a\": 1}");
  refused(ExitCode::kDamaged, "a comma", "{\"traceEvents\": [{\"ph\":\"X\"} {}]}");
  refused(ExitCode::kDamaged, "a key", "{\"traceEvents\": [{1:2}]}");
  refused(ExitCode::kDamaged, "brackets in pairs", "{\"a\": [}], \"traceEvents\": []}");
  refused(ExitCode::kDamaged, "the end of the file", "{\"traceEvents\": []} more");
  refused(ExitCode::kDamaged, "64 levels", "{\"a\": " + std::string(100, '[') + "}");
  refused(ExitCode::kDamaged, "64 levels",
          "{\"traceEvents\": [{\"args\": {\"x\": " + std::string(80, '[') + "}}]}");
  refused(ExitCode::kDamaged, "hexadecimal", "{\"\\uzzzz\": 1}");
  refused(ExitCode::kDamaged, "gzip data", "\x1f\x8b\x08 this is no gzip at all, not in any way");
  expect_failure(ExitCode::kUsage, "cannot be opened", [&] { read_trace(folder / "none.json"); });
  expect_failure(ExitCode::kUsage, "the folder", [&] { read_trace(folder.path()); });
}

TEST(ReadTrace, RefusesGzipThatInflatesBeyondMeasure) {
  const TraceFolder folder;
  std::string blanks(size_t{300} << 20, ' ');
  blanks[0] = '[';
  const fs::path path = folder.write_gzip("bomb.json.gz", blanks);
  blanks.clear();
  expect_failure(ExitCode::kDamaged, "inflate to more than", [&] { read_trace(path); });
}

TEST(ReadTrace, CutsEndlessStrings) {
  const TraceFolder folder;
  const Trace trace =
      read_trace(folder.write("t.json", R"([{"ph":"X","cat":"kernel","ts":1,"dur":1,"name":")" +
                                            std::string(3 << 20, 'n') + R"("}])"));
  ASSERT_EQ(trace.work.size(), 1u);
  EXPECT_EQ(trace.names.text(trace.work[0].name).size(), size_t{64} << 10);
}

TEST(ReadTrace, TakesOctavosOwn) {
  const TraceFolder folder;
  const Trace trace = read_trace(folder.write("own.json",
                                              R"({"otherData":{"dropped":4},"traceEvents":[
{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0"}},
{"ph":"X","pid":0,"tid":1,"ts":1.000,"name":"forward","cat":"range","dur":9.500},
{"ph":"b","pid":0,"tid":1,"ts":2.000,"name":"all-gather h.0","cat":"gather","id":"rank0-1","args":{"bytes":256}},
{"ph":"e","pid":0,"tid":2,"ts":5.250,"name":"all-gather h.0","cat":"gather","id":"rank0-1"}]})"));
  EXPECT_EQ(trace.format, Format::kOctavo);
  EXPECT_EQ(trace.dropped, 4);
  ASSERT_EQ(trace.spans.size(), 1u);
  EXPECT_EQ(trace.spans[0].bytes, 256);
  EXPECT_EQ(trace.spans[0].end - trace.spans[0].begin, 3250);
  EXPECT_EQ(trace.ranges.size(), 1u);
}

constexpr const char* kExport = R"(
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (1, 'ampere_sgemm_32x128_nn'), (2, 'cudaLaunchKernel');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT,
  streamId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 150, 0, 1, 7, 33, 16777216, 1, 1),
  (200, 260, 0, 1, 7, 33, 33554432, 1, 1), (300, 200, 0, 1, 7, 34, 16777216, 1, 1);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT,
  nameId INT);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (90, 95, 16777217, 33, 2);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, globalTid INT, text TEXT, textId INT);
INSERT INTO NVTX_EVENTS VALUES
  (80, 99, 59, 16777217, 'aten::mm, seq = 1, op_id = 2, sizes = [[8, 4], [4, 2]]', NULL);
CREATE TABLE TARGET_INFO_GPU (name TEXT);
INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H200');
)";

TEST(ReadTrace, TakesAnNsightExport) {
  const TraceFolder folder;
  const Trace trace = read_trace(folder.write_sqlite("a b?c#.sqlite", kExport));
  EXPECT_EQ(trace.format, Format::kNsight);
  EXPECT_EQ(trace.gpu, "NVIDIA H200");
  ASSERT_EQ(trace.work.size(), 2u);
  EXPECT_EQ(trace.malformed, 1);
  // One correlation id in two processes is two launches.
  EXPECT_NE(trace.work[0].correlation, trace.work[1].correlation);
  EXPECT_EQ(trace.work[0].correlation, trace.launches.at(0).correlation);
  ASSERT_EQ(trace.ops.size(), 1u);
  EXPECT_EQ(trace.names.text(trace.ops[0].name), "aten::mm");
  EXPECT_EQ(trace.names.text(trace.ops[0].shapes), "[[8,4],[4,2]]|");
}

TEST(ReadTrace, RefusesForeignAndDamagedDatabases) {
  const TraceFolder folder;
  const fs::path foreign = folder.write_sqlite("f.sqlite", "CREATE TABLE a (b INT)");
  expect_failure(ExitCode::kUsage, "without its tables", [&] { read_trace(foreign); });
  std::string bytes = read_file(folder.write_sqlite("d.sqlite", kExport), 1 << 20);
  for (size_t i = 4096; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  const fs::path damaged = folder.write("d2.sqlite", bytes);
  expect_failure(ExitCode::kDamaged, "", [&] { read_trace(damaged); });
  // A view is somebody's program: not run, as if it were not there.
  const fs::path view = folder.write_sqlite(
      "v.sqlite",
      "CREATE TABLE StringIds (id INT, value TEXT);"
      "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(start) AS (SELECT 1 "
      "UNION ALL SELECT start + 1 FROM c) SELECT start, start AS end FROM c;");
  EXPECT_EQ(read_trace(view).work.size(), 0u);
}

TEST(NameTable, HoldsEachTextOnce) {
  NameTable table;
  EXPECT_EQ(table.number(""), 0u);
  const uint32_t one = table.number("one");
  EXPECT_EQ(table.number("one"), one);
  EXPECT_EQ(table.text(one), "one");
  EXPECT_EQ(table.size(), 2u);
}

}  // namespace
}  // namespace octavo::audit
