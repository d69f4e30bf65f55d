#include "launch/scripts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "base/text.h"
#include "expect_failure.h"
#include "launch/rank_ends.h"

namespace octavo::launch {
namespace {

Work work(const std::vector<std::string>& more = {}) {
  Work result{
      .command = {"/opt/octavo", "train", "a b.yaml"}, .train = {}, .config_file = "a b.yaml"};
  result.command.insert(result.command.end(), more.begin(), more.end());
  return result;
}

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

std::string between(const std::string& text, std::string_view begin, std::string_view end) {
  const size_t at = text.find(begin) + begin.size();
  return text.substr(at, text.find(end, at) - at);
}

std::set<int> numbers(const std::string& text, char separator) {
  std::set<int> result;
  for (const std::string& number : split(text, separator)) result.insert(std::stoi(number));
  return result;
}

// What each scheduler is told to run again is what the table calls curable, row by row.
TEST(Scripts, RunAgainWhatTheTableCures) {
  config::Settings settings;
  settings.max_restarts = 3;
  const std::set<int> slurm =
      numbers(between(slurm_script(settings, work()), "case $code in\n", ")\n"), '|');
  Work named = work();
  named.train.run_name = "run";
  std::set<int> pods =
      numbers(between(jobset_manifest(settings, named), "NotIn, values: [", "]"), ',');
  for (const int code : {128, 255})  // of the container's runtime
    EXPECT_EQ(pods.erase(code), 1U);
  EXPECT_EQ(slurm, pods);
  std::set<EndKind> seen;
  const auto expect_of = [&](EndKind kind, int code) {
    seen.insert(kind);
    EXPECT_EQ(slurm.contains(code), row_of(kind).curable) << row_of(kind).name << " " << code;
  };
  for (int code = 1; code <= 128; ++code) expect_of(kind_of({.code = code}), code);
  for (int signal = 1; signal <= 64; ++signal)
    if (signal != SIGINT) expect_of(kind_of({.signal = signal}), 128 + signal);
  expect_of(EndKind::kStoppedTwice, 130);
  EXPECT_FALSE(slurm.contains(0) || slurm.contains(75) || slurm.contains(193));
  // The others have no code of their own: 3 is all that a scheduler sees of them.
  for (const EndRow& row : end_table()) {
    const bool by_three = row.kind > EndKind::kEnvironment && row.kind <= EndKind::kHang;
    const bool by_launcher = row.kind >= EndKind::kEndedByUs;
    EXPECT_EQ(seen.contains(row.kind), row.kind != EndKind::kDone && !by_three && !by_launcher)
        << row.name;
  }
}

TEST(Scripts, Slurm) {
  config::Settings settings;
  settings.max_restarts = kSchedulerRestarts;
  settings.nproc = 8;
  settings.nnodes = 2;
  const std::string text = slurm_script(settings, work({"--sample_prompt", "it's $HOME"}));
  EXPECT_TRUE(holds(text, "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"));
  EXPECT_TRUE(holds(text, "--gpus-per-node=8"));
  EXPECT_TRUE(holds(text, "then CONFIG='a b.yaml'; fi\n"));
  EXPECT_TRUE(holds(text, R"(--sample_prompt 'it'\''s $HOME')"));
  EXPECT_TRUE(holds(text, "scontrol requeue"));
  EXPECT_TRUE(holds(text, "srun --kill-on-bad-exit=0 --wait=60 "));
  Work uploading = work();
  uploading.train.checkpoint_upload = "s3://bucket/runs";
  EXPECT_TRUE(holds(slurm_script(settings, uploading), "srun --kill-on-bad-exit=0 --wait=0 "));
  Work cpu = work();
  cpu.train.device = config::DeviceChoice::kCpu;
  EXPECT_FALSE(holds(slurm_script(settings, cpu), "gpus"));
  expect_failure(ExitCode::kUsage, "--resume",
                 [&] { slurm_script(settings, work({"--resume=latest"})); });
  Work named = work({"--run_name", "x"});
  named.train.run_name = "x";
  EXPECT_FALSE(holds(slurm_script(settings, named), "--run_name \""));
  // A run without a name would not find its own checkpoints when its job is requeued.
  EXPECT_TRUE(holds(text, "else\n  arguments+=(--run_name \"octavo-$SLURM_JOB_ID\")\n"));
  EXPECT_FALSE(holds(text, "@UNNAMED"));
  EXPECT_FALSE(holds(text, "@NPROC"));
  // A crash is requeued within a budget: three times in an hour, or as often as was asked for.
  EXPECT_TRUE(holds(text, "if [[ $recent -le 3 ]]"));
  EXPECT_TRUE(holds(text, "now - 3600"));
  settings.max_restarts = 1;
  EXPECT_TRUE(holds(slurm_script(settings, work()), "if [[ $recent -le 1 ]]"));
  settings.max_restarts = 7;
  settings.restart_window = 90;
  const std::string more = slurm_script(settings, work());
  EXPECT_TRUE(holds(more, "if [[ $recent -le 7 ]]"));
  EXPECT_TRUE(holds(more, "at most 7 in 90 minutes"));
  EXPECT_TRUE(holds(more, "now - 5400"));
  EXPECT_FALSE(holds(more, "@RESTARTS") || holds(more, "@WINDOW") || holds(more, "@MINUTES"));
  // Jobs of a sweep are agents of one trial each, whatever the command is.
  EXPECT_TRUE(holds(text, "sweep agent \"$database\" --trials \"${TRIALS:-1}\" --nproc 8)"));
}

TEST(Scripts, Kubernetes) {
  config::Settings settings;
  settings.max_restarts = kSchedulerRestarts;
  settings.nproc = 8;
  settings.nnodes = 4;
  Work named = work({"--seed", "1"});
  named.train.run_name = "llama-1b";
  const std::string text = jobset_manifest(settings, named);
  EXPECT_TRUE(holds(text, "- \"llama-1b-nodes-0-0.llama-1b\"\n"));
  EXPECT_TRUE(holds(text, "- \"$(JOB_COMPLETION_INDEX)\"\n"));
  EXPECT_TRUE(holds(text, "parallelism: 4\n"));
  EXPECT_TRUE(holds(text, "- \"a b.yaml\"\n                - \"--seed\"\n"));
  EXPECT_FALSE(holds(text, "@"));
  // The image has no octavo in its PATH, and its user is not root.
  EXPECT_TRUE(holds(text, "args:\n                - \"launch\"\n"));
  EXPECT_TRUE(holds(text, "fsGroup: 10001"));
  // The notice is SIGTERM to process 1: no preStop, no shell around it.
  EXPECT_TRUE(holds(text, "terminationGracePeriodSeconds: 300\n"));
  EXPECT_FALSE(holds(text, "preStop:") || holds(text, "\n                command:"));
  EXPECT_TRUE(holds(text, "defaultMode: 0440"));
  EXPECT_TRUE(holds(text, "backoffLimit: 24\n"));
  EXPECT_TRUE(holds(text, "- \"--max_restarts\"\n                - \"3\"\n"));
  EXPECT_TRUE(holds(text, "http://127.0.0.1:9400/healthz"));
  EXPECT_TRUE(holds(text, "- \"--metrics_address\"\n                - \"127.0.0.1:9400\"\n"));
  Work watched = named;
  watched.train.metrics_address = "127.0.0.1:9999";
  const std::string own = jobset_manifest(settings, watched);
  EXPECT_TRUE(holds(own, "http://127.0.0.1:9999/healthz"));
  EXPECT_FALSE(holds(own, "--metrics_address"));
}

// Two sets of one name are one: the second would change the first.
TEST(Scripts, JobSetsOfRunsHaveNamesOfTheirOwn) {
  config::Settings settings;
  settings.nproc = settings.nnodes = 2;
  std::set<std::string> names;
  const std::vector<std::string> runs = {"llama-1b",
                                         "Llama_1B",
                                         "llama.1b",
                                         "llama_1b",
                                         "0001",
                                         "2-3",
                                         "---",
                                         "läuft",
                                         "octavo",
                                         std::string(60, 'a'),
                                         std::string(61, 'a'),
                                         std::string(40, 'b') + "-1"};
  for (const std::string& run : runs) {
    Work named = work();
    named.train.run_name = run;
    const std::string text = jobset_manifest(settings, named);
    const std::string name = between(text, "metadata:\n  name: ", "\n");
    EXPECT_TRUE(holds(text, str("- \"", name, "-nodes-0-0.", name, "\"\n")));
    EXPECT_LE(name.size(), 40U) << name;
    EXPECT_TRUE(name.front() >= 'a' && name.front() <= 'z' && name.back() != '-') << name;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), name.npos) << name;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), runs.size());
  EXPECT_TRUE(names.contains("llama-1b"));  // which is one
  EXPECT_TRUE(std::ranges::any_of(names, [](const std::string& name) {
    return name.starts_with("llama-1b-") && name.size() == 17;
  }));
}

