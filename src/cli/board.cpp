// octavo board: the installed TensorBoard, on the runs of a folder and reachable from this machine
// alone.

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/library.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/verbs.h"

namespace octavo::cli {
namespace {

constexpr size_t kMostEntries = 1'000'000;

// In PATH, or beside this program: both come from one environment.
std::string tensorboard_program() {
  const std::string found = find_program("tensorboard");
  if (!found.empty()) return found;
  const fs::path beside = own_program().parent_path() / "tensorboard";
  return ::access(beside.c_str(), X_OK) == 0 ? beside.string() : "";
}

bool has_events(const fs::path& folder) {
  std::error_code error;
  size_t seen = 0;
  for (fs::recursive_directory_iterator
           at(folder, fs::directory_options::skip_permission_denied, error),
       end;
       !error && at != end && ++seen <= kMostEntries; at.increment(error))
    if (at->path().filename().string().find("tfevents") != std::string::npos) return true;
  return false;
}

}  // namespace

int board(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  const config::Settings& s = parsed.settings;
  const std::string folder = parsed.positionals.empty() ? s.runs_dir : parsed.positionals.front();
  std::error_code none;
  if (!fs::is_directory(folder, none))
    fail(ExitCode::kUsage, "cli", "board: wanted a folder of runs, found no folder ", folder,
         "; name it: octavo board FOLDER");
  if (!has_events(folder))
    fail(ExitCode::kUsage, "cli", "board: wanted runs with TensorBoard's events, found none in ",
         folder, "; train with --use_tensorboard, or look at a run's page: octavo report RUN");
  const std::string program = tensorboard_program();
  if (program.empty())
    fail(ExitCode::kEnvironment, "cli", "board: wanted the program tensorboard, found none in ",
         "PATH; pip install tensorboard, or look at a run's page without it: octavo report RUN");
  const std::string port = std::to_string(s.board_port);
  log_info(str("TensorBoard on ", folder, " at http://127.0.0.1:", port,
               "/ ; Ctrl-C ends it. From another machine: ssh -L ", port, ":127.0.0.1:", port,
               " THIS_MACHINE"));
  const char* const words[] = {program.c_str(), "--logdir", folder.c_str(), "--host",
                               "127.0.0.1",     "--port",   port.c_str(),   nullptr};
  ::execv(program.c_str(), const_cast<char* const*>(words));
  fail(ExitCode::kEnvironment, "cli", "board: ", program,
       " cannot be started: ", std::strerror(errno));
}

}  // namespace octavo::cli
