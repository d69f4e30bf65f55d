#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "monitor/sinks.h"

namespace octavo::monitor {
namespace {

class ConsoleSink final : public Sink {
 public:
  ConsoleSink(int64_t first_step, int64_t max_steps, int64_t log_freq)
      : first_step_(first_step),
        max_steps_(max_steps),
        log_freq_(log_freq),
        progress_("training", static_cast<double>(max_steps - first_step), "steps") {
    // Whoever reads the lines may leave; that is no reason to end a run.
    ::signal(SIGPIPE, SIG_IGN);
  }

  void on_step(const StepRecord& r) override {
    if (r.step % log_freq_ == 0 || r.step == max_steps_) {
      progress_.clear();
      say(step_line(r));
    }
    // Away from a terminal the step lines are progress enough.
    if (Progress::on_terminal()) progress_.set(static_cast<double>(r.step - first_step_));
    if (r.step == max_steps_) progress_.finish();
  }

  void on_eval(const EvalRecord& r) override {
    progress_.clear();
    char line[128];
    std::snprintf(line, sizeof line, "eval %5lld | val loss: %.6f | tokens: %lld%s",
                  static_cast<long long>(r.step), r.val_loss, static_cast<long long>(r.tokens),
                  r.best ? " | best" : "");
    say(line);
  }

  int64_t failures() const override { return failures_; }
  std::string_view name() const override { return "console"; }

 private:
  void say(const std::string& line) {
    if (std::printf("%s\n", line.c_str()) >= 0 && std::fflush(stdout) == 0) return;
    if (failures_++ == 0)
      log_warn(str("step lines cannot be written to standard output (", std::strerror(errno),
                   "); training goes on, and metrics.jsonl has every step"));
    std::clearerr(stdout);
  }

  int64_t first_step_, max_steps_, log_freq_, failures_ = 0;
  Progress progress_;
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
