#include "monitor/watch.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printed.h"
#include "base/progress.h"

namespace octavo::monitor {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};
constexpr size_t kMostLosses = 128;  // then two become one
constexpr size_t kUnknownColumns = 80;
constexpr size_t kBar = 20, kShortBar = 10, kSparkline = 24, kShortSparkline = 10;

std::string bar(double share, size_t width) {
  const auto filled = static_cast<size_t>(share * static_cast<double>(width));
  return "[" + std::string(filled, '=') + std::string(width - filled, ' ') + "]";
}

}  // namespace

size_t terminal_columns(int file) {
  if (::isatty(file) == 0) return 0;
  winsize size{};
  const bool known = ::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUnknownColumns;
}

std::string sparkline(const std::vector<double>& values, size_t columns) {
  constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const size_t count = std::min(columns, values.size());
  std::vector<double> means;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i * values.size() / count, end = (i + 1) * values.size() / count;
    double sum = 0;
    for (size_t k = begin; k < end; ++k) sum += values[k];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;
    least = std::min(least, mean);
    most = std::max(most, mean);
  }
  std::string out;
  for (const double mean : means) {
    const double height = most > least ? (mean - least) / (most - least) : 0;
    out += std::isfinite(mean) ? kBlocks[static_cast<int>(std::lround(7 * height))] : " ";
  }
  return out;
}

Watch::Watch(int64_t first_step, int64_t max_steps)
    : first_step_(first_step), max_steps_(max_steps), step_(first_step) {
  window_.add(static_cast<double>(first_step), 0);
}

void Watch::add(const StepRecord& record, double seconds_since_start) {
  step_ = record.step;
  window_.add(static_cast<double>(record.step), seconds_since_start);
  loss_ = record.loss;
  sum_ += record.loss;
  if (++in_sum_ == stride_) {
    losses_.push_back(sum_ / static_cast<double>(stride_));
    sum_ = 0;
    in_sum_ = 0;
  }
  if (losses_.size() == kMostLosses) {
    for (size_t i = 0; i < kMostLosses / 2; ++i)
      losses_[i] = (losses_[2 * i] + losses_[2 * i + 1]) / 2;
    losses_.resize(kMostLosses / 2);
    stride_ *= 2;
  }
  fp8_layers_ = record.fp8_layers;
  fallbacks_ = record.fp8_fallbacks;
  if (record.fp8_tensors.empty()) return;
  Health health;
  for (const Fp8Tensor& t : record.fp8_tensors) {
    if (!t.trouble.empty() && health.troubled++ == 0) health.worst_layer = t.layer;
    health.underflow = std::max(health.underflow, t.health.underflowed_percent());
    health.saturation = std::max(health.saturation, t.health.saturated_percent());
  }
  health_ = std::move(health);
}

void Watch::add(const Flag& flag) {
  const auto same = std::erase_if(flags_, [&](const Flag& f) { return f.name == flag.name; });
  if (!flag.over)
    flags_.push_back(flag);
  else
    over_ += static_cast<int64_t>(same);
}

std::string Watch::fp8_health() const {
  if (fp8_layers_ == 0 && fallbacks_ == 0) return "";
  std::string text = "fp8 ";
  if (!health_)
    text += "not looked at yet";
  else
    text += (health_->troubled > 0 ? health_->worst_layer + " in trouble" : std::string("ok")) +
            printed(" (under %.1f%%,", health_->underflow) +
            printed(" over %.2f%%)", health_->saturation);
  if (fallbacks_ > 0) text += str(", ", fallbacks_, " in BF16");
  return text;
}

std::string Watch::flags() const {
  const std::string past = over_ > 0 ? str(over_, " over") : "";
  if (flags_.empty()) return past.empty() ? "no flags" : "no flags now, " + past;
  return str(flags_.size(), flags_.size() == 1 ? " flag: " : " flags, last: ", flags_.back().name,
             " at step ", flags_.back().step, past.empty() ? "" : ", " + past);
}

std::string Watch::line(size_t columns) const {
  const auto done = static_cast<double>(step_ - first_step_);
  const auto total = static_cast<double>(max_steps_ - first_step_);
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 1;
  const double rate = window_.rate();
  const std::string left = rate > 0 ? format_duration((total - done) / rate) + " left" : "";
  const std::string percent = printed(" %.0f%%", 100 * share);
  const std::string loss = printed("loss %.4f", loss_);
  const std::string speed = printed("%.*f steps/s", rate < 10 ? 2 : 0, rate);
  const std::string health = fp8_health();
  const auto joined = [](std::initializer_list<std::string> parts) {
    std::string text;
    for (const std::string& part : parts)
      if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
    return text;
  };
  const std::string wide = loss + " " + sparkline(losses_, kSparkline);
  const std::string narrow = loss + " " + sparkline(losses_, kShortSparkline);
  const std::string count = str(flags_.size(), flags_.size() == 1 ? " flag" : " flags");
  const std::string brief = health.empty()                     ? ""
                            : health_ && health_->troubled > 0 ? "fp8 trouble"
                                                               : "fp8 ok";
  const std::string begin = bar(share, kShortBar) + percent;
  // From all there is to say down to what must be said.
  for (const std::string& text :
       {joined({bar(share, kBar) + percent, left, speed, wide, health, flags()}),
        joined({begin, left, speed, narrow, health, flags()}),
        joined({begin, left, narrow, brief, flags()}),
        joined({begin, left, narrow, brief,
                flags_.empty() ? count : count + ": " + flags_.back().name}),
        joined({begin, left, narrow, brief, count}), joined({begin, left, loss, count}),
        joined({begin, left, count}), joined({begin, left})})
    if (columns_of(text) < columns) return text;
  return percent.substr(1);
}

WatchDisplay::WatchDisplay(int64_t first_step, int64_t max_steps)
    : watch_(first_step, max_steps),
      start_(Clock::now()),
      drawn_at_(start_),
      on_terminal_(Progress::on_terminal()) {}

WatchDisplay::~WatchDisplay() {
  clear();
}

void WatchDisplay::add(const StepRecord& record) {
  if (!on_terminal_) return;
  watch_.add(record, std::chrono::duration<double>(Clock::now() - start_).count());
  draw();
}

void WatchDisplay::add(const Flag& flag) {
  if (on_terminal_) watch_.add(flag);
}

void WatchDisplay::draw() {
  const auto now = Clock::now();
  if (drawn_ && now - drawn_at_ < kPeriod) return;
  drawn_at_ = now;
  std::fprintf(stderr, "\r\033[K%s", watch_.line(terminal_columns(STDERR_FILENO)).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void WatchDisplay::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace octavo::monitor
