#include "sweep/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"

namespace octavo::sweep {
namespace {

TEST(Ranks, EqualValuesShareTheirMean) {
  EXPECT_EQ(ranks_of({3, 1, 3, 2}), (std::vector<double>{3.5, 1, 3.5, 2}));
}

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    folder_ = fs::temp_directory_path() / str("octavo-sweep-report-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    SweepPlan plan{.source = "s.yaml",
                   .yaml =
                       "name: \"<b>&\"\nparameters:\n  seed: {values: [1, 2, 3, 4]}\n"
                       "  mixed_precision: {values: [bf16, fp32]}\n  batch_size: {value: 8}\n",
                   .folder = folder_.string(),
                   .runs_dir = "runs",
                   .id = "abcdef"};
    Store::create(folder_ / "s.db", plan);
  }
  ~ReportTest() override { fs::remove_all(folder_); }

  // The loss falls with the seed; precision has nothing to do with it. The last trial fails.
  Report report() {
    Store store(folder_ / "s.db");
    while (const auto trial = store.claim("a/b/c/1/2", 1e9).trial) {
      if (trial->number == 8)
        store.finish(*trial, {.state = TrialState::kFailed, .reason = "<script>"});
      else
        store.finish(*trial, {.state = TrialState::kFinished,
                              .metric = 5 - std::stod(trial->values[0]) +
                                        1e-3 * static_cast<double>(trial->number)});
    }
    return report_of(store);
  }

  fs::path folder_;
};

TEST_F(ReportTest, TheBestIsFirstAndImportanceFollowsTheMetric) {
  const Report r = report();
  ASSERT_TRUE(r.has_best);
  EXPECT_EQ(r.trials.front().number, 7);  // seed 4, the first of its two
  EXPECT_EQ(r.trials.back().state, TrialState::kFailed);
  ASSERT_EQ(r.importance.size(), 2u);
  EXPECT_EQ(r.importance[0].parameter, "seed");
  EXPECT_LT(r.importance[0].correlation, -0.9);
  EXPECT_EQ(r.importance[1].parameter, "mixed_precision");
  EXPECT_LT(r.importance[1].correlation, 0.5);
}

TEST_F(ReportTest, TextAndJsonHaveEveryTrial) {
  const Report r = report();
  const std::string text = report_text(r);
  EXPECT_NE(text.find("best: trial 7"), std::string::npos) << text;
  EXPECT_NE(text.find("8 of 8 trials ended: 7 finished, 0 stopped early, 1 failed"),
            std::string::npos);
  const auto json = report_json(r);
  EXPECT_EQ(json["best"], 7);
  EXPECT_EQ(json["trials"].size(), 8u);
  EXPECT_EQ(json["trials"][0]["parameters"]["seed"], "4");
  EXPECT_TRUE(json["trials"][7]["value"].is_null());
}

TEST_F(ReportTest, ThePageIsOneFileInWhichNothingIsMarkupOfOthers) {
  const std::string html = report_html(report());
  EXPECT_NE(html.find("&lt;b&gt;&amp;"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("http://", html.find("<body") + 1), html.find("http://www.w3.org/2000/svg"));
  size_t curves = 0;
  for (size_t at = 0; (at = html.find("<path ", at)) != std::string::npos; ++at) ++curves;
  EXPECT_EQ(curves, 7u);
}

TEST_F(ReportTest, TheBestTrialsAreDrawnAsTheyRan) {
  const Report r = report();
  EXPECT_EQ(report_html(r).find("as they ran"), std::string::npos) << "their files are gone";
  const fs::path folder = run_folder(r.plan, r.trials.front());
  fs::create_directories(folder);
  write_file_atomic(folder / "metrics.jsonl",
                    str("{\"step\":10,\"", r.definition.metric, "\":4.5}\n{\"step\":20,\"",
                        r.definition.metric, "\":3.25}\n"));
  const std::string html = report_html(r);
  EXPECT_NE(html.find("as they ran"), std::string::npos);
  EXPECT_NE(
      html.find(str("records of ", r.definition.metric, " 2, ", r.definition.metric, " 3.25")),
      std::string::npos);
}

}  // namespace
}  // namespace octavo::sweep
