// octavo launch [--key value]… -- train [CONFIG.yaml] [--key value]…: ranks of a run, or the files
// with which a scheduler starts them.

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/library.h"
#include "cli/verbs.h"
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

// Where the command begins when nobody wrote --: at `train`, unless it is the value of a flag.
size_t bare_command(Args args) {
  for (size_t i = 0; i < args.size(); ++i) {
    const bool is_value =
        i > 0 && args[i - 1].starts_with("--") && args[i - 1].find('=') == std::string::npos;
    if (args[i] == "train" && !is_value) return i;
  }
  return args.size();
}

void write_script(const std::string& path, const std::string& text, fs::perms mode,
                  const char* how) {
  write_file_atomic(path, text);
  fs::permissions(path, mode);
  std::cout << path << ": written; " << how << " " << path << "\n";
}

}  // namespace

int launch(const Verb& verb, Args args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  const bool has_dashes = dashes != args.end();
  const size_t own = has_dashes ? static_cast<size_t>(dashes - args.begin()) : bare_command(args);
  const config::Settings settings = config::parse(args.subspan(0, own), verb.arguments).settings;
  const launch::Work work = work_of(args.subspan(has_dashes ? own + 1 : own));
  constexpr fs::perms kFile = fs::perms::owner_read | fs::perms::owner_write |
                              fs::perms::group_read | fs::perms::others_read;
  if (settings.slurm.empty() && settings.kubernetes.empty())
    return launch::run(settings, work, launch::environment());
  if (!settings.slurm.empty())
    write_script(settings.slurm, launch::slurm_script(settings, work),
                 kFile | fs::perms::owner_exec, "submit it with sbatch");
  if (!settings.kubernetes.empty())
    write_script(settings.kubernetes, launch::jobset_manifest(settings, work), kFile,
                 "start it with kubectl apply -f");
  return 0;
}

}  // namespace octavo::cli
