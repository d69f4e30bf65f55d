#pragma once
// What a run's folder holds, as its page shows it: config.yaml, metrics.jsonl, incidents.jsonl,
// restarts.jsonl, receipt.json, samples/. The folder may come from anywhere: sizes are bounded,
// what is missing or cannot be read is a remark.

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "config/settings.h"
#include "run_report/buckets.h"
#include "run_report/samples.h"
#include "run_report/tensor_history.h"

namespace octavo::run_report {

// Of every step, in the order of step_metrics().
enum class StepField : uint8_t {
  kLoss,
  kLearningRate,
  kGradNorm,
  kTokensPerSecond,
  kSeconds,
  kDataWait,
  kPeakBytes,
  kKeptBytes,
  kMfu,
  kSlowestRank,
  kForwardScale,
  kBackwardScale,
  kFullestExpert,
  kEmptiestExpert,
  kIdleExperts,
  kBalanceLoss,
  kTokens,
  kOutside,  // seconds between this step and the one before that no step has: from goodput
  kSkipped,  // seconds of a step that was skipped
  kCount
};

struct Event {
  std::string type;  // incident, restart, flag, fallback
  int64_t step = 0;
  std::string name;  // "spike"
  std::string what, action;
};

// Seconds of the run, as its records tell.
struct TimeUse {
  double steps = 0, data_wait = 0, skipped = 0, outside = 0;
  // In steps that were learned from, without waiting for data.
  double useful() const { return steps - data_wait - skipped; }
};

struct Evaluation {
  int64_t step = 0;
  double loss = 0;
};

struct RunContents {
  fs::path folder;
  Buckets steps, evaluations;  // evaluations: field 0 is the loss
  int64_t step_records = 0, last_step = 0, skipped_steps = 0, lost_losses = 0;
  double tokens = 0, tokens_per_second = 0;  // the latter over all steps' own time
  TimeUse time;
  std::optional<double> last_loss;
  std::optional<Evaluation> best;
  std::string precision;  // of the last step
  TensorHistory tensors;
  std::vector<Event> events;  // by step
  int64_t incidents = 0, restarts = 0, flags = 0, events_left_out = 0;
  Json receipt = Json::object();
  std::optional<config::Settings> settings;  // none: config.yaml is missing or cannot be read
  std::vector<Sample> samples;
  int64_t bad_lines = 0, repeated_steps = 0;
  std::vector<std::string> remarks;

  RunContents();
  std::string name() const;    // the folder's own
  std::string status() const;  // of the receipt; "" when it has none
};

// The metric in metrics.jsonl of a field; "" of what is computed from others.
const char* metric_of(StepField field);

// Fails (kUsage) when the folder has neither metrics.jsonl nor receipt.json.
RunContents read_contents(const fs::path& folder);

// The parts of it, in this order: restarts come first because they say where clocks began anew.
void read_receipt(RunContents& run);
void read_restarts(RunContents& run);
void read_metrics(RunContents& run);
void read_incidents(RunContents& run);

void add_event(RunContents& run, Event event);

}  // namespace octavo::run_report
