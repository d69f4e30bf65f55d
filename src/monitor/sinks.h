#pragma once
// Where step records go. A sink never throws into the training loop: what it cannot write it counts
// and says once.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "monitor/step_record.h"

namespace octavo::monitor {

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_step(const StepRecord& record) = 0;
  virtual void on_eval(const EvalRecord& record) = 0;
  virtual void on_task(const TaskRecord&) {}
  virtual void on_sample(const SampleRecord&) {}
  virtual void on_flag(const Flag&) {}
  // No record is due, and the run gets on: its last upload does.
  virtual void on_alive() {}
  // The run's end, with the exit code of the process.
  virtual void on_end(int /*exit_code*/) {}
  virtual int64_t failures() const { return 0; }
  virtual std::string_view name() const = 0;
  // More that is worth counting, for the receipt; may be asked from another thread.
  virtual std::vector<std::pair<std::string, int64_t>> counts() const { return {}; }
};

// The step line on stdout every `log_freq` steps and, on a terminal, the watch line (watch.h).
// Whoever reads stdout may hold it up: it belongs behind a queue of its own.
std::unique_ptr<Sink> make_console_sink(int64_t first_step, int64_t max_steps, int64_t log_freq);

// One JSON object a line. Records of steps after `last_step` (a run that was resumed earlier) are
// dropped first.
std::unique_ptr<Sink> make_jsonl_sink(const fs::path& path, int64_t last_step);

// One file for each sample: step-<n>.txt.
std::unique_ptr<Sink> make_samples_sink(const fs::path& folder);

// What matters least is left out of more than `columns`. 0: nothing is.
std::string step_line(const StepRecord& record, size_t columns = 0);

}  // namespace octavo::monitor
