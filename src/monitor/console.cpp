#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "monitor/sinks.h"
#include "monitor/watch.h"

namespace octavo::monitor {
namespace {

// Waits as long as the reader does. Not through stdio: whoever ends the program would wait for the
// lock of a stream that hangs.
bool write_to_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data(), text.size());
    if (wrote > 0) text.remove_prefix(static_cast<size_t>(wrote));
    if (wrote >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    pollfd room{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
    ::poll(&room, 1, -1);
  }
  return true;
}

class ConsoleSink final : public Sink {
 public:
  ConsoleSink(int64_t first_step, int64_t max_steps, int64_t log_freq)
      : max_steps_(max_steps), log_freq_(log_freq), watch_(first_step, max_steps) {
    // Whoever reads the lines may leave; that is no reason to end a run.
    ::signal(SIGPIPE, SIG_IGN);
    std::fflush(stdout);
  }

  void on_step(const StepRecord& r) override {
    if (r.step % log_freq_ == 0 || r.step == max_steps_) say(step_line(r));
    watch_.add(r);  // away from a terminal nothing: the step lines are progress enough
  }

  void on_eval(const EvalRecord& r) override {
    char line[128];
    std::snprintf(line, sizeof line, "eval %5lld | val loss: %.6f | tokens: %lld%s",
                  static_cast<long long>(r.step), r.val_loss, static_cast<long long>(r.tokens),
                  r.best ? " | best" : "");
    say(line);
  }

  void on_task(const TaskRecord& r) override {
    char line[128];
    std::snprintf(
        line, sizeof line, "eval %5lld | HellaSwag acc_norm: %.4f | acc: %.4f | rows: %lld",
        static_cast<long long>(r.step), r.acc_norm, r.acc, static_cast<long long>(r.rows));
    say(line);
  }

  void on_flag(const Flag& f) override {
    watch_.clear();  // the log says it
    watch_.add(f);
  }

  void on_end(int /*exit_code*/) override { watch_.clear(); }
  int64_t failures() const override { return failures_; }
  std::string_view name() const override { return "console"; }

 private:
  void say(const std::string& line) {
    watch_.clear();
    if (write_to_stdout(line + "\n")) return;
    const std::string why = std::strerror(errno);
    if (failures_++ == 0)
      log_warn(str("step lines cannot be written to standard output (", why,
                   "); training continues, and metrics.jsonl has every step"));
  }

  int64_t max_steps_, log_freq_;
  std::atomic<int64_t> failures_{0};
  WatchDisplay watch_;
};

}  // namespace

std::string step_line(const StepRecord& r) {
  char line[256];
  std::snprintf(line, sizeof line,
                "step %4lld | epoch %lld | loss: %.6f | lr: %.2e | norm: %.4f | dt: %.2fms | "
                "tok/sec: %.2f | %s",
                static_cast<long long>(r.step), static_cast<long long>(r.epoch), r.loss,
                r.learning_rate, r.grad_norm, r.seconds * 1e3, r.tokens_per_second,
                r.precision.c_str());
  return line;
}

std::unique_ptr<Sink> make_console_sink(int64_t first_step, int64_t max_steps, int64_t log_freq) {
  return std::make_unique<ConsoleSink>(first_step, max_steps, log_freq);
}

}  // namespace octavo::monitor
