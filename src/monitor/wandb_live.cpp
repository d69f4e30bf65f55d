#include "monitor/wandb_live.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/secrets.h"
#include "monitor/wandb_login.h"

namespace octavo::monitor {
namespace {

std::string by_hand(const fs::path& run_folder) {
  return str("the offline run is in ", run_folder.string(), "; upload it with: wandb sync ",
             run_folder.string());
}

// In the child, between fork and exec: system calls alone.
[[noreturn]] void become(const char* const* arguments, const char* log_file, pid_t parent) {
  // Without this run the uploader would wait for the rest of it for ever.
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) ::_exit(126);
  const int nothing = ::open("/dev/null", O_RDONLY);
  const int log = ::open(log_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (nothing < 0 || log < 0) ::_exit(126);
  ::dup2(nothing, 0);
  ::dup2(log, 1);
  ::dup2(log, 2);
  ::setpgid(0, 0);  // Ctrl-C is for training, which ends the upload in order
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(arguments[0], const_cast<char* const*>(arguments));
  ::_exit(127);
}

}  // namespace

std::unique_ptr<WandbLive> WandbLive::when_possible(const fs::path& run_folder) {
  if (wandb_mode() != WandbMode::kOnline) return nullptr;
  const std::string key = wandb_key_place();
  if (key.empty()) {
    // wandb itself would ask for a key, or stop; a run in the queue of a cluster can do neither.
    if (!environment_variable("WANDB_MODE").empty())
      log_warn(
          "W&B: WANDB_MODE is online, but there is no key: nothing is uploaded; type wandb login "
          "once, or set WANDB_API_KEY");
    return nullptr;
  }
  if (has_secret_address(environment_variable("WANDB_BASE_URL"))) {
    log_warn(
        "W&B: WANDB_BASE_URL has a password in it, which wandb would write into its logs: nothing "
        "is "
        "uploaded; leave it out, the key is in WANDB_API_KEY or the netrc file");
    return nullptr;
  }
  const std::string program = find_program("wandb");
  if (program.empty()) {
    log_warn(str("W&B: there is a key (", key,
                 "), but no wandb command in PATH to upload with; install the wandb package"));
    return nullptr;
  }
  auto made = std::unique_ptr<WandbLive>(new WandbLive(run_folder));
  made->program_ = program;
  return made;
}

// In the thread of the sinks, so that a file to read is there and the child lives as long as it.
bool WandbLive::start(const std::string& program) {
  const std::string folder = run_folder_.string();
  const std::string log_file = (run_folder_.parent_path() / "upload.log").string();
  const char* const arguments[] = {program.c_str(), "beta",         "sync", "--live",
                                   "--yes",         folder.c_str(), nullptr};
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(arguments, log_file.c_str(), parent);
  if (pid_ < 0) {
    lost(std::strerror(errno));
    return false;
  }
  log_info(str("W&B: wandb uploads the run as it grows; what it says is in ", log_file));
  return true;
}

bool WandbLive::has_ended(int* status) {
  return pid_ > 0 && ::waitpid(pid_, status, WNOHANG) == pid_;
}

void WandbLive::lost(const std::string& why) {
  pid_ = -1;
  ++failures_;
  log_warn(
      str("W&B: the live upload ended (", why, "); training continues, ", by_hand(run_folder_)));
}

void WandbLive::check_running() {
  std::error_code error;
  if (!started_ && fs::exists(run_folder_, error)) {
    started_ = true;
    start(program_);
  }
  int status = 0;
  if (has_ended(&status))
    lost(WIFEXITED(status) ? str("exit code ", WEXITSTATUS(status))
                           : str("signal ", WTERMSIG(status)));
}

void WandbLive::finish(std::chrono::seconds patience) {
  if (pid_ > 0)
    log_info(str("W&B: waiting for the end of the upload, at most ", patience.count(), " s"));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  int status = 0;
  while (pid_ > 0) {
    if (has_ended(&status)) {
      pid_ = -1;
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) lost("at the end of the run");
      return;
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (pid_ > 0) {
    log_warn(str("W&B: the upload is not done ", patience.count(), " s after the run; ",
                 by_hand(run_folder_)));
    ++failures_;
  }
}

WandbLive::~WandbLive() {
  if (pid_ <= 0) return;
  int status = 0;
  ::kill(pid_, SIGTERM);
  for (int i = 0; i < 40 && !has_ended(&status); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
}

}  // namespace octavo::monitor
