#include "base/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/failure.h"
#include "base/text.h"

namespace octavo {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    fail_as(failure_of_errno(errno), "base",
            "wanted a pipe for a rank's output, found: ", std::strerror(errno), "; see ulimit -n");
  return {ends[0], ends[1]};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const Variables& added) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) entries.emplace_back(text);
  }
  for (const auto& [name, value] : added) entries.push_back(str(name, "=", value));
  return entries;
}

// In the child, between fork and exec: only calls that are safe there.
struct Start {
  char* const* arguments;
  char* const* variables;
  int out, err, failure, kept;  // descriptors; -1: none
  pid_t parent;
};

[[noreturn]] void become(const Start& start) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);  // what this process ignores, the program need not
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != start.parent) _exit(127);  // it ended before the line above
  const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (empty >= 0) dup2(empty, STDIN_FILENO);
  if (start.out >= 0) dup2(start.out, STDOUT_FILENO);
  if (start.err >= 0) dup2(start.err, STDERR_FILENO);
  if (start.kept >= 0) fcntl(start.kept, F_SETFD, 0);
  execve(start.arguments[0], start.arguments, start.variables);
  const int reason = errno;
  const ssize_t ignored = write(start.failure, &reason, sizeof reason);
  static_cast<void>(ignored);
  _exit(127);
}

}  // namespace

Child start_child(const std::vector<std::string>& command, const Variables& added, bool own_output,
                  int kept) {
  OCTAVO_ASSERT(!command.empty());
  std::vector<std::string> words = command, entries = merged_environment(added);
  const std::vector<char*> arguments = pointers(words), variables = pointers(entries);
  const Pipe out = own_output ? make_pipe() : Pipe{}, err = own_output ? make_pipe() : Pipe{};
  const Pipe failure = make_pipe();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0)
    become({arguments.data(), variables.data(), out.write_end, err.write_end, failure.write_end,
            kept, parent});
  const int fork_error = errno;
  for (const int end : {out.write_end, err.write_end, failure.write_end})
    if (end >= 0) close(end);
  int reason = 0;
  const ssize_t got = pid > 0 ? read(failure.read_end, &reason, sizeof reason) : 0;
  close(failure.read_end);
  if (pid > 0 && got == 0) {
    setpgid(pid, pid);  // whichever of us two is first
    for (const int end : {out.read_end, err.read_end})
      if (end >= 0) fcntl(end, F_SETFL, O_NONBLOCK);
    return {pid, out.read_end, err.read_end};
  }
  for (const int end : {out.read_end, err.read_end})
    if (end >= 0) close(end);
  const int why = pid > 0 ? reason : fork_error;
  fail_as(failure_of_errno(why), "base", "wanted to start ", command.front(),
          ", found: ", std::strerror(why));
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path != nullptr ? path : "", ':')) {
    const std::string found = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(found.c_str(), X_OK) == 0) return found;
  }
  return "";
}

namespace {
// From the state on; "" when there is no such process.
std::string stat_of(pid_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));  // its size is said to be 0
  std::string text;
  std::getline(file, text, '\0');
  const size_t name_end = text.rfind(')');  // the name before it may hold anything
  return name_end == text.npos || name_end + 2 >= text.size() ? "" : text.substr(name_end + 2);
}
}  // namespace

char process_state(pid_t pid) {
  const std::string text = stat_of(pid);
  return text.empty() ? '\0' : text.front();
}

std::string process_start(pid_t pid) {
  const std::vector<std::string> fields = split(stat_of(pid), ' ');
  constexpr size_t kStart = 19;  // field 22, counted from the state, which is field 3
  return fields.size() > kStart ? fields[kStart] : "";
}

bool process_lives(pid_t pid, const std::string& start) {
  const char state = process_state(pid);
  return state != '\0' && state != 'Z' && state != 'X' && process_start(pid) == start;
}

ProcessSpace process_space() {
  ProcessSpace found;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, found.boot);
  std::error_code none;
  found.space = std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
  return found;
}

namespace {
struct sigaction pipe_before {};  // of the process, as signal handlers are
}  // namespace

SignalWatch::SignalWatch() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1}) sigaddset(&watched, number);
  struct sigaction action {};
  sigaction(SIGHUP, nullptr, &action);
  // A signal that is blocked is kept even when it is ignored.
  if (action.sa_handler != SIG_IGN) sigaddset(&watched, SIGHUP);
  action = {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &pipe_before);
  pthread_sigmask(SIG_BLOCK, &watched, &before_);
  descriptor_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0)
    fail(ExitCode::kEnvironment, "base",
         "wanted a descriptor for signals, found: ", std::strerror(errno));
}

SignalWatch::~SignalWatch() {
  close(descriptor_);
  sigaction(SIGPIPE, &pipe_before, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalWatch::take() {
  signalfd_siginfo info{};
  if (read(descriptor_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace octavo
