#include "train/pass.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/signals.h"
#include "engine/range.h"
#include "models/device_batch.h"
#include "nn/loss.h"
#include "train/lora_run.h"

namespace octavo::train {
namespace {

using config::PenaltyType;

// `loss_scale`: of one token in the loss of the step.
MicroBatch forward_backward(Run& run, const models::DeviceBatch& batch, double loss_scale) {
  const auto& s = run.settings;
  const bool on_activations = s.penalty_weight > 0 && s.penalty_type != PenaltyType::kZLoss;
  nn::Penalty penalty{
      .kind = s.penalty_type == PenaltyType::kKurtosis ? nn::PenaltyKind::kKurtosis
                                                       : nn::PenaltyKind::kActivationL2,
      .gradient_scale =
          s.penalty_weight / static_cast<double>(s.gradient_accumulation_steps * run.world.size())};
  const nn::LossOptions options{
      .classes = run.model->vocab_size(),
      .gradient_scale = loss_scale,
      .z_weight = s.penalty_type == PenaltyType::kZLoss ? s.penalty_weight : 0};

  nn::Loss loss;
  {
    const engine::Range range("forward");
    const at::Tensor hidden = run.model->hidden(batch.tokens, on_activations ? &penalty : nullptr);
    loss = nn::head_loss(*run.engine, hidden, run.model->head(), batch.targets, options);
  }
  const engine::Range range("backward");
  torch::autograd::backward({loss.root}, {});
  return {loss.sums, penalty.total};
}

// The number of this rank's first token in the order of all that are trained on (data/sampler.h).
uint64_t first_token(const Run& run, const data::Batch& batch) {
  const auto rows = static_cast<uint64_t>(batch.rows),
             ranks = static_cast<uint64_t>(run.world.size()),
             rank = static_cast<uint64_t>(run.world.rank());
  return (batch.after.samples - rows * ranks + rows * rank) * static_cast<uint64_t>(batch.length);
}

MicroBatch run_micro_batch(Run& run, const data::Batch& batch, double loss_scale) {
  const auto pass = [&](const models::DeviceBatch& it) {
    return forward_backward(run, it, loss_scale);
  };
  if (run.lora != nullptr) run.lora->begin_pass(first_token(run, batch));
  MicroBatch result = run.graph != nullptr
                          ? run.graph->run(run, batch, loss_scale, pass)
                          : pass(models::to_device(batch, run.engine->target.device));
  if (run.lora != nullptr) run.lora->end_pass();
  return result;
}

void join_ranks(Run& run, at::Tensor& sums, at::Tensor& penalty) {
  run.world.sum(sums, "loss");
  if (penalty.defined()) run.world.sum(penalty, "penalty");
  if (at::Tensor amaxes = run.fp8 != nullptr ? run.fp8->amaxes() : at::Tensor(); amaxes.defined())
    run.world.max(amaxes, "magnitudes");
}

// Where each number lies in the one copy that a step sends to the host. The first five are summed
// over ranks; then the norms' squares follow, one per group, and the FP8 statistics.
enum Slot : int64_t {
  kLoss,       // over tokens
  kLogSumExp,  // squared, over tokens: z-loss
  kProbes,     // not finite when a GEMM's output was not
  kGradients,  // of this rank, after they were reduced: not finite on one rank must be known to all
  kStopAsked,  // ranks that were asked to stop
  kPenalty,    // of activations
  kAmax,       // of all FP8 tensors together
  kNorms,      // the first of them
};

// The slots that ranks sum up, after loss and logsumexp^2.
at::Tensor with_own_state(const Run& run, const at::Tensor& sums, const at::Tensor& squares) {
  const at::Tensor stop_asked = at::full({1}, stop_requested() ? 1.0 : 0.0, sums.options());
  return at::cat({sums, run.probes->total(), squares.sum().reshape({1}), stop_asked});
}

// `sums`: the slots before kPenalty.
StepStats read_stats(Run& run, const at::Tensor& sums, const at::Tensor& penalty,
                     at::Tensor squares) {
  const at::Tensor none = at::zeros({1}, sums.options());
  const at::Tensor amaxes = run.fp8 != nullptr ? run.fp8->amaxes() : at::Tensor();
  if (run.sharding != nullptr) run.sharding->sum_squares(squares);
  std::vector<at::Tensor> parts = {
      sums, penalty.defined() ? penalty.reshape({1}).to(at::kDouble) : none,
      amaxes.defined() ? amaxes.sum(at::kDouble).reshape({1}) : none, squares};
  const at::Tensor fp8_stats = run.fp8 != nullptr ? run.fp8->stats() : at::Tensor();
  if (fp8_stats.defined()) parts.push_back(fp8_stats);
  const at::Tensor all = at::cat(parts).cpu();  // the wait for the device
  const auto* slot = all.const_data_ptr<double>();
  if (fp8_stats.defined())
    run.fp8->take_stats(all.narrow(0, kNorms + squares.numel(), fp8_stats.numel()));
  return {.loss = slot[kLoss],
          .z = slot[kLogSumExp],
          .penalty = slot[kPenalty],
          .has_penalty = penalty.defined(),
          .probes = slot[kProbes] + slot[kGradients] + slot[kAmax],
          .stop_asked = slot[kStopAsked] > 0,
          .norm = run.optimizer->gradient_norm(all.narrow(0, kNorms, squares.numel()))};
}

}  // namespace

void begin_step(Run& run) {
  const int64_t step = run.progress.step + 1;
  run.world.set_step(step);
  run.probes->begin_step();
  if (run.fp8 != nullptr) run.fp8->begin_step(step);
  if (run.sharding != nullptr)
    run.sharding->gather_plain(run.fp8 != nullptr && run.fp8->measuring());
}

StepStats run_passes(Run& run, const std::vector<data::Batch>& batches, double tokens) {
  at::Tensor sums = at::zeros({2}, at::TensorOptions(run.engine->target.device).dtype(at::kDouble));
  at::Tensor penalty;
  for (const data::Batch& batch : batches) {
    if (run.sharding != nullptr) run.sharding->begin_pass(&batch == &batches.back());
    const MicroBatch result = run_micro_batch(run, batch, 1 / tokens);
    if (run.sharding != nullptr) run.sharding->end_pass();
    sums += result.sums;
    if (result.penalty.defined())
      penalty = penalty.defined() ? penalty + result.penalty : result.penalty;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor squares = run.optimizer->gradient_squares();
  sums = with_own_state(run, sums, squares);
  join_ranks(run, sums, penalty);
  return read_stats(run, sums, penalty, squares);
}

void try_pass(Run& run, const data::Batch& batch) {
  const double loss_scale = 1 / std::max(static_cast<double>(batch.loss_tokens), 1.0);
  if (run.lora != nullptr) run.lora->begin_pass(0);
  if (run.sharding != nullptr) run.sharding->begin_pass(/*last=*/true);
  forward_backward(run, models::to_device(batch, run.engine->target.device), loss_scale);
  if (run.sharding != nullptr) run.sharding->end_pass();
}

}  // namespace octavo::train