TEST(Scripts, OfARunThatGrowsAndShrinks) {
  config::Settings settings;
  settings.max_restarts = kSchedulerRestarts;
  settings.nproc = 2;
  settings.least_nodes = 1;
  settings.nnodes = 4;
  Work elastic = work();
  elastic.train.batch_size = 4;
  elastic.train.target_effective_batch_size = 32;
  const std::string text = slurm_script(settings, elastic);
  // With --ntasks-per-node SLURM would give a range no more nodes than its fewest tasks.
  EXPECT_TRUE(holds(text, "#SBATCH --nodes=1-4\n#SBATCH --mincpus=2\n"));
  EXPECT_FALSE(holds(text, "#SBATCH --ntasks"));
  EXPECT_TRUE(holds(text, "for nodes in 1 2 4; do\n"));  // eight passes do not go into six ranks
  EXPECT_TRUE(holds(text, "--ntasks=\"$((taken * 2))\" --ntasks-per-node=2)"));
  EXPECT_FALSE(holds(text, "--target_effective_batch_size"));  // the file has it
  EXPECT_TRUE(holds(text, "if [[ \"$CONFIG\" != 'a b.yaml' ]]; then\n"));
  EXPECT_TRUE(holds(text, "samples of a step (32) are"));
  elastic.train.target_effective_batch_size = 0;
  EXPECT_TRUE(holds(slurm_script(settings, elastic), " --target_effective_batch_size 32)\n"));
  settings.spares = 1;
  // Whose checkpoints would a pod take up that starts for the first time?
  expect_failure(ExitCode::kUsage, "run_name", [&] { jobset_manifest(settings, elastic); });
  elastic.train.run_name = "run";
  expect_failure(ExitCode::kUsage, "no spares", [&] { slurm_script(settings, elastic); });
  const std::string pods = jobset_manifest(settings, elastic);
  EXPECT_TRUE(holds(pods, "parallelism: 5\n"));
  EXPECT_TRUE(holds(pods, "- \"--nnodes\"\n                - \"1:4\"\n"));
  EXPECT_TRUE(holds(pods, "- \"--spares\"\n                - \"1\"\n"));
  settings.spares = settings.least_nodes = 0;
  EXPECT_FALSE(holds(slurm_script(settings, elastic), "taken"));
}

TEST(Scripts, Quoting) {
  EXPECT_EQ(shell_quoted("a/b-c=1"), "a/b-c=1");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("$(x)"), "'$(x)'");
}

}  // namespace
}  // namespace octavo::launch
