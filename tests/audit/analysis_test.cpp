// Who launched what, time on the GPU, and the verdict.

#include <gtest/gtest.h>

#include "audit/audit.h"
#include "expect_failure.h"
#include "made_trace.h"

namespace octavo::audit {
namespace {

constexpr const char* kFp8 = "nvjet_qqtst_128x256_TNT";
constexpr const char* kBf16 = "nvjet_tst_128x256_TNT";
const Json kTwoBf16 = {"c10::BFloat16", "c10::BFloat16"};

Audit audit_of(const std::vector<Json>& events) {
  const TraceFolder folder;
  return audit_traces({folder.write(events)});
}

const Time& time_of(const Audit& audit, Kind kind) {
  return audit.kinds.at(static_cast<size_t>(kind));
}

std::string verdict_of(const Audit& audit) {
  std::string text = audit.headline;
  for (const std::string& reason : audit.reasons) text += "; " + reason;
  return text;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

TEST(Union, JoinsAndMeasures) {
  const std::vector<Interval> united = union_of({{5, 9}, {1, 3}, {2, 4}, {9, 10}, {7, 7}});
  EXPECT_EQ(united, (std::vector<Interval>{{1, 4}, {5, 10}}));
  EXPECT_EQ(length_of(united), 8);
  EXPECT_EQ(overlap_of(united, {{0, 2}, {3, 6}}), 1 + 1 + 1);
  EXPECT_EQ(overlap_of({}, united), 0);
}

TEST(Attribution, GoesByExternalId) {
  const Audit audit = audit_of(
      {op("aten::mm", 0, 100, 5, {{64, 32}, {32, 16}}, kTwoBf16), kernel(kBf16, 200, 10, 77, 5)});
  ASSERT_EQ(audit.gemm_rows.size(), 1u);
  EXPECT_EQ(audit.gemm_rows[0].op, "aten::mm");
  EXPECT_EQ(audit.gemm_rows[0].shape, (GemmShape{1, 64, 16, 32}));
  EXPECT_EQ(audit.total.attribution.by_id, 1);
}

TEST(Attribution, IgnoresIdsThatRepeatTheCorrelation) {
  // The id of the kernel is that of another operation by chance: the launch says the right one.
  const Audit audit = audit_of({op("aten::transpose", 0, 5, 77), op("aten::mm", 10, 20, 5),
                                launch(15, 2, 77), kernel(kBf16, 200, 10, 77, 77)});
  ASSERT_EQ(audit.gemm_rows.size(), 1u);
  EXPECT_EQ(audit.gemm_rows[0].op, "aten::mm");
  EXPECT_TRUE(audit.files[0].attribution.ids_are_correlations);
}

TEST(Attribution, FindsTheInnermostOperationOfTheLaunchingThread) {
  Json elsewhere = op("aten::bmm", 14, 4, 9);
  elsewhere["tid"] = 2;
  const Audit audit = audit_of(
      {op("aten::linear", 10, 20, 1), op("aten::t", 11, 1, 2), op("aten::addmm", 13, 10, 3),
       elsewhere, event("python_function", "nn.Module: Linear_3", 9, 30, Json::object()),
       event("python_function", "train.py(1): step", 8, 40, Json::object()), launch(15, 2, 77),
       kernel(kBf16, 200, 10, 77)});
  ASSERT_EQ(audit.gemm_rows.size(), 1u);
  EXPECT_EQ(audit.gemm_rows[0].op, "aten::addmm");
  EXPECT_EQ(audit.gemm_rows[0].modules, std::vector<std::string>{"Linear_3"});
}

TEST(Attribution, CountsWhatHasNoParent) {
  const Audit audit = audit_of({op("aten::mm", 10, 20, 1), launch(15, 2, 77),
                                kernel(kBf16, 200, 30, 77), kernel(kBf16, 300, 10, 78)});
  EXPECT_EQ(audit.total.unattributed.calls, 1);
  EXPECT_EQ(audit.total.unattributed.ns, 10'000);
  EXPECT_TRUE(has(text_of(audit), "unattributed: 1 kernels, 25.0% of the time"));
}

TEST(Attribution, GivesKernelsOfGraphsNoOperation) {
  const Audit audit = audit_of({op("aten::mm", 10, 20, 1), launch(15, 2, 77, "cudaGraphLaunch"),
                                kernel(kBf16, 200, 30, 77), kernel(kFp8, 230, 10, 77)});
  EXPECT_EQ(audit.total.attribution.in_graphs, 2);
  EXPECT_EQ(audit.gemm_rows[0].op, "");
}

TEST(GemmShapes, ComeFromEveryKindOfOperation) {
  EXPECT_EQ(shape_of_op("aten::mm", "[[8,4],[4,2]]|"), (GemmShape{1, 8, 2, 4}));
  EXPECT_EQ(shape_of_op("aten::addmm", "[[2],[8,4],[4,2],[],[]]|"), (GemmShape{1, 8, 2, 4}));
  EXPECT_EQ(shape_of_op("aten::bmm", "[[3,8,4],[3,4,2]]|"), (GemmShape{3, 8, 2, 4}));
  EXPECT_EQ(shape_of_op("aten::linear", "[[5,8,4],[2,4],[]]|"), (GemmShape{1, 40, 2, 4}));
  // Eight rows for three experts together; their gradient; and as many rows for each.
  EXPECT_EQ(shape_of_op("aten::_grouped_mm", "[[8,4],[3,4,2],[3]]|"), (GemmShape{1, 8, 2, 4}));
  EXPECT_EQ(shape_of_op("aten::_grouped_mm", "[[4,8],[8,2],[3]]|"), (GemmShape{1, 4, 2, 8}));
  EXPECT_EQ(shape_of_op("aten::_grouped_mm", "[[3,2,4],[4,8],[3]]|"), (GemmShape{1, 2, 8, 4}));
  EXPECT_EQ(shape_of_op("aten::_grouped_mm", "[[3,8,4],[3,4,2]]|"), (GemmShape{3, 8, 2, 4}));
  EXPECT_FALSE(shape_of_op("aten::copy_", "[[8,4],[4,2]]|").is_known());
  for (const char* wrong :
       {"", "|", "[[", "[[8]]|", "[[99999999999999999999,1],[1,1]]|", "]]][[[1"})
    EXPECT_FALSE(shape_of_op("aten::mm", wrong).is_known()) << wrong;
}

TEST(GemmPrecision, TrustsTheOperationAndSaysWhenTheNameDisagrees) {
  bool disagree = false;
  const auto both = [&](Precision name, Precision op) {
    return agreed_precision(name, op, disagree);
  };
  EXPECT_EQ(both(Precision::kUnknown, Precision::kBf16), Precision::kBf16);
  EXPECT_EQ(both(Precision::k16Bit, Precision::kFp16), Precision::kFp16);
  EXPECT_EQ(both(Precision::kTf32, Precision::kFp32), Precision::kTf32);
  EXPECT_EQ(both(Precision::kFp8, Precision::kMxfp8), Precision::kMxfp8);
  EXPECT_EQ(both(Precision::kMxfp8, Precision::kFp8), Precision::kMxfp8);
  EXPECT_FALSE(disagree);
  EXPECT_EQ(both(Precision::kFp8, Precision::kBf16), Precision::kBf16);
  EXPECT_TRUE(disagree);
}

TEST(GemmPrecision, ComesFromTheTypesOfTheOperands) {
  const auto of = [](const char* types) {
    return precision_of_op("aten::_scaled_mm", str("[[8,4],[4,2]]|", types));
  };
  EXPECT_EQ(of(R"(["c10::Float8_e4m3fn","c10::Float8_e5m2","float","float"])"), Precision::kFp8);
  EXPECT_EQ(of(R"(["c10::Float8_e4m3fn","c10::Float8_e4m3fn","c10::Float8_e8m0fnu"])"),
            Precision::kMxfp8);
  EXPECT_EQ(of(R"(["c10::Float4_e2m1fn_x2","c10::Float4_e2m1fn_x2","c10::Float8_e4m3fn"])"),
            Precision::kNvfp4);
  EXPECT_EQ(of(R"(["Scalar"])"), Precision::kUnknown);
}

TEST(Audit, TimesAddUp) {
  const Audit audit = audit_of({kernel(kFp8, 0, 40, 1), kernel(kBf16, 40, 30, 2),
                                kernel("cast_transpose_general_kernel<float>", 70, 20, 3),
                                event("gpu_memset", "Memset (Device)", 90, 5, Json::object()),
                                event("gpu_memcpy", "Memcpy DtoH", 95, 5, {{"bytes", 1000}})});
  int64_t sum = 0;
  for (const Time& time : audit.kinds) sum += time.ns;
  EXPECT_EQ(sum, 100'000);
  EXPECT_EQ(audit.total.work.ns, 100'000);
  EXPECT_EQ(audit.total.busy_ns, 100'000);
  EXPECT_EQ(audit.charged.ns, 20'000);
  EXPECT_EQ(audit.low_gemm_ns(), 40'000);
}

TEST(Audit, CountsClearedMemoryOfAGemmWithIt) {
  const Audit audit =
      audit_of({op("aten::mm", 0, 9, 5), launch(1, 1, 7, "cudaMemsetAsync"), launch(3, 1, 8),
                event("gpu_memset", "Memset (Device)", 20, 1, {{"correlation", 7}}),
                kernel(kBf16, 21, 9, 8)});
  EXPECT_EQ(time_of(audit, Kind::kGemmHelper).ns, 1000);
  EXPECT_EQ(time_of(audit, Kind::kMemset).calls, 0);
  EXPECT_EQ(audit.gemm_ns(), 10'000);
}

TEST(Audit, MeasuresHiddenCollectives) {
  const char* gather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
  const Audit audit = audit_of(
      {kernel(kBf16, 0, 10, 1), kernel(gather, 5, 10, 2, -1, 20), kernel(kBf16, 30, 1, 3)});
  EXPECT_EQ(audit.total.collective_ns, 10'000);
  EXPECT_EQ(audit.total.hidden_ns, 5'000);
  EXPECT_TRUE(has(text_of(audit), "50.0% of that behind compute"));
}

TEST(Audit, TellsWhyTheGpuWaited) {
  const Audit audit =
      audit_of({launch(0, 1, 1), kernel(kBf16, 10, 10, 1), launch(30, 2, 2),
                kernel(kBf16, 40, 10, 2),                    // late: 20 of host
                launch(41, 2, 3), kernel(kBf16, 55, 10, 3),  // in time: 5 of something else
                kernel(kBf16, 70, 10, 4),                    // no launch: 5 unknown
                launch(75, 15, 8, "cudaStreamSynchronize"), launch(95, 2, 5),
                kernel(kBf16, 100, 1, 5)});  // late after a wait: 20
  EXPECT_EQ(audit.total.gaps.host, 40'000);
  EXPECT_EQ(audit.total.gaps.sync, 20'000);
  EXPECT_EQ(audit.total.gaps.queued, 5'000);
  EXPECT_EQ(audit.total.gaps.unknown, 5'000);
  EXPECT_EQ(audit.total.gaps.count, 2);
}

TEST(Verdict, NamesWhatIsLeftInBf16AndWhy) {
  const Json types = {"c10::Float8_e4m3fn", "c10::Float8_e4m3fn"};
  const Audit audit = audit_of(
      {op("aten::_scaled_mm", 0, 1, 1, {{512, 4096}, {4096, 4096}}, types),
       kernel(kFp8, 0, 41, 101, 1), op("aten::mm", 0, 1, 2, {{512, 1000}, {1000, 4096}}, kTwoBf16),
       kernel(kBf16, 50, 30, 102, 2),
       op("aten::mm", 0, 1, 3, {{512, 4096}, {4096, 128256}}, kTwoBf16),
       kernel(kBf16, 80, 29, 103, 3), kernel("quantize_mxfp8_kernel<1>", 110, 20, 104, 4)});
  const std::string verdict = verdict_of(audit);
  EXPECT_TRUE(verdict.starts_with("FP8 asked for, 41% of GEMM time in FP8: ")) << verdict;
  EXPECT_TRUE(has(verdict, "1 of 512 x 4096 x 1000 in BF16 (K = 1000 is no multiple of 16)"))
      << verdict;
  EXPECT_TRUE(has(verdict, "512 x 128256 x 4096, the output head, in BF16")) << verdict;
  EXPECT_TRUE(has(verdict, "quantizing costs 17% of GPU time")) << verdict;
}

// 64 sequences of 1024 tokens are more than GPT-2's vocabulary.
TEST(Verdict, TakesNoLargeMicroBatchForTheOutputHead) {
  const Json types = {"c10::Float8_e4m3fn", "c10::Float8_e4m3fn"};
  const Audit audit =
      audit_of({op("aten::_scaled_mm", 0, 1, 1, {{65536, 768}, {768, 3072}}, types),
                kernel(kFp8, 0, 40, 101, 1),
                op("aten::_scaled_mm", 0, 1, 2, {{65536, 3072}, {3072, 768}}, types),
                kernel(kFp8, 50, 40, 102, 2),
                op("aten::mm", 0, 1, 3, {{768, 65536}, {65536, 768}}, kTwoBf16),
                kernel(kBf16, 100, 20, 103, 3),
                op("aten::mm", 0, 1, 4, {{65536, 768}, {768, 50304}}, kTwoBf16),
                kernel(kBf16, 150, 30, 104, 4)});
  const std::string verdict = verdict_of(audit);
  EXPECT_TRUE(has(verdict, "768 x 768 x 65536 in BF16")) << verdict;
  EXPECT_TRUE(has(verdict, "65536 x 50304 x 768, the output head, in BF16")) << verdict;
}

TEST(Verdict, AdvisesAgainstLaunchGaps) {
  std::vector<Json> events;
  for (int i = 0; i < 20; ++i) {
    events.push_back(launch(100.0 * i, 5, i));
    events.push_back(kernel(kBf16, 100.0 * i + 6, 50, i));
  }
  const Audit audit = audit_of(events);
  const std::string verdict = verdict_of(audit);
  EXPECT_TRUE(has(verdict, "no FP8 kernel of any kind ran; GEMM time is BF16 100%")) << verdict;
  EXPECT_TRUE(has(text_of(audit), "FP8 was asked for? Then no layer was converted"));
  EXPECT_TRUE(has(verdict, "49% launch gaps: use CUDA graphs or compile")) << verdict;
}

TEST(Verdict, ListsUnknownGemmsAndDisputes) {
  const Audit audit = audit_of({kernel("brand_new_gemm_v9", 0, 10, 1),
                                op("aten::mm", 0, 1, 2, {{16, 16}, {16, 16}}, kTwoBf16),
                                kernel(kFp8, 20, 10, 102, 2), kernel(kFp8, 30, 10, 103, 3)});
  const std::string verdict = verdict_of(audit);
  EXPECT_TRUE(has(verdict, "1 kernels named like GEMMs that no rule knows")) << verdict;
  EXPECT_TRUE(has(verdict, "1 GEMMs whose operation and kernel name disagree")) << verdict;
  EXPECT_TRUE(has(text_of(audit), "brand_new_gemm_v9"));
}

TEST(Verdict, OfTracesWithoutKernels) {
  const TraceFolder folder;
  const Audit none = audit_traces({folder.write({op("aten::mm", 0, 1, 2)})});
  EXPECT_TRUE(has(none.headline, "no GPU work in the trace"));
  const Audit own = audit_traces({folder.write(
      "own.json", R"([{"ph":"X","pid":0,"tid":1,"ts":1,"name":"step","cat":"range","dur":9},
                      {"ph":"X","pid":0,"tid":1,"ts":2,"name":"forward","cat":"range","dur":4}])")});
  EXPECT_TRUE(has(own.headline, "octavo's own timeline"));
  ASSERT_EQ(own.ranges.size(), 2u);
  EXPECT_EQ(own.ranges[0].name, "step");
  EXPECT_EQ(own.ranges[0].self_ns, 5000);
}

TEST(Audit, JoinsRanks) {
  const TraceFolder folder;
  const fs::path a = folder.write("a.json", trace_text({kernel(kBf16, 0, 10, 1)}));
  const fs::path b = folder.write("b.json", trace_text({kernel(kBf16, 5, 20, 1)}));
  const Audit audit = audit_traces({a, b});
  EXPECT_EQ(audit.files.size(), 2u);
  ASSERT_EQ(audit.gemm_rows.size(), 1u);
  EXPECT_EQ(audit.gemm_rows[0].time.calls, 2);
  EXPECT_EQ(audit.total.work.ns, 30'000);
  EXPECT_EQ(audit.total.devices, 2u);
}

TEST(Audit, ComparesClassByClass) {
  const Audit a = audit_of({kernel(kBf16, 0, 40, 1)});
  const Audit b = audit_of({kernel(kFp8, 0, 20, 1), kernel("cast_fp8_1D_kernel<1>", 20, 5, 2)});
  const std::string text = comparison_text(a, b);
  EXPECT_TRUE(has(text, "GEMM BF16")) << text;
  EXPECT_TRUE(has(text, "GEMM FP8")) << text;
  const Json json = comparison_json(a, b);
  for (const Json& line : json["classes"])
    if (line["class"] == "all GPU work") {
      EXPECT_DOUBLE_EQ(line["a_ms"].get<double>(), 0.040);
      EXPECT_DOUBLE_EQ(line["b_ms"].get<double>(), 0.025);
    }
}

TEST(Audit, SumsOfHostileTimesDoNotWrap) {
  std::vector<Json> events;
  for (int i = 0; i < 30; ++i)
    events.push_back(Json::parse(
        R"({"ph":"X","cat":"kernel","name":"k","ts":3999999999999999,"dur":3999999999999999,)"
        R"("args":{"bytes":9223372036854775807,"device":)" +
        std::to_string(i) + "}}"));
  const Audit audit = audit_of(events);
  EXPECT_GT(audit.total.work.ns, 0);
  EXPECT_GE(audit.total.span_ns, audit.total.busy_ns);
}

}  // namespace
}  // namespace octavo::audit
