#include "train/reporting/summary.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"
#include "scratch.h"
#include "train/reporting/restart_ledger.h"
#include "train/reporting/start_lines.h"

namespace octavo::train {
namespace {

RunSummary usual_summary() {
  RunSummary s;
  s.steps = 800;
  s.seconds = 1270;
  s.step_seconds = 1250;
  s.tokens = 1'228'800;
  s.peak_bytes = 61.2e6;
  s.precision = "FP8 rehearsal";
  s.fp8_backend = "rehearsal";
  s.fp8_share = 0.8807;
  s.last_loss = 2.023323;
  s.best_val_loss = 2.726124;
  s.best_step = 750;
  s.folder = "runs/quickstart";
  s.page = "runs/quickstart/run.html";
  s.checkpoints = "checkpoints_fp8/quickstart";
  s.next = {"octavo one", "octavo two"};
  return s;
}

TEST(Summary, SaysHowFastHowGoodAndWhereItIs) {
  EXPECT_EQ(summary_text(usual_summary()),
            "in 21 m 10 s (20 m 50 s of steps): 983 tokens/s, 0.640 steps/s, peak memory of "
            "tensors 61.2 MB\n"
            "  precision  FP8 rehearsal, 88.1% of the FLOPs of GEMMs in FP8, backend rehearsal\n"
            "  loss       training 2.023323, best validation 2.726124 at step 750\n"
            "  incidents  none; no red flags\n"
            "  files      run in runs/quickstart; page: runs/quickstart/run.html\n"
            "             checkpoint in checkpoints_fp8/quickstart\n"
            "  next       octavo one\n"
            "             octavo two");
}

TEST(Summary, LeavesOutWhatIsNot) {
  RunSummary s = usual_summary();
  s.precision = "BF16";
  s.fp8_backend = "";
  s.best_val_loss.reset();
  s.page.clear();
  s.checkpoints.clear();
  s.next.clear();
  s.incidents = 2;
  s.skipped_steps = 1;
  s.flags = 3;
  s.open_flags = {"plateau", "slow_rank"};
  const std::string text = summary_text(s);
  for (const char* part : {"precision  BF16\n", "loss       training 2.023323, no validation\n",
                           "incidents  2 (incidents.jsonl), 1 skipped steps; 3 red flags, at the "
                           "end still: plateau, slow_rank\n",
                           "files      run in runs/quickstart"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  for (const char* part : {"checkpoint", "next", "page", "FP8"})
    EXPECT_EQ(text.find(part), std::string::npos) << part << " in:\n" << text;
  s.open_flags = {"worse_than_uniform"};
  EXPECT_NE(summary_text(s).find("training 2.023323, no validation better than guessing\n"),
            std::string::npos);
  s.flags = 1;
  s.open_flags.clear();
  EXPECT_EQ(summary_text(s).find("resumed"), std::string::npos);
  s.resumes = 2;
  EXPECT_NE(summary_text(s).find("; resumed 2 times (restarts.jsonl); 1 red flag"),
            std::string::npos);
  EXPECT_NE(summary_text(s).find("1 red flag, over"), std::string::npos);
  // The best one of a run that was resumed may be older than this start.
  s.best_val_loss = 1;
  s.best_step.reset();
  EXPECT_NE(summary_text(s).find("best validation 1.000000, before the resume"), std::string::npos);
}

// A rank that was killed is no skipped step, and yet not nothing.
TEST(Summary, RestartsAfterFailuresAreCountedWithTheirKinds) {
  RunSummary s = usual_summary();
  s.failures = 3;
  s.failure_kinds = {"killed", "network"};
  s.resumes = 2;
  EXPECT_NE(summary_text(s).find("incidents  3 restarts after a failure (killed, network); resumed "
                                 "2 times (restarts.jsonl); no red flags\n"),
            std::string::npos)
      << summary_text(s);
  s.incidents = 1;
  s.failures = 1;
  EXPECT_NE(summary_text(s).find("incidents  1 (incidents.jsonl), 1 restart after a failure (k"),
            std::string::npos)
      << summary_text(s);
}

TEST(RestartLedger, CountsEveryRestartAndItsCause) {
  const Scratch scratch;
  const Resumed anew{}, from{.from = "step-00000004", .step = 4, .ranks = 2};
  write_restart(scratch.path(), anew, 2, "");  // a first start
  EXPECT_EQ(restarts_receipt(scratch.path())["count"], 0);
  write_restart(scratch.path(), anew, 2, "killed: rank 1 was killed by signal 9 (Killed)");
  write_restart(scratch.path(), from, 2, "killed: rank 0 was killed by signal 9 (Killed)");
  write_restart(scratch.path(), from, 3, "");  // by hand, or for more ranks
  const Json receipt = restarts_receipt(scratch.path());
  EXPECT_EQ(receipt["count"], 3);
  EXPECT_EQ(receipt["resumed"], 2);
  EXPECT_EQ(receipt["after_failures"], 2);
  EXPECT_EQ(receipt["causes"], Json::parse(R"({"killed":2})"));
  EXPECT_EQ(receipt["grown"], 1);
  EXPECT_EQ(receipt["shrunk"], 0);
}

TEST(Summary, ARunWithoutAStepHasNoLossAndNoSpeed) {
  RunSummary s;
  s.precision = "BF16";
  s.folder = "runs/r";
  const std::string text = summary_text(s);
  EXPECT_TRUE(text.starts_with("in 0.0 s (0.0 s of steps): 0.0 tokens/s, 0.000 steps/s")) << text;
  EXPECT_EQ(text.find("loss"), std::string::npos) << text;
}

// After a resize nobody needs to type anything.
TEST(StopWords, SayWhoContinues) {
  EXPECT_EQ(stop_words("SIGTERM", 45, false),
            "stopped by SIGTERM after step 45; continue with the same command and --resume latest");
  EXPECT_EQ(stop_words("octavo launch, for more ranks", 45, true),
            "stopped after step 45 for more ranks; octavo launch continues");
}

TEST(NextCommands, UseWhatWasMadeOrContinueIt) {
  const launch::RankInfo alone;
  EXPECT_EQ(join(next_commands("runs/a", "checkpoints/a", alone, false), "\n"),
            "octavo generate --checkpoint checkpoints/a --prompt 'The '\n"
            "octavo checkpoints export checkpoints/a --output a-export");
  EXPECT_EQ(join(next_commands("runs/a", "checkpoints/a", alone, true), "\n"),
            "octavo train runs/a/config.yaml --resume latest\n"
            "octavo generate --checkpoint checkpoints/a --prompt 'The '");
  EXPECT_TRUE(next_commands("runs/a", "", alone, false).empty());
  launch::RankInfo four;
  four.ranks = four.local_ranks = 4;
  EXPECT_EQ(next_commands("runs/a", "checkpoints/a", four, true).front(),
            "octavo launch --nproc 4 -- train runs/a/config.yaml --resume latest");
}

TEST(NextCommands, OfSeveralNodesSayWhatToTypeOnEach) {
  launch::RankInfo nodes;
  nodes.ranks = 8;
  nodes.local_ranks = 4;
  nodes.nodes = 2;
  nodes.master_address = "192.168.0.1";
  nodes.master_port = 29500;
  nodes.launcher = "octavo";
  const auto first = [&](bool stopped) {
    return next_commands("runs/a", "checkpoints/a", nodes, stopped).front();
  };
  EXPECT_EQ(
      join(next_commands("runs/a", "checkpoints/a", nodes, true), "\n"),
      "octavo launch --nnodes 2 --nproc 4 --node_rank 0 --master_address 192.168.0.1 -- train "
      "runs/a/config.yaml --resume latest\n"
      "  (on every other node the same, with its --node_rank)\n"
      "octavo generate --checkpoint checkpoints/a --prompt 'The '");
  nodes.master_port = 4000;
  EXPECT_NE(first(true).find(" --master_port 4000 -- train "), std::string::npos) << first(true);
  EXPECT_TRUE(first(false).starts_with("octavo generate "));
  // Of these only the command that was typed knows the hosts, the GPUs and how many nodes may come.
  for (const char* launcher : {"slurm", "torchrun", "mpi"}) {
    nodes.launcher = launcher;
    EXPECT_TRUE(first(true).starts_with("octavo generate ")) << first(true);
  }
  nodes.launcher = "octavo";
  nodes.elastic = true;
  EXPECT_TRUE(first(true).starts_with("octavo generate ")) << first(true);
  nodes.nodes = 1;  // that is left
  nodes.ranks = 4;
  EXPECT_TRUE(first(true).starts_with("octavo generate ")) << first(true);
}

TEST(NextCommands, NamesAreOneWordOfAShellAndFolders) {
  const launch::RankInfo alone;
  EXPECT_EQ(next_commands("runs/my run", "checkpoints/my run", alone, false).back(),
            "octavo checkpoints export 'checkpoints/my run' --output 'my run-export'");
  EXPECT_EQ(next_commands("runs/it's", "c/it's", alone, true).front(),
            "octavo train 'runs/it'\\''s/config.yaml' --resume latest");
  const Scratch scratch;
  const fs::path before = fs::current_path();
  fs::current_path(scratch.path());
  fs::create_directories("a-export");
  fs::create_directories("a-export-2");
  EXPECT_TRUE(next_commands("runs/a", "c/a", alone, false).back().ends_with("--output a-export-3"));
  fs::current_path(before);
}

TEST(StartLines, KernelsAreNamedByWhatTheyDo) {
  const std::vector<engine::Choice> choices = {
      {"matmul", "cpu/onednn", {}},    {"fp8_linear", "cpu/rehearsal", {}},
      {"layer_norm", "cpu/simd", {}},  {"gelu", "cpu/simd", {}},
      {"attention", "cpu/blocks", {}}, {"embedding", "aten", {}}};
  EXPECT_EQ(kernel_words(choices, true),
            "fp8_linear cpu/rehearsal, matmul cpu/onednn, attention cpu/blocks, others cpu/simd, "
            "aten");
  EXPECT_EQ(kernel_words(choices, false),
            "matmul cpu/onednn, attention cpu/blocks, others cpu/simd, aten");
}

}  // namespace
}  // namespace octavo::train
