#pragma once
// What a run says and writes while it trains: its folder, the sinks, the red flags. The first rank
// does it for all; the others keep a ledger of damaged data, if there is any.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "monitor/async_sink.h"
#include "monitor/red_flags.h"
#include "train/guards/damage_ledger.h"
#include "train/reporting/summary.h"
#include "train/run.h"

namespace octavo::train {

class Outputs {
 public:
  // Gives the run's folder a config.yaml and a first receipt.
  explicit Outputs(const Run& run);

  bool writes() const { return console_ != nullptr; }
  const fs::path& folder() const { return folder_; }

  void on_step(monitor::StepRecord record);
  void on_eval(const monitor::EvalRecord& record);
  void on_task(const monitor::TaskRecord& record);
  void on_sample(const monitor::SampleRecord& record);
  void on_alive();  // the last upload gets on
  // A guard ends the run in the step after the last: the flag is raised and everything is written.
  void on_guard(const Error& error);
  // Writes what is left: the receipt, and the run's page from all of it.
  void end(const std::string& status, ExitCode code);
  const fs::path& page() const { return page_; }  // "": it could not be written
  // After end(), on the rank that writes: all but the checkpoints and the next commands.
  RunSummary summary() const;

 private:
  void say(const monitor::Flag& flag);
  void say_ended(int64_t step);
  void write_incidents();
  void write_page();
  void save_receipt(const std::string& status, const Json& sinks);

  const Run& run_;
  fs::path folder_, page_;
  std::unique_ptr<monitor::AsyncSink> console_, background_;  // two: one may hang without the other
  std::unique_ptr<monitor::RedFlags> flags_;
  std::unique_ptr<DamageLedger> damage_;  // on every rank
  size_t incidents_written_ = 0;
  int64_t receipts_lost_ = 0;
  // For the summary, of this start.
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  uint64_t first_tokens_ = 0;
  int64_t steps_ = 0;
  double step_seconds_ = 0, last_loss_ = 0;
  std::optional<int64_t> best_step_;
};

}  // namespace octavo::train
