#include "train/evaluate.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "eval/hellaswag.h"
#include "eval/loss.h"
#include "train/dataset.h"
#include "train/state/model_tokenizer.h"

namespace octavo::train {
namespace {

int64_t samples_of(int64_t batches, int64_t rows) {
  return batches > INT64_MAX / rows ? INT64_MAX : batches * rows;
}

struct StoppedInBetween {};

// Whether a rank was asked to stop: a notice is for saving. Ranks ask together, every few batches,
// since one that left alone would be waited for.
class StopQuestion {
 public:
  explicit StopQuestion(dist::World& world) : world_(world) {}

  bool operator()() {
    if (world_.size() == 1) return stop_requested();
    return asked_++ % kEvery == 0 && ask(true).stop;
  }

  // Of a rank that has no more to ask. True: others had, and all are to stop.
  bool wait_for_others() {
    for (;;) {
      const Answer answer = ask(false);
      if (!answer.somebody_goes_on) return false;
      if (answer.stop) return true;
    }
  }

 private:
  static constexpr int64_t kEvery = 4;
  struct Answer {
    bool stop, somebody_goes_on;
  };

  Answer ask(bool goes_on) {
    at::Tensor any = at::tensor({stop_requested() ? 1 : 0, goes_on ? 1 : 0}, at::kInt);
    world_.max(any, "whether a rank was asked to stop");
    return {any[0].item<int32_t>() != 0, any[1].item<int32_t>() != 0};
  }

  dist::World& world_;
  int64_t asked_ = 0;
};

// Nothing: `leaves` said so, on all ranks alike.
std::optional<monitor::EvalRecord> evaluated(Run& run, const std::function<bool()>& leaves) {
  const auto& s = run.settings;
  // The same samples after batch_size was lowered in the middle of a run.
  const int64_t most = run.batching.eval_samples > 0 ? run.batching.eval_samples
                                                     : samples_of(s.eval_batches, s.batch_size);
  eval::LossSum sum;
  try {
    sum = eval::sum_loss(*run.trained.engine, *run.trained.model,
                         {run.data.val, s.max_seq_length, s.batch_size, most, run.world.rank(),
                          run.world.size(), skips_damaged(s), document_end(s, *run.data.tokenizer)},
                         [&](int64_t, int64_t) {
                           if (leaves()) throw StoppedInBetween();
                         });
  } catch (const StoppedInBetween&) {
    return std::nullopt;
  }
  at::Tensor all = at::tensor({sum.loss, static_cast<double>(sum.tokens)}, at::kDouble);
  run.world.sum(all, "validation loss");
  sum = {all[0].item<double>(), static_cast<int64_t>(all[1].item<double>())};
  monitor::EvalRecord record = sum.record();
  record.step = run.progress.step;
  return record;
}

}  // namespace

monitor::EvalRecord evaluate(Run& run) {
  return *evaluated(run, [] { return false; });
}

std::optional<monitor::EvalRecord> evaluate_unless_stopped(Run& run) {
  StopQuestion asked(run.world);
  return evaluated(run, [&] { return asked(); });
}

std::optional<monitor::TaskRecord> evaluate_hellaswag(Run& run) {
  const auto& s = run.settings;
  StopQuestion asked(run.world);
  std::optional<monitor::TaskRecord> record;
  bool stopped = false;
  try {
    const eval::HellaSwagResult found = eval::hellaswag(
        *run.trained.engine, *run.trained.model, *run.data.tokenizer, run.data.hellaswag,
        s.eval_hellaswag_rows,
        [&](const eval::HellaSwagRow&) {
          if (asked()) throw StoppedInBetween();
        },
        /*shows_progress=*/false);
    record = {.step = run.progress.step,
              .rows = found.rows,
              .acc = found.acc(),
              .acc_norm = found.acc_norm()};
  } catch (const StoppedInBetween&) {
    stopped = true;
  } catch (const Error& error) {
    // A benchmark is not worth a run: bad rows, a tokenizer or a model that cannot be asked.
    if (error.code() != ExitCode::kUsage && error.code() != ExitCode::kDamaged &&
        error.code() != ExitCode::kGuard)
      throw;
    log_warn_once(str("no HellaSwag: ", error.what()));
  }
  if (!stopped) stopped = asked.wait_for_others();
  if (!stopped) return record;
  run.progress.stop_agreed = run.progress.evaluation_left_out = true;
  log_info("HellaSwag waits for the resume: the run was asked to stop");
  return std::nullopt;
}

monitor::EvalRecord evaluate_model(const Loaded& loaded, const config::Settings& settings) {
  config::Settings s = settings;
  std::string fingerprint = loaded.tokenizer_fingerprint;
  // A checkpoint knows its tokenizer's, wherever the file is now.
  if (fingerprint.empty() || !s.tokenizer.empty())
    fingerprint = tokenizer_of(loaded, s.tokenizer)->fingerprint();
  if (s.tokenizer.empty()) s.tokenizer = loaded.tokenizer;
  const DataSet set = open_data_set(s);
  if (set.train->tokenizer_fingerprint() != fingerprint)
    fail(ExitCode::kUsage, "train", "eval: wanted data of the model's tokenizer '", s.tokenizer,
         "', found data made with '", set.train->tokenizer_name(),
         "', whose ids mean other texts; give --dataset with the text itself, or prepare it with "
         "--tokenizer ",
         s.tokenizer);
  if (set.val == nullptr)
    fail(ExitCode::kUsage, "train",
         "eval: the data has no validation split; prepare it with val_fraction");
  if (loaded.model->vocab_size() < set.val->vocab_size())
    fail(ExitCode::kUsage, "train", "eval: the data has a vocabulary of ", set.val->vocab_size(),
         ", the model of ", loaded.model->vocab_size(),
         "; prepare the data with the model's tokenizer");
  if (s.max_seq_length > loaded.model->context())
    fail(ExitCode::kUsage, "train", "eval: wanted max_seq_length of at most ",
         loaded.model->context(), ", the model's longest sequence, found ", s.max_seq_length);
  octavo::Progress bar("eval", 1, "");
  const int64_t most = s.eval_limit > 0 ? samples_of(s.eval_limit, s.batch_size) : INT64_MAX;
  eval::Samples samples{set.val, s.max_seq_length, s.batch_size, most};
  if (s.document_mask) samples.document_end = document_end(s, *tokenizer_of(loaded, s.tokenizer));
  const eval::LossSum sum =
      eval::sum_loss(*loaded.engine, *loaded.model, samples, [&](int64_t done, int64_t of) {
        bar.set(static_cast<double>(done) / static_cast<double>(of));
      });
  bar.finish();
  return sum.record();
}

}  // namespace octavo::train
