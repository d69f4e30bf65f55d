#include "monitor/prometheus.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "monitor/http_server.h"
#include "monitor/metrics.h"

namespace octavo::monitor {
namespace {

using Clock = std::chrono::steady_clock;

// Evaluations, samples and saves lie between steps and may take long: a run counts as stalled
// after ten minutes, or twenty times its longest step, without a word.
constexpr double kQuietSeconds = 600, kQuietSteps = 20;
// Before the first step: data may be prepared and kernels compiled, but not for ever.
constexpr double kStartSeconds = 1800;
constexpr const char* kExposition = "text/plain; version=0.0.4; charset=utf-8";

// "train/grad_norm" is octavo_train_grad_norm.
std::string prometheus_name(const std::string& name) {
  std::string out = "octavo_";
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += plain ? c : '_';
  }
  return out;
}

std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string label_value(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

class PrometheusSink final : public Sink {
 public:
  PrometheusSink(const std::string& address, const std::string& run_name) : run_name_(run_name) {
    parse_listen_address(address);
    try {
      server_ = std::make_unique<HttpServer>(address,
                                             [this](std::string_view path) { return page(path); });
      log_info(str("metrics: http://", server_->address(), "/metrics, health: http://",
                   server_->address(), "/healthz"));
    } catch (const Error& error) {
      failures_ = 1;
      log_warn(str("no metrics endpoint: ", error.what(), "; training continues without it"));
    }
  }

  void on_step(const StepRecord& r) override {
    const Metrics metrics = metrics_of(r);
    const std::lock_guard lock(mutex_);
    keep(metrics);
    step_ = r.step;
    failed_saves_ = r.failed_saves;
    failed_uploads_ = r.failed_uploads;
    longest_ = std::max(longest_, r.seconds);
  }

  void on_eval(const EvalRecord& r) override {
    const Metrics metrics = metrics_of(r);
    const std::lock_guard lock(mutex_);
    keep(metrics);
  }

  void on_task(const TaskRecord& r) override {
    const Metrics metrics = metrics_of(r);
    const std::lock_guard lock(mutex_);
    keep(metrics);
  }

  void on_flag(const Flag& f) override {
    const std::lock_guard lock(mutex_);
    values_[prometheus_name("flags/" + f.name)] += 1;
  }

  void on_sample(const SampleRecord&) override { on_alive(); }

  void on_alive() override {
    const std::lock_guard lock(mutex_);
    heard_ = Clock::now();
  }

  int64_t failures() const override { return failures_; }
  std::string_view name() const override { return "prometheus"; }
  std::vector<std::pair<std::string, int64_t>> counts() const override {
    if (server_ == nullptr) return {};
    const HttpServer::Counts& c = server_->counts();
    return {{"answered", c.answered},
            {"refused", c.refused},
            {"too_slow", c.too_slow},
            {"pushed_out", c.pushed_out},
            {"left", c.left}};
  }

 private:
  void keep(const Metrics& metrics) {
    for (const Metric& m : metrics) values_[prometheus_name(m.name)] = m.value;
    heard_ = Clock::now();
  }

  HttpPage page(std::string_view path) const {
    if (path == "/metrics") return {.type = kExposition, .body = exposition()};
    if (path == "/healthz") return health();
    return {.status = 404, .body = "there are /metrics and /healthz\n"};
  }

  std::string exposition() const {
    const std::lock_guard lock(mutex_);
    std::string out =
        str("# TYPE octavo_run_info gauge\noctavo_run_info{run=\"", label_value(run_name_),
            "\"} 1\n# TYPE octavo_step counter\noctavo_step ", step_, "\n");
    for (const auto& [name, value] : values_)
      out += "# TYPE " + name + " gauge\n" + name + " " + prometheus_number(value) + "\n";
    return out;
  }

  HttpPage health() const {
    const std::lock_guard lock(mutex_);
    const double quiet = std::chrono::duration<double>(Clock::now() - heard_).count();
    const bool stalled =
        quiet > (step_ > 0 ? std::max(kQuietSeconds, kQuietSteps * longest_) : kStartSeconds);
    const char* word = stalled ? "stalled" : step_ > 0 ? "ok" : "starting";
    return {.status = stalled ? 503 : 200,
            .type = "application/json",
            .body = str("{\"status\":\"", word, "\",\"step\":", step_,
                        ",\"seconds_since_last_record\":", quiet, ",\"failed_saves\":",
                        failed_saves_, ",\"failed_uploads\":", failed_uploads_, "}\n")};
  }

  std::string run_name_;
  mutable std::mutex mutex_;
  std::map<std::string, double> values_;
  int64_t step_ = 0, failed_saves_ = 0, failed_uploads_ = 0;
  double longest_ = 0;
  Clock::time_point heard_ = Clock::now();
  int64_t failures_ = 0;
  std::unique_ptr<HttpServer> server_;  // last: its thread reads what is above
};

}  // namespace

std::unique_ptr<Sink> make_prometheus_sink(const std::string& address,
                                           const std::string& run_name) {
  return std::make_unique<PrometheusSink>(address, run_name);
}

}  // namespace octavo::monitor
