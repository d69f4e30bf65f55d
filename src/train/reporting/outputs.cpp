#include "train/reporting/outputs.h"

#include <algorithm>

#include "base/log.h"
#include "config/print.h"
#include "engine/allocator.h"
#include "monitor/background.h"
#include "monitor/history.h"
#include "run_report/page.h"
#include "train/guards/ledger.h"
#include "train/reporting/fp8_report.h"
#include "train/reporting/peaks.h"
#include "train/reporting/receipt.h"
#include "train/reporting/restart_ledger.h"

namespace octavo::train {
namespace {

// A flag's line comes after the step's; when nobody reads those, it does not wait for them.
constexpr std::chrono::milliseconds kFlagPatience{100};

std::unique_ptr<monitor::RedFlags> make_flags(const Run& run, const fs::path& folder) {
  const auto& s = run.settings;
  const double baseline = monitor::baseline_speed(s.bf16_baseline);
  if (baseline > 0 && run.trained.fp8 == nullptr)
    log_info("bf16_baseline: this run is not in FP8, so there is nothing to compare");
  if (baseline > 0 && run.trained.fp8 != nullptr)
    log_info(str("bf16_baseline: ", baseline, " tokens per second"));
  auto flags = std::make_unique<monitor::RedFlags>(
      monitor::FlagOptions{.plateau_steps = s.plateau_steps,
                           .bf16_baseline = baseline,
                           .uniform_loss = run.trained.has_numbers ? run.trained.uniform_loss() : 0,
                           .warmup_steps = run.schedule.warmup_steps});
  // What was usual before the resume still is.
  if (run.progress.step > 0)
    for (const auto& step : monitor::read_last_steps(folder / "metrics.jsonl", run.progress.step))
      flags->remember(step);
  return flags;
}

}  // namespace

Outputs::Outputs(const Run& run) : run_(run), first_tokens_(run.progress.tokens) {
  const auto& s = run.settings;
  folder_ = run_folder(s);
  damage_ = std::make_unique<DamageLedger>(folder_, run.world.rank());
  if (!run.world.is_first()) return;
  fs::create_directories(folder_);
  write_file_atomic(folder_ / "config.yaml", config::to_yaml(s));
  write_restart(folder_, run_.resumed, run_.world.size(), restart_cause());
  flags_ = make_flags(run, folder_);
  save_receipt("running", {});
  console_ = monitor::open_console(run.progress.step, run.schedule.max_steps, s.log_freq);
  background_ = monitor::open_background_sinks(
      s, folder_, run.progress.step, peaks_of(run.trained, s.max_seq_length, run.world.size()));
}

void Outputs::on_step(monitor::StepRecord record) {
  damage_->update(run_.data, run_.progress.step);
  if (!writes()) return;
  ++steps_;
  if (steps_ == 1 && !run_.resumed.from.empty()) save_receipt("running", {});  // of this start
  step_seconds_ += record.seconds;
  last_loss_ = record.loss;
  write_incidents();
  const auto flags = flags_->on_step(record);
  record.flags = flags_->total();
  console_->on_step(record);
  background_->on_step(record);
  for (const monitor::Flag& flag : flags) say(flag);
  say_ended(record.step);
}

void Outputs::on_eval(const monitor::EvalRecord& record) {
  if (!writes()) return;
  if (record.best) best_step_ = record.step;
  console_->on_eval(record);
  background_->on_eval(record);
  for (const monitor::Flag& flag : flags_->on_eval(record)) say(flag);
  say_ended(record.step);
}

void Outputs::on_task(const monitor::TaskRecord& record) {
  if (!writes()) return;
  console_->on_task(record);
  background_->on_task(record);
}

void Outputs::on_sample(const monitor::SampleRecord& record) {
  if (!writes()) return;
  background_->on_sample(record);
}

void Outputs::on_alive() {
  if (writes()) background_->on_alive();
}

void Outputs::say(const monitor::Flag& flag) {
  console_->on_flag(flag);
  background_->on_flag(flag);
  console_->settle(kFlagPatience);
  log_warn(str("flag ", flag.name, " at step ", flag.step, ": ", flag.seen,
               "\n  remedy: ", flag.remedy));
}

// On the terminal and in the log. metrics.jsonl has what was seen, and not when it passed.
void Outputs::say_ended(int64_t step) {
  for (const monitor::Flag& flag : flags_->take_ended(step)) {
    console_->on_flag(flag);
    console_->settle(kFlagPatience);
    log_info(str("flag ", flag.name, " is over at step ", step, " (", flag.seen, ")"));
  }
}

void Outputs::write_incidents() {
  for (; incidents_written_ < run_.guards.incidents.size(); ++incidents_written_)
    append_to_ledger(folder_ / "incidents.jsonl", run_.guards.incidents[incidents_written_].json());
}

void Outputs::on_guard(const Error& error) {
  if (!writes()) return;
  const bool spikes =
      !run_.guards.incidents.empty() && run_.guards.incidents.back().kind == IncidentKind::kSpike;
  say(flags_->on_guard(run_.progress.step + 1, error.what(), spikes));
  end(str("ended by a guard: ", error.what()), error.code());
}

void Outputs::end(const std::string& status, ExitCode code) {
  damage_->update(run_.data, run_.progress.step);
  if (!writes()) return;
  write_incidents();
  if (const std::string words = flags_->final_remark(); !words.empty()) log_warn(words);
  console_->on_end(static_cast<int>(code));
  background_->on_end(static_cast<int>(code));
  Json sinks = background_->receipt();
  sinks["sinks"]["console"] = {{"failures", console_->failures()}};
  save_receipt(status, sinks);
  write_page();
}

RunSummary Outputs::summary() const {
  const TrainedModel& trained = run_.trained;
  const Progress& progress = run_.progress;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  RunSummary s;
  s.steps = steps_;
  s.seconds = seconds.count();
  s.step_seconds = step_seconds_;
  s.tokens = progress.tokens - std::min(first_tokens_, progress.tokens);
  s.peak_bytes = static_cast<double>(engine::memory_of(trained.device()).peak);
  s.precision = trained.precision();
  if (trained.fp8 != nullptr) {
    s.fp8_backend = trained.fp8_decision->backend;
    s.fp8_share = fp8_share(gemm_lines(trained, run_.settings.max_seq_length));
  }
  s.last_loss = last_loss_;
  if (progress.has_best) s.best_val_loss = progress.best_val_loss;
  s.best_step = best_step_;
  s.incidents = run_.guards.incidents.size();
  s.skipped_steps = progress.skipped_steps;
  const Json restarts = restarts_receipt(folder_);
  s.resumes = restarts["resumed"].get<int64_t>();
  s.failures = restarts["after_failures"].get<int64_t>();
  for (const auto& item : restarts["causes"].items()) s.failure_kinds.push_back(item.key());
  if (flags_ != nullptr) {
    s.flags = flags_->total();
    s.open_flags = flags_->open();
  }
  s.folder = folder_;
  s.page = page_;
  return s;
}

void Outputs::write_page() {
  try {
    page_ = run_report::write_page(folder_);
  } catch (const std::exception& error) {
    log_warn(str("the run's page cannot be written (", error.what(), "); octavo report ",
                 folder_.string(), " tries again"));
  }
}

void Outputs::save_receipt(const std::string& status, const Json& sinks) {
  Json counted = sinks;
  if (receipts_lost_ > 0) counted["receipts_lost"] = receipts_lost_;
  try {
    write_receipt(run_, folder_, status, steps_, counted, flags_->receipt());
  } catch (const std::exception& error) {
    ++receipts_lost_;
    log_warn(str("receipt.json cannot be written (", error.what(),
                 "); the run continues as it would have"));
  }
}

}  // namespace octavo::train
