#include "launch/scripts.h"

#include <gtest/gtest.h>

#include "expect_failure.h"

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

TEST(Scripts, Slurm) {
  config::Settings settings;
  settings.nproc = 8;
  settings.nnodes = 2;
  const std::string text = slurm_script(settings, work({"--sample_prompt", "it's $HOME"}));
  EXPECT_TRUE(holds(text, "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"));
  EXPECT_TRUE(holds(text, "--gpus-per-node=8"));
  EXPECT_TRUE(holds(text, "then CONFIG='a b.yaml'; fi\n"));
  EXPECT_TRUE(holds(text, R"(--sample_prompt 'it'\''s $HOME')"));
  EXPECT_TRUE(holds(text, "scontrol requeue"));
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
  // Jobs of a sweep are agents of one trial each, whatever the command is.
  EXPECT_TRUE(holds(text, "sweep agent \"$database\" --trials \"${TRIALS:-1}\" --nproc 8)"));
}

TEST(Scripts, Kubernetes) {
  config::Settings settings;
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
  named.train.run_name = "No_DNS";
  EXPECT_TRUE(holds(jobset_manifest(settings, named), "name: octavo\n"));
}

TEST(Scripts, Quoting) {
  EXPECT_EQ(shell_quoted("a/b-c=1"), "a/b-c=1");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("$(x)"), "'$(x)'");
}

}  // namespace
}  // namespace octavo::launch
