#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/printed.h"
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
    if (r.step % log_freq_ == 0 || r.step == max_steps_)
      say(step_line(r, terminal_columns(STDOUT_FILENO)));
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

std::string step_line(const StepRecord& r, size_t columns) {
  // In the order of the line. Where it is too long, the parts of the highest rank go first. A part
  // counts as long as `room` at least: a step that takes longer than the one before is to show the
  // same parts.
  struct Part {
    std::string text;
    int rank;
    size_t room = 0;
  };
  std::vector<Part> parts = {{printed("step %4lld", static_cast<long long>(r.step)), 0},
                             {printed("epoch %lld", static_cast<long long>(r.epoch)), 6},
                             {printed("loss: %.6f", r.loss), 1},
                             {printed("lr: %.2e", r.learning_rate), 4},
                             {printed("norm: %.4f", r.grad_norm), 3, 13},
                             {printed("dt: %.2fms", r.seconds * 1e3), 5, 14},
                             {printed("tok/sec: %.2f", r.tokens_per_second), 2, 18},
                             {r.precision, 7}};
  for (;;) {
    std::string line;
    size_t room = 0;
    for (const Part& part : parts) {
      room += (line.empty() ? 0 : 3) + std::max(part.room, columns_of(part.text));
      line += (line.empty() ? "" : " | ") + part.text;
    }
    if (columns == 0 || room <= columns || parts.size() == 1) return line;
    parts.erase(std::ranges::max_element(parts, {}, &Part::rank));
  }
}

std::unique_ptr<Sink> make_console_sink(int64_t first_step, int64_t max_steps, int64_t log_freq) {
  return std::make_unique<ConsoleSink>(first_step, max_steps, log_freq);
}

}  // namespace octavo::monitor
