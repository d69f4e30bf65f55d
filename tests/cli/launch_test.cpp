// The job files that octavo launch writes, and what it says before ranks run.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "program.h"

namespace octavo {
namespace {

using LaunchCli = Cli;

TEST_F(LaunchCli, AnEditedScriptIsNotWrittenOver) {
  write_file_atomic(folder_ / "config.yaml", "model_name: gpt2\ndevice: cpu\nrun_name: run\n");
  const std::string command =
      "launch --nproc 2 --slurm job.sh --kubernetes job.yaml -- train config.yaml";
  const Outcome first = run(command);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string manifest = read_file(folder_ / "job.yaml", 1 << 20);
  const std::string script = read_file(folder_ / "job.sh", 1 << 20);
  EXPECT_EQ(run(command).code, 0);  // the same again

  const std::string edited = script + "# account: mine\n";
  write_file_atomic(folder_ / "job.sh", edited);
  expect_refused(command, 2, "job.sh, which is there and differs; name another file or delete it");
  EXPECT_EQ(read_file(folder_ / "job.sh", 1 << 20), edited);

  // Neither file is written when one of them is refused.
  fs::remove(folder_ / "job.sh");
  write_file_atomic(folder_ / "job.yaml", "edited: true\n");
  expect_refused(command, 2, "job.yaml, which is there and differs");
  EXPECT_FALSE(fs::exists(folder_ / "job.sh"));
  fs::remove(folder_ / "job.yaml");
  EXPECT_EQ(run(command).code, 0);
  EXPECT_EQ(read_file(folder_ / "job.yaml", 1 << 20), manifest);

  expect_refused("launch --nproc 2 --slurm nodir/job.sh -- train config.yaml", 2,
                 "found nodir/job.sh, whose folder is not there; mkdir -p nodir");
  fs::create_directory(folder_ / "folder");
  expect_refused("launch --nproc 2 --slurm folder -- train config.yaml", 2, "name another file");
}

// For collectors that read nothing else: also what is wrong with the arguments.
TEST_F(LaunchCli, MistakesAreJsonWhereLinesAre) {
  write_file_atomic(folder_ / "config.yaml", "model_name: gpt2\ndevice: cpu\n");
  write_file_atomic(folder_ / "json.yaml",
                    "model_name: gpt2\ndevice: cpu\nlog_format: json  # for Loki\n");
  for (const char* arguments :
       {"launch --nproc 2 -- train config.yaml --batchsize 3 --log_format json",
        "launch --nproc 2 -- train json.yaml --batchsize 3",
        "launch --nproc 2 --wrong -- train config.yaml --log-format=json",
        "launch --nproc 1 --nnodes 2 -- train json.yaml", "train json.yaml --batchsize 3"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    const auto line = nlohmann::json::parse(outcome.err, nullptr, false);
    ASSERT_TRUE(line.is_object()) << arguments << ": " << outcome.err;
    EXPECT_EQ(line["level"], "error");
    EXPECT_EQ(line.contains("launcher"), std::string(arguments).starts_with("launch")) << line;
  }
  expect_refused("launch --nproc 2 -- train json.yaml --log_format text --batchsize 3", 2,
                 "batchsize");
}

TEST_F(LaunchCli, TheCommandMayFollowATrueFalseFlag) {
  write_file_atomic(folder_ / "config.yaml", "model_name: gpt2\ndevice: cpu\n");
  for (const char* flag : {"--auto_resume", "--auto-resume", "--no_auto_resume"}) {
    const Outcome made =
        run(str("launch --nproc 2 --slurm job", flag, ".sh ", flag, " train config.yaml"));
    EXPECT_EQ(made.code, 0) << made.err;
  }
  // The value of a flag is no command.
  expect_refused("launch --log_dir train config.yaml", 2, "wanted -- train");
}

TEST_F(LaunchCli, AScriptHasTheRestartsThatWereGiven) {
  write_file_atomic(folder_ / "config.yaml", "model_name: gpt2\ndevice: cpu\n");
  for (const auto& [given, restarts] :
       {std::pair("", 3), std::pair("--max_restarts 1 ", 1), std::pair("--max_restarts 0 ", 0)}) {
    const std::string name = str("job-", restarts, ".sh");
    const Outcome made =
        run(str("launch --nproc 2 ", given, "--slurm ", name, " -- train config.yaml"));
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_NE(read_file(folder_ / name, 1 << 20).find(str("if [[ $recent -le ", restarts, " ]]")),
              std::string::npos);
  }
}

}  // namespace
}  // namespace octavo
