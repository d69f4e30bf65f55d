// metrics.jsonl, record by record: it may be hundreds of megabytes.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/lines.h"
#include "run_report/json_values.h"
#include "run_report/run_contents.h"

namespace octavo::run_report {
namespace {

constexpr size_t kLongestRecord = size_t{16} << 20;  // FP8 statistics of a large model are long
constexpr size_t kLongestFlagText = 2000;

constexpr auto index_of(StepField field) {
  return static_cast<size_t>(field);
}

class MetricsReader {
 public:
  explicit MetricsReader(RunContents& run) : run_(run) {
    for (const Event& event : run.events)
      if (event.type == "restart") restarts_.push_back(event.step);
    std::ranges::sort(restarts_);
  }

  // False: it is no record of a run.
  bool take(const Json& record) {
    const auto step = step_in(record);
    if (!step) return false;
    if (record.contains("train/loss"))
      take_step(*step, record);
    else if (record.contains("val/loss"))
      take_evaluation(*step, record);
    else if (record.contains("flag"))
      take_flag(*step, record);
    else
      return record.contains("eval/hellaswag_acc_norm");
    return true;
  }

  void finish() {
    if (seconds_of_speed_ > 0) run_.tokens_per_second = tokens_of_speed_ / seconds_of_speed_;
  }

 private:
  void take_step(int64_t step, const Json& record) {
    run_.repeated_steps += run_.step_records > 0 && step <= run_.last_step;
    ++run_.step_records;
    run_.last_step = std::max(run_.last_step, step);
    run_.steps.begin(step);
    for (size_t i = 0; i < index_of(StepField::kCount); ++i) {
      const char* const metric = metric_of(static_cast<StepField>(i));
      // null is a number that was not finite.
      if (*metric != '\0' && record.contains(metric))
        run_.steps.add(i, finite_in(record, metric).value_or(std::nan("")));
    }
    run_.last_loss = finite_in(record, "train/loss");
    run_.lost_losses += !run_.last_loss;
    run_.tokens = std::max(run_.tokens, finite_in(record, "tokens").value_or(0));
    if (std::string precision = text_in(record, "precision", 40); !precision.empty())
      run_.precision = std::move(precision);
    take_times(step, record);
    if (const auto tensors = record.find("fp8/tensors"); tensors != record.end())
      run_.tensors.add(step, *tensors);
  }

  // goodput is the share of useful seconds since the start: with the useful ones of the records it
  // tells how long the run took beside its steps (evaluations, checkpoints, samples, the start).
  void take_times(int64_t step, const Json& record) {
    const auto seconds_of = [&](const char* name) {
      return std::max(0.0, finite_in(record, name).value_or(0));
    };
    const double seconds = seconds_of("perf/step_seconds");
    const double wait = std::min(seconds, seconds_of("data/wait"));
    const bool skipped = record.contains("train/skipped");
    run_.skipped_steps += skipped;
    run_.time.steps += seconds;
    run_.time.data_wait += skipped ? 0 : wait;
    run_.time.skipped += skipped ? seconds : 0;
    if (skipped) run_.steps.add(index_of(StepField::kSkipped), seconds);
    if (const double speed = seconds_of("perf/tokens_per_second"); speed > 0 && seconds > 0) {
      seconds_of_speed_ += seconds;
      tokens_of_speed_ += speed * seconds;
    }
    while (next_restart_ < restarts_.size() && step > restarts_[next_restart_]) {
      ++next_restart_;
      useful_ = elapsed_ = 0;
    }
    useful_ += skipped ? 0 : seconds - wait;
    const double goodput = seconds_of("goodput");
    const double elapsed = goodput > 0 ? useful_ / goodput : elapsed_ + seconds;
    const double outside = std::max(0.0, elapsed - elapsed_ - seconds);
    elapsed_ = elapsed;
    run_.time.outside += outside;
    run_.steps.add(index_of(StepField::kOutside), outside);
  }

  void take_evaluation(int64_t step, const Json& record) {
    const auto loss = finite_in(record, "val/loss");
    run_.evaluations.begin(step);
    run_.evaluations.add(0, loss.value_or(std::nan("")));
    if (loss && (!run_.best || *loss < run_.best->loss)) run_.best = Evaluation{step, *loss};
  }

  void take_flag(int64_t step, const Json& record) {
    ++run_.flags;
    add_event(run_,
              {"flag", step, text_in(record, "flag", 80), text_in(record, "seen", kLongestFlagText),
               text_in(record, "remedy", kLongestFlagText)});
  }

  RunContents& run_;
  std::vector<int64_t> restarts_;
  size_t next_restart_ = 0;
  double useful_ = 0, elapsed_ = 0;  // since the last start
  double seconds_of_speed_ = 0, tokens_of_speed_ = 0;
};

}  // namespace

const char* metric_of(StepField field) {
  static constexpr const char* kMetrics[] = {"train/loss",
                                             "train/learning_rate",
                                             "train/grad_norm",
                                             "perf/tokens_per_second",
                                             "perf/step_seconds",
                                             "data/wait",
                                             "memory/peak_bytes",
                                             "memory/kept_bytes",
                                             "perf/mfu",
                                             "perf/slowest_rank_seconds",
                                             "fp8/fwd_scale",
                                             "fp8/bwd_scale",
                                             "moe/fullest_share",
                                             "moe/emptiest_share",
                                             "moe/idle_experts",
                                             "moe/balance_loss",
                                             "tokens",
                                             "",
                                             ""};
  static_assert(std::size(kMetrics) == index_of(StepField::kCount));
  return kMetrics[index_of(field)];
}

void read_metrics(RunContents& run) {
  const fs::path path = run.folder / "metrics.jsonl";
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    run.remarks.push_back("metrics.jsonl is missing: the run ended before its first step");
    return;
  }
  MetricsReader reader(run);
  const int64_t too_long = for_each_line(path, kLongestRecord, [&](std::string_view line) {
    try {
      run.bad_lines += !reader.take(parse_json(line, path.string(), {kLongestRecord, 16}));
    } catch (const Error&) {
      ++run.bad_lines;
    }
  });
  run.bad_lines += too_long;
  reader.finish();
  if (run.bad_lines > 0)
    run.remarks.push_back(
        str("metrics.jsonl: ", run.bad_lines, " lines are no records and were left out"));
  if (run.repeated_steps > 0)
    run.remarks.push_back(str("metrics.jsonl: ", run.repeated_steps,
                              " steps stand there more than once; all of them are drawn"));
  if (run.step_records == 0) run.remarks.push_back("metrics.jsonl has no step");
}

}  // namespace octavo::run_report
