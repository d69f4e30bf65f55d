#include "eval/loss.h"

#include <ATen/ATen.h>

#include "base/heartbeat.h"
#include "engine/range.h"
#include "models/device_batch.h"
#include "nn/loss.h"

namespace octavo::eval {
namespace {

// Leaves out the rows from `kept` on: the loader went round to the split's beginning.
void drop_rows(data::Batch& batch, int64_t kept) {
  if (kept >= batch.rows) return;
  const auto first = batch.targets.begin() + std::max<int64_t>(kept, 0) * batch.length;
  batch.loss_tokens -= std::count_if(first, batch.targets.end(), [](int32_t t) { return t >= 0; });
  std::fill(first, batch.targets.end(), -1);
}

}  // namespace

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
                       .skip_damaged = samples.skip_damaged,
                       .document_end = samples.document_end},
                      {});
  const nn::LossOptions options{.classes = model.vocab_size(), .want_gradient = false};
  int64_t tokens = 0;
  at::Tensor sums = at::zeros({2}, at::TensorOptions(engine.target.device).dtype(at::kDouble));
  for (int64_t i = 0; i < batches; i += samples.ranks) {
    data::Batch batch = loader.next();
    drop_rows(batch, wanted - (i + samples.rank) * rows);
    const models::DeviceBatch on_device = models::to_device(batch, engine.target.device);
    const at::Tensor hidden = model.hidden(on_device.tokens, nullptr);
    const at::Tensor found =
        nn::head_loss(engine, hidden, model.head(), on_device.targets, options).sums;
    // The last round may have fewer batches than ranks; weights that come and go need all of them.
    if (i + samples.rank < batches) {
      sums += found;
      tokens += batch.loss_tokens;
    }
    on_batch(std::min(i + samples.ranks, batches), batches);
  }
  const heartbeat::Waiting waiting(heartbeat::Wait::kDevice);
  return {sums[0].item<double>(), tokens};
}

}  // namespace octavo::eval
