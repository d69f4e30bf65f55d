#include <algorithm>

#include "expect_failure.h"
#include "run_report/health.h"
#include "run_report/made_run.h"

namespace octavo::run_report {
namespace {

using ContentsTest = RunFolderTest;

TEST_F(ContentsTest, AFolderWithoutARunIsRefused) {
  EXPECT_THROW(read_contents(scratch_ / "nothing"), Error);
}

TEST_F(ContentsTest, ReadsStepsEvaluationsFlagsAndTimes) {
  write("metrics.jsonl", lines(10) +
                             R"({"step":5,"val/loss":3.5,"val/tokens":9,"val/best":true})"
                             "\n"
                             R"({"step":10,"val/loss":3.75,"val/tokens":9,"val/best":false})"
                             "\n"
                             R"({"step":7,"flag":"spike","seen":"so","remedy":"that"})"
                             "\n");
  write("receipt.json", R"({"status":"done","device":"cpu","fp8":{"flops_share":0.8}})");
  write("incidents.jsonl",
        R"({"step":6,"kind":"not finite","what":"the loss","place":"h.0","cause":"fp8",)"
        R"("evidence":"e","action":"skipped"})"
        "\n");
  write("restarts.jsonl", R"({"step":4,"from":"step-00000004","time":"2026-01-01T00:00:00Z",)"
                          R"("cause":"killed: rank 1"})"
                          "\n");
  const RunContents run = read();
  EXPECT_EQ(run.step_records, 10);
  EXPECT_EQ(run.last_step, 10);
  EXPECT_EQ(run.tokens, 10'000);
  EXPECT_NEAR(run.tokens_per_second, 2000, 1e-9);
  ASSERT_TRUE(run.best.has_value());
  EXPECT_EQ(run.best->step, 5);
  EXPECT_EQ(run.incidents, 1);
  EXPECT_EQ(run.restarts, 1);
  EXPECT_EQ(run.flags, 1);
  ASSERT_EQ(run.events.size(), 3u);
  EXPECT_EQ(run.events[0].type, "restart");
  EXPECT_EQ(run.events[0].what, "resumed from step-00000004; cause: killed: rank 1");
  EXPECT_EQ(run.events[1].what, "the loss; first seen in h.0; cause: fp8 (e)");
  EXPECT_EQ(run.events[2].action, "that");
  // A step is useful for 0.4 s of its 0.5; goodput 0.4 says that as many seconds passed as steps,
  // twice: before the restart and after it.
  EXPECT_NEAR(run.time.steps, 5, 1e-9);
  EXPECT_NEAR(run.time.useful(), 4, 1e-9);
  EXPECT_NEAR(run.time.outside, 10 * 0.4 / 0.4 - 5, 1e-9);
}

TEST_F(ContentsTest, DamageIsCountedAndSaid) {
  write("metrics.jsonl", "nonsense\n" + lines(3) + R"({"step":4,"train/loss":nul)");
  write("receipt.json", "[1,2");
  write("config.yaml", "no_such_key: 3\n");
  const RunContents run = read();
  EXPECT_EQ(run.step_records, 3);
  EXPECT_EQ(run.bad_lines, 2);
  EXPECT_FALSE(run.settings.has_value());
  EXPECT_EQ(run.remarks.size(), 3u);
  EXPECT_EQ(worst_of(findings_of(run)), Level::kLook);
}

TEST_F(ContentsTest, ARunWithoutAStepStillHasAPage) {
  write("receipt.json", R"({"status":"ended by a guard: the loss of step 1 is nan"})");
  const RunContents run = read();
  const auto findings = findings_of(run);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].level, Level::kBad);
  EXPECT_NE(page_of(run).find("ended by a guard"), std::string::npos);
}

TEST_F(ContentsTest, StatisticsOfTensorsBecomeRows) {
  std::string text;
  for (int64_t i = 1; i <= 40; ++i) {
    Json record = step(i, 3);
    record["fp8/tensors"] = {tensor("h.0.c_fc", "input", 30),
                             tensor("h.0.c_fc", "grad", 5, i == 40 ? "SQNR 5 dB" : "")};
    text += record.dump() + "\n";
  }
  write("metrics.jsonl", text);
  const RunContents run = read();
  ASSERT_EQ(run.tensors.rows().size(), 2u);
  EXPECT_EQ(run.tensors.rows()[1].troubles, 1);
  EXPECT_EQ(run.tensors.buckets().size(), 40u);
  EXPECT_EQ(run.tensors.cell(1, TensorField::kSqnr, 39).mean(), 5);
  EXPECT_EQ(run.tensors.cell(0, TensorField::kScale, 0).mean(), 6);  // log2 of 64
  const auto findings = findings_of(run);
  EXPECT_TRUE(std::ranges::any_of(findings, [](const Finding& f) { return f.section == "fp8"; }));
}

TEST_F(ContentsTest, SamplesAreSpreadAndCutAtACharacter) {
  write("metrics.jsonl", lines(1));
  for (int step = 0; step <= 100; ++step)
    write(str("samples/step-", step, ".txt"), step == 100 ? std::string(3999, 'a') + "é" : "b");
  write("samples/step-x.txt", "no sample");
  const RunContents run = read();
  ASSERT_EQ(run.samples.size(), 12u);
  EXPECT_EQ(run.samples.front().step, 0);
  EXPECT_EQ(run.samples.back().step, 100);
  EXPECT_EQ(run.samples.back().text, std::string(3999, 'a'));
  EXPECT_TRUE(run.samples.back().cut);
}

TEST_F(ContentsTest, AHealthyRunHasNoFindings) {
  write("metrics.jsonl", lines(5));
  write("receipt.json", R"({"status":"done","device":"cpu","fp8":{"flops_share":0.8}})");
  EXPECT_TRUE(findings_of(read()).empty());
}

}  // namespace
}  // namespace octavo::run_report
