#include "train/evaluate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/progress.h"
#include "engine/range.h"
#include "nn/loss.h"
#include "train/batch.h"
#include "train/dataset.h"
#include "train/model_tokenizer.h"

namespace octavo::train {
namespace {

struct Samples {
  std::shared_ptr<data::TokenData> data;
  int64_t length = 0;
  int64_t rows = 0;         // in a batch
  int64_t most = 0;         // samples
  int rank = 0, ranks = 1;  // that share the batches
  bool skip_damaged = false;
};

struct LossSum {
  double loss = 0;
  int64_t tokens = 0;
  monitor::EvalRecord record() const {
    return {.val_loss = loss / static_cast<double>(std::max<int64_t>(tokens, 1)), .tokens = tokens};
  }
};

int64_t samples_of(int64_t batches, int64_t rows) {
  return batches > INT64_MAX / rows ? INT64_MAX : batches * rows;
}

// Leaves out the rows from `kept` on: the loader went round to the split's beginning.
void drop_rows(data::Batch& batch, int64_t kept) {
  if (kept >= batch.rows) return;
  const auto first = batch.targets.begin() + std::max<int64_t>(kept, 0) * batch.length;
  batch.learned -= std::count_if(first, batch.targets.end(), [](int32_t t) { return t >= 0; });
  std::fill(first, batch.targets.end(), -1);
}

// Over the first samples, always the same ones, whatever the batch; of several ranks each has its
// share of them.
LossSum sum_loss(const engine::Engine& engine, const models::Model& model, const Samples& samples,
                 const std::function<void(int64_t done, int64_t of)>& on_batch) {
  const at::NoGradGuard no_grad;
  const engine::Range range("evaluation");
  const auto count = static_cast<int64_t>(data::sample_count(*samples.data, samples.length));
  const int64_t rows = std::min(samples.rows, count);
  const int64_t wanted = std::min(samples.most, count);
  const int64_t batches = (wanted + rows - 1) / rows;  // the last may be part of one
  data::Loader loader(samples.data,
                      {.rows = rows,
                       .length = samples.length,
                       .seed = 0,
                       .shuffle = false,
                       .rank = samples.rank,
                       .world = samples.ranks,
                       .skip_damaged = samples.skip_damaged},
                      {});
  const nn::LossOptions options{.classes = model.vocab_size(), .want_gradient = false};
  int64_t tokens = 0;
  at::Tensor sums = at::zeros({2}, at::TensorOptions(engine.target.device).dtype(at::kDouble));
  for (int64_t i = 0; i < batches; i += samples.ranks) {
    data::Batch batch = loader.next();
    drop_rows(batch, wanted - (i + samples.rank) * rows);
    const DeviceBatch on_device = to_device(batch, engine.target.device);
    const at::Tensor hidden = model.hidden(on_device.tokens, nullptr);
    const at::Tensor found =
        nn::head_loss(engine, hidden, model.head(), on_device.targets, options).sums;
    // The last round may have fewer batches than ranks; weights that come and go need all of them.
    if (i + samples.rank < batches) {
      sums += found;
      tokens += batch.learned;
    }
    on_batch(std::min(i + samples.ranks, batches), batches);
  }
  return {sums[0].item<double>(), tokens};
}

}  // namespace

monitor::EvalRecord evaluate(Run& run) {
  const auto& s = run.settings;
  // The same samples after batch_size was lowered in the middle of a run.
  const int64_t most = run.batching.eval_samples > 0 ? run.batching.eval_samples
                                                     : samples_of(s.eval_batches, s.batch_size);
  LossSum sum = sum_loss(*run.engine, *run.model,
                         {run.val_data, s.max_seq_length, s.batch_size, most, run.world.rank(),
                          run.world.size(), skips_damaged(s)},
                         [](int64_t, int64_t) {});
  at::Tensor all = at::tensor({sum.loss, static_cast<double>(sum.tokens)}, at::kDouble);
  run.world.sum(all, "validation loss");
  sum = {all[0].item<double>(), static_cast<int64_t>(all[1].item<double>())};
  monitor::EvalRecord record = sum.record();
  record.step = run.progress.step;
  return record;
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
         "', whose ids mean other texts; say --dataset with the text itself, or prepare it with "
         "--tokenizer ",
         s.tokenizer);
  if (set.val == nullptr)
    fail(ExitCode::kUsage, "train",
         "eval: the data has no validation split; prepare it with val_fraction");
  if (loaded.model->vocab_size() < set.val->vocab_size())
    fail(ExitCode::kUsage, "train", "eval: the data has a vocabulary of ", set.val->vocab_size(),
         ", the model of ", loaded.model->vocab_size(),
         "; prepare the data with the model's tokenizer");
  octavo::Progress bar("eval", 1, "");
  const int64_t most = s.eval_limit > 0 ? samples_of(s.eval_limit, s.batch_size) : INT64_MAX;
  const LossSum sum =
      sum_loss(*loaded.engine, *loaded.model, {set.val, s.max_seq_length, s.batch_size, most},
               [&](int64_t done, int64_t of) {
                 bar.set(static_cast<double>(done) / static_cast<double>(of));
               });
  bar.finish();
  return sum.record();
}

}  // namespace octavo::train
