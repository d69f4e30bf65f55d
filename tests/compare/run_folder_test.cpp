#include "compare/run_folder.h"

#include <gtest/gtest.h>

#include "compare/synthetic_run.h"
#include "expect_failure.h"

namespace octavo::compare {
namespace {

class RunFolderTest : public ScratchTest {};

TEST_F(RunFolderTest, ReadsWhatTrainWrites) {
  SyntheticRun made{.name = "fp8", .precision = "FP8 rehearsal"};
  made.settings = "seed: 7\nuse_fp8: true\nfp8_recipe: current\nmax_steps: 400\n";
  const fs::path folder = make_run(folder_, made);
  fs::create_directories(folder / "samples");
  write_file_atomic(folder / "samples/step-9.txt", "early");
  write_file_atomic(folder / "samples/step-300.txt", "late");
  write_file_atomic(folder / "samples/step-x.txt", "no");
  const RunFolder run = read_run(folder);
  EXPECT_EQ(run.steps.size(), 400u);
  EXPECT_EQ(run.evaluations.size(), 20u);
  EXPECT_EQ(run.steps.at(400).tokens, 400 * 512);
  EXPECT_EQ(run.peak_bytes, 1e6);
  EXPECT_EQ(run.label(), "FP8 rehearsal, current");
  EXPECT_EQ(run.name(), "fp8");
  EXPECT_TRUE(run.on_cpu());
  EXPECT_EQ(run.fp8_share, 0.75);
  EXPECT_EQ(run.sample, "late");
  EXPECT_EQ(run.sample_step, 300);
  EXPECT_EQ(run.wanted_steps(), 400);
  EXPECT_TRUE(run.remarks.empty());
}

TEST_F(RunFolderTest, BadLinesAreCountedAndSaid) {
  const fs::path folder = make_run(folder_, {.name = "run", .steps = 10, .eval_freq = 0});
  std::string text = read_file(folder / "metrics.jsonl", 1 << 20);
  text += "{\"step\":11,\"train/loss\":1.5\n";                            // cut short
  text += "[1, 2]\n";                                                     // no object
  text += "{\"step\":-4,\"train/loss\":1}\n";                             // no step of a run
  text += "{\"step\":\"12\",\"train/loss\":1}\n";                         // no number
  text += "{\"step\":13,\"something\":1}\n";                              // nothing that we know
  text += std::string(100000, '[') + "\n";                                // deep
  text += std::string((16 << 20) + 5, 'x') + "\n";                        // long
  text += "{\"step\":18446744073709551615,\"train/loss\":1}\n";           // beyond
  text += "{\"step\":10,\"train/loss\":null}\n";                          // again, not finite
  text += "{\"step\":11,\"train/loss\":1e999,\"perf/step_seconds\":-1}";  // no number of JSON
  write_file_atomic(folder / "metrics.jsonl", text);
  const RunFolder run = read_run(folder);
  EXPECT_EQ(run.bad_lines, 9);
  EXPECT_EQ(run.repeated_steps, 1);
  EXPECT_EQ(run.lost_losses, 1);
  EXPECT_EQ(run.steps.size(), 10u);
  EXPECT_EQ(run.remarks.size(), 3u);
}

TEST_F(RunFolderTest, MissingPartsAreSaid) {
  const fs::path folder = make_run(folder_, {.name = "run", .steps = 5});
  fs::remove(folder / "receipt.json");
  write_file_atomic(folder / "config.yaml", "no_such_key: 1\n");
  const RunFolder run = read_run(folder);
  EXPECT_FALSE(run.settings.has_value());
  EXPECT_EQ(run.remarks.size(), 2u);
  expect_failure(ExitCode::kUsage, "metrics.jsonl", [&] { read_run(folder_); });
  write_file_atomic(folder / "metrics.jsonl", "\n\nnothing\n");
  expect_failure(ExitCode::kDamaged, "found none", [&] { read_run(folder); });
}

}  // namespace
}  // namespace octavo::compare
