// octavo launch [--key value]… -- train [CONFIG.yaml] [--key value]…: ranks of a run, or the files
// with which a scheduler starts them.

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/library.h"
#include "base/log_file.h"
#include "cli/log_lines.h"
#include "cli/verbs.h"
#include "config/key.h"
#include "launch/failed_start.h"
#include "launch/run.h"
#include "launch/scripts.h"

namespace octavo::cli {
namespace {

// What follows `--`: train and its arguments, which are checked before any rank starts.
launch::Work work_of(Args command) {
  if (command.empty() || command.front() != "train")
    fail(ExitCode::kUsage, "cli", "launch: wanted -- train [CONFIG.yaml] [--key value]…, found ",
         command.empty() ? "no command" : "'" + command.front() + "'",
         "; write octavo launch --nproc 8 -- train config.yaml");
  launch::Work work;
  const config::Parsed parsed = config::parse(command.subspan(1), config::kTrainArguments);
  work.train = parsed.settings;
  work.config_file = parsed.config_file;
  work.command = {own_program().string()};
  work.command.insert(work.command.end(), command.begin(), command.end());
  return work;
}

// For ranks that start now: other nodes are not to wait for one whose command is wrong.
launch::Work work_to_start(const config::Settings& settings, Args command) {
  try {
    return work_of(command);
  } catch (const Error& error) {
    launch::tell_failed_start(settings, launch::environment(), error);
    throw;
  }
}

// A true/false flag does not, unless true or false follows.
bool takes_next_word(const std::string& arg) {
  if (!arg.starts_with("--") || arg.find('=') != std::string::npos) return false;
  std::string name = arg.substr(2);
  std::ranges::replace(name, '-', '_');
  if (const config::Key* key = config::find_key(name)) return key->type != config::Type::kBool;
  return !name.starts_with("no_");
}

// Where the command begins when nobody wrote --: at `train`, unless it is the value of a flag.
size_t bare_command(Args args) {
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i] == "train" && (i == 0 || !takes_next_word(args[i - 1]))) return i;
  return args.size();
}

struct Script {
  std::string path, text;
  fs::perms mode;
  const char* how;  // to start it
};

// A script is the user's to change: what differs from ours stays.
void check_place_of(const Script& script) {
  constexpr uint64_t kMaxScript = 1 << 20;
  std::error_code none;
  const fs::path folder = fs::path(script.path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, none))
    fail(ExitCode::kUsage, "cli", "launch: wanted a file to write, found ", script.path,
         ", whose folder is not there; mkdir -p ", launch::shell_quoted(folder.string()));
  if (!fs::exists(script.path, none)) return;
  if (!fs::is_regular_file(script.path, none))
    fail(ExitCode::kUsage, "cli", "launch: wanted a file to write, found ", script.path,
         ", which is none; name another file");
  if (fs::file_size(script.path) == script.text.size() &&
      read_file(script.path, kMaxScript) == script.text)
    return;
  fail(ExitCode::kUsage, "cli", "launch: wanted a new file, found ", script.path,
       ", which is there and differs; name another file or delete it");
}

void write_script(const Script& script) {
  write_file_atomic(script.path, script.text);
  fs::permissions(script.path, script.mode);
  std::cout << script.path << ": written; " << script.how << " " << script.path << "\n";
}

}  // namespace

int launch(const Verb& verb, Args args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  const bool has_dashes = dashes != args.end();
  const size_t own = has_dashes ? static_cast<size_t>(dashes - args.begin()) : bare_command(args);
  const Args command = args.subspan(has_dashes ? own + 1 : own);
  set_log_launcher(0);  // what is wrong with the arguments is no rank's message
  set_log_json(wants_json_lines(command));
  const config::Parsed parsed = config::parse(args.subspan(0, own), verb.arguments);
  config::Settings settings = parsed.settings;
  set_log_launcher(static_cast<int>(std::max<int64_t>(0, settings.node_rank)));
  constexpr fs::perms kFile = fs::perms::owner_read | fs::perms::owner_write |
                              fs::perms::group_read | fs::perms::others_read;
  if (settings.slurm.empty() && settings.kubernetes.empty()) {
    const launch::Work ranks = work_to_start(settings, command);
    set_log_json(ranks.train.log_format == config::LogFormat::kJson);
    return launch::run(settings, ranks, launch::environment());
  }
  if (!parsed.given("max_restarts")) settings.max_restarts = launch::kSchedulerRestarts;
  const launch::Work work = work_of(command);
  std::vector<Script> scripts;
  if (!settings.slurm.empty())
    scripts.push_back({settings.slurm, launch::slurm_script(settings, work),
                       kFile | fs::perms::owner_exec, "submit it with sbatch"});
  if (!settings.kubernetes.empty())
    scripts.push_back({settings.kubernetes, launch::jobset_manifest(settings, work), kFile,
                       "start it with kubectl apply -f"});
  for (const Script& script : scripts) check_place_of(script);
  for (const Script& script : scripts) write_script(script);
  return 0;
}

}  // namespace octavo::cli
