#include "sweep/trial_command.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/key.h"
#include "config/parse.h"
#include "launch/restart.h"
#include "migrate/import.h"

namespace octavo::sweep {
namespace {

constexpr int64_t kCheckedTrials = 256;  // of a grid, before the first begins

std::string read_small(const std::string& path, const char* what) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    fail(ExitCode::kUsage, "sweep", "wanted ", what, ", found no file ", path, "; check the path");
  return read_file(path, config::kMaxYamlBytes);
}

std::string hash_text(const std::string& text) {
  return hash_bytes(std::as_bytes(std::span(text)));
}

bool names_flag(const std::vector<std::string>& words, std::string_view name) {
  const std::string flag = str("--", name);
  return std::ranges::any_of(
      words, [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
}

void refuse_own_flags(const std::vector<std::string>& flags) {
  for (const std::string_view name : kGivenKeys)
    if (names_flag(flags, name))
      fail(ExitCode::kUsage, "sweep", "wanted flags for every trial, found --", name,
           ", of which every trial has its own; ",
           name == "resume"             ? "a trial resumes from its checkpoint by itself"
           : name == "list_checkpoints" ? "leave it out"
                                        : "write it into the configuration");
}

// Every trial of a small grid, or the first trial, as train would read it.
void check_trials(const SweepPlan& plan, const Definition& sweep) {
  const bool grid = sweep.method == Method::kGrid;
  const int64_t count = grid ? std::min(kCheckedTrials, trial_count(sweep)) : 1;
  for (int64_t number = 1; number <= count; ++number) {
    const Proposal proposal = propose(sweep, static_cast<uint64_t>(plan.seed), number, {});
    const TrialCommand command = trial_command(plan, sweep, proposal.values, "check");
    if (sweep.metric.starts_with("val/") && command.settings.eval_freq == 0)
      fail(ExitCode::kUsage, "sweep", "the metric is ", sweep.metric,
           ": wanted eval_freq of at least 1, found 0; set it, or use train/loss");
  }
}

// The guides' short names, unless there is such a file or folder.
void name_dataset(std::string& value, std::vector<std::string>& arguments) {
  std::error_code error;
  const std::optional<migrate::HubDataset> whole = migrate::short_dataset(value);
  if (!whole || fs::exists(value, error)) return;
  value = whole->name;
  if (!whole->config.empty() && !names_flag(arguments, "dataset_config"))
    arguments.push_back(str("--dataset_config=", whole->config));
  if (!whole->split.empty() && !names_flag(arguments, "split_name"))
    arguments.push_back(str("--split_name=", whole->split));
}

}  // namespace

TrialCommand trial_command(const SweepPlan& plan, const Definition& sweep,
                           const std::vector<std::string>& values, const std::string& run_name) {
  TrialCommand command;
  if (!plan.config.empty()) command.arguments.push_back(plan.config);
  command.arguments.insert(command.arguments.end(), plan.flags.begin(), plan.flags.end());
  for (size_t p = 0; p < sweep.parameters.size(); ++p) {
    std::string value = values.at(p);
    if (sweep.parameters[p].name == "dataset") name_dataset(value, command.arguments);
    command.arguments.push_back(str("--", sweep.parameters[p].name, "=", value));
  }
  command.arguments.push_back("--run_name=" + run_name);
  command.settings = config::parse(command.arguments, config::kTrainArguments).settings;
  if (!command.settings.wandb_run_name.empty())  // the configuration's would be every trial's
    command.arguments.push_back("--wandb_run_name=" + run_name);
  command.checkpoints = launch::checkpoint_root(command.settings) / run_name;
  return command;
}

Variables trial_variables(const Variables& here) {
  Variables added;
  for (const char* name : {"OCTAVO_RANK", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                           "GPU_NUM", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID",
                           "SLURM_PROCID", "MASTER_ADDR", "MASTER_PORT"})
    if (here.contains(name)) added[name] = "";
  added[launch::kBeginsAnewVariable] = "1";  // a trial that was killed before its first checkpoint
  return added;
}

SweepPlan make_plan(const config::Settings& settings, const std::string& sweep_file,
                    const std::string& config_file, const std::vector<std::string>& flags,
                    std::vector<std::string>& notes) {
  SweepPlan plan;
  plan.source = sweep_file;
  plan.yaml = read_small(sweep_file, "a sweep's YAML file");
  Definition sweep = parse_definition(plan.yaml, sweep_file);
  notes = sweep.notes;
  if (!config_file.empty()) {
    plan.config = fs::absolute(config_file).lexically_normal().string();
    plan.config_hash = hash_text(read_small(config_file, "a configuration"));
  }
  refuse_own_flags(flags);
  plan.flags = flags;
  plan.folder = fs::current_path().string();
  plan.run_cap = settings.run_cap;
  plan.seed = settings.sweep_seed;
  plan.attempts = settings.trial_attempts;
  if (plan.run_cap > 0) sweep.run_cap = plan.run_cap;
  const Proposal first = propose(sweep, static_cast<uint64_t>(plan.seed), 1, {});
  plan.runs_dir = trial_command(plan, sweep, first.values, "check").settings.runs_dir;
  check_trials(plan, sweep);
  plan.id = hash_text(str(hash_of(plan), static_cast<int64_t>(1e6 * now_seconds()), getpid()))
                .substr(0, 6);
  return plan;
}

void check_config(const SweepPlan& plan) {
  if (plan.config.empty()) return;
  if (hash_text(read_small(plan.config, "the configuration of the sweep")) != plan.config_hash)
    fail(ExitCode::kUsage, "sweep", plan.config,
         ": wanted the configuration that the sweep was made with, found that it has changed; put "
         "it back, or make another sweep");
}

}  // namespace octavo::sweep
