#include "train/evaluate.h"

#include <ATen/ATen.h>

#include "nn/loss.h"
#include "train/batch.h"

namespace octavo::train {

monitor::EvalRecord evaluate(const Run& run) {
  const at::NoGradGuard no_grad;
  const auto& s = run.settings;
  const auto samples =
      static_cast<int64_t>(data::sample_count(run.val_data->tokens(), s.max_seq_length));
  const int64_t rows = std::min(s.batch_size, samples);
  const int64_t batches = std::min(s.eval_batches, samples / rows);
  data::Loader loader(run.val_data,
                      {.rows = rows, .length = s.max_seq_length, .seed = 0, .shuffle = false}, {});
  const nn::LossOptions options{.classes = run.model->vocab_size(), .want_gradient = false};
  at::Tensor sums = at::zeros({2}, at::TensorOptions(run.engine->target.device).dtype(at::kDouble));
  for (int64_t i = 0; i < batches; ++i) {
    const data::Batch batch = loader.next();
    const DeviceBatch on_device = to_device(batch, run.engine->target.device);
    const at::Tensor hidden = run.model->hidden(on_device.inputs, batch.length, nullptr);
    sums += nn::head_loss(*run.engine, hidden, run.model->head(), on_device.targets, options).sums;
  }
  const int64_t tokens = batches * rows * s.max_seq_length;
  return {.step = run.progress.step,
          .val_loss = sums[0].item<double>() / static_cast<double>(tokens),
          .tokens = tokens};
}

}  // namespace octavo::train
