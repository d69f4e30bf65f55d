#include "base/watched_child.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace octavo {

WatchedChild::WatchedChild(const std::vector<std::string>& command, const Variables& added,
                           const std::string& prefix, const std::shared_ptr<LogFile>& log)
    : child_(start_child(command, added, /*own_output=*/true)),
      out_{child_.out, Relay(prefix.empty() ? -1 : STDERR_FILENO, prefix, log)},
      err_{child_.err, Relay(prefix.empty() ? -1 : STDERR_FILENO, prefix, log)} {}

WatchedChild::~WatchedChild() {
  for (const Stream* stream : {&out_, &err_})
    if (stream->descriptor >= 0) close(stream->descriptor);
  if (!running_) return;
  end_now();
  waitpid(child_.pid, nullptr, 0);
}

void WatchedChild::read(Stream& stream) {
  char buffer[16384];
  while (stream.descriptor >= 0) {
    const ssize_t got = ::read(stream.descriptor, buffer, sizeof buffer);
    if (got > 0) {
      stream.relay.feed({buffer, static_cast<size_t>(got)});
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    } else {
      close(stream.descriptor);
      stream.descriptor = -1;
    }
  }
}

bool WatchedChild::update() {
  if (!running_) return false;
  int status = 0;
  const bool ended = waitpid(child_.pid, &status, WNOHANG) == child_.pid;
  read(out_);  // after the look at its end: nothing that it printed is missed
  read(err_);
  if (!ended) return true;
  running_ = false;
  out_.relay.finish();
  err_.relay.finish();
  if (WIFSIGNALED(status))
    signal_ = WTERMSIG(status);
  else
    code_ = WEXITSTATUS(status);
  return false;
}

void WatchedChild::signal(int number) const {
  if (running_) kill(child_.pid, number);
}

void WatchedChild::end_now() const {
  if (running_) kill(-child_.pid, SIGKILL);
}

std::string WatchedChild::end_text() const {
  return signal_ != 0 ? str("signal ", signal_, " (", strsignal(signal_), ")")
                      : str("exit code ", code_);
}

const std::string& WatchedChild::last_line() const {
  return err_.relay.last_line().empty() ? out_.relay.last_line() : err_.relay.last_line();
}

void wait_for_news(SignalWatch& signals, std::span<WatchedChild* const> children,
                   std::chrono::milliseconds timeout) {
  std::vector<pollfd> watched = {{signals.descriptor(), POLLIN, 0}};
  for (const WatchedChild* child : children)
    for (const int descriptor : {child->out_.descriptor, child->err_.descriptor})
      if (descriptor >= 0) watched.push_back({descriptor, POLLIN, 0});
  if (poll(watched.data(), watched.size(), static_cast<int>(timeout.count())) < 0 && errno != EINTR)
    fail(ExitCode::kEnvironment, "base",
         "wanted to wait for processes, found: ", std::strerror(errno));
}

}  // namespace octavo
