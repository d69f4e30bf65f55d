#include "verify/training.h"

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/first_line.h"
#include "base/log.h"
#include "train/run.h"
#include "train/step.h"
#include "verify/temporary_folder.h"

namespace octavo::verify {
namespace {

constexpr int64_t kSteps = 60, kAveraged = 10;
// Loss of the last steps, FP8 against BF16, on a model that is far smaller than any that FP8 is
// made for. 0.2% to 1.2% was seen in rehearsal; a wrong scale or layout gives tens.
constexpr double kMostGap = 0.02;
// Text of few words is learned quickly: from 5.6 to 1.2 was seen.
constexpr double kMaxLossRatio = 0.7;

config::Settings tiny_settings(const config::Settings& asked, const fs::path& folder) {
  config::Settings s;
  s.device = asked.device;
  s.num_threads = asked.num_threads;
  s.fp8_backend = asked.fp8_backend;
  s.use_te = asked.use_te;
  s.model_name = "custom";
  s.n_layer = 2;
  s.n_head = 2;
  s.n_embd = 128;  // blockwise wants multiples of 128
  s.max_seq_length = 64;
  s.batch_size = 8;
  s.dataset = {(folder / "text.txt").string()};
  s.data_cache = (folder / "cache").string();
  s.tokenizer = "bytes";
  s.max_steps = kSteps;
  s.learning_rate = 3e-3;
  s.warmup_steps = 5;
  s.fp8_stats_freq = 0;
  return s;
}

// Steps until the end or a problem.
void train_on(const config::Settings& settings, TinyRun& result) {
  const auto start = std::chrono::steady_clock::now();
  try {
    const auto run = train::assemble(settings);
    result.precision = run->trained.precision();
    double last = 0;
    for (int64_t i = 0; i < kSteps; ++i) {
      const double loss = train::train_step(*run).loss;
      if (i == 0) result.first_loss = loss;
      if (i >= kSteps - kAveraged) last += loss;
      ++result.steps;
    }
    result.last_loss = last / kAveraged;
  } catch (const std::exception& error) {
    result.problem = first_line(error.what());
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Finding judge_run(const TinyRun& run, const TinyRun& bf16, bool wants_native) {
  const bool is_fp8 = &run != &bf16;
  Finding f{Section::kTraining, run.name, Status::kOk, "", "", ""};
  const auto rounded = [](double x) { return std::round(1000 * x) / 1000; };
  f.found = str(run.precision, ": loss ", rounded(run.first_loss), " to ", rounded(run.last_loss),
                " in ", run.steps, " steps");
  if (!run.problem.empty()) {
    f.status = Status::kFail;
    f.wanted = str(kSteps, " steps");
    f.found = str("stopped after ", run.steps, " steps: ", run.problem);
    f.fix = "see the kernels above: the first that fails is the one to look at";
    return f;
  }
  f.wanted = str("a loss that falls below ", kMaxLossRatio, " of the first");
  if (!(run.last_loss < kMaxLossRatio * run.first_loss)) {
    f.status = Status::kFail;
    f.fix = "it does not learn: see the kernels above, or report it with verify's --output file";
    return f;
  }
  if (!is_fp8 || !bf16.problem.empty()) return f;
  const double gap = run.last_loss / bf16.last_loss - 1;
  f.wanted = str("a loss within ", 100 * kMostGap, " % of BF16's",
                 wants_native ? ", in FP8 matrix units" : "");
  f.found += str(", ", gap < 0 ? "" : "+", std::round(1000 * gap) / 10, " % against BF16");
  if (!(std::fabs(gap) <= kMostGap)) {
    f.status = Status::kFail;
    f.fix = "do not train in this recipe here: report it with verify's --output file";
  } else if (wants_native && !run.precision.starts_with("FP8")) {
    f.status = Status::kFail;
    f.fix = "FP8 was asked for and something else ran: see the GPU and libraries above";
  }
  return f;
}

}  // namespace

std::string synthetic_text() {
  constexpr const char* kWords[] = {"the ",  "step ",  "of ",   "a ",     "scale ", "and ",
                                    "bits ", "learn ", "from ", "eight ", "is ",    "small "};
  std::string text;
  uint32_t state = 7;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 1664525 + 1013904223;
    text += kWords[(state >> 16) % std::size(kWords)];
    if (i % 11 == 10) text += "\n";
  }
  return text;
}

std::vector<TinyRun> train_tiny(const config::Settings& settings,
                                const std::vector<fp8::Recipe>& recipes,
                                const std::function<void(const std::string&)>& said) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "text.txt", synthetic_text());
  std::vector<TinyRun> runs;
  set_log_level(LogLevel::kWarn);  // each run would tell its whole story
  const auto train_one = [&](const std::string& name, const config::Settings& s) {
    said(name);
    runs.push_back({.name = name});
    train_on(s, runs.back());
  };
  config::Settings s = tiny_settings(settings, folder.path());
  train_one("bf16", s);
  s.use_fp8 = true;
  for (const fp8::Recipe recipe : recipes) {
    s.fp8_recipe = recipe;
    train_one("fp8 " + std::string(config::name_of(recipe)), s);
  }
  set_log_level(LogLevel::kInfo);
  return runs;
}

std::vector<Finding> judge_training(const std::vector<TinyRun>& runs, bool wants_native) {
  std::vector<Finding> out;
  for (const TinyRun& run : runs) out.push_back(judge_run(run, runs.front(), wants_native));
  return out;
}

}  // namespace octavo::verify
