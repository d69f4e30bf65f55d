#include "train/step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "engine/allocator.h"
#include "engine/range.h"
#include "nn/loss.h"
#include "train/batch.h"
#include "train/lora_run.h"

namespace octavo::train {
namespace {

using config::PenaltyType;

// More steps in a row that had to be dropped are no accident.
constexpr int64_t kMostSkippedInARow = 10;

// `share`: of one token in the loss of the step.
MicroBatch forward_backward(Run& run, const DeviceBatch& batch, double share) {
  const auto& s = run.settings;
  const bool on_activations = s.penalty_weight > 0 && s.penalty_type != PenaltyType::kZLoss;
  nn::Penalty penalty{
      .kind = s.penalty_type == PenaltyType::kKurtosis ? nn::PenaltyKind::kKurtosis
                                                       : nn::PenaltyKind::kActivationL2,
      .gradient_scale =
          s.penalty_weight / static_cast<double>(s.gradient_accumulation_steps * run.world.size())};
  const nn::LossOptions options{
      .classes = run.model->vocab_size(),
      .gradient_scale = share,
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

MicroBatch run_micro_batch(Run& run, const data::Batch& batch, double share) {
  const auto pass = [&](const DeviceBatch& it) { return forward_backward(run, it, share); };
  if (run.lora != nullptr) run.lora->begin_pass(batch.after.samples);
  MicroBatch result = run.graph != nullptr ? run.graph->run(run, batch, share, pass)
                                           : pass(to_device(batch, run.engine->target.device));
  if (run.lora != nullptr) run.lora->end_pass();
  return result;
}

// The micro-batches of a step, and how many tokens all ranks learn from in it. All are read first:
// each learned token counts the same, however many a micro-batch has. In the same message ranks
// tell each other that they were asked to stop, and how long their last step took them.
std::pair<std::vector<data::Batch>, double> read_batches(Run& run) {
  const engine::Range range("read data");
  std::vector<data::Batch> batches;
  double learned = 0;
  for (int64_t i = 0; i < run.settings.gradient_accumulation_steps; ++i) {
    batches.push_back(run.loader->next());
    learned += static_cast<double>(batches.back().learned);
  }
  const int ranks = run.world.size();
  at::Tensor told = at::zeros({2 + ranks}, at::kDouble);
  auto* number = told.mutable_data_ptr<double>();
  number[0] = learned;
  number[1] = stop_requested() ? 1 : 0;
  number[2 + run.world.rank()] = run.own_seconds;
  run.world.sum(told, "tokens of the step");
  number = told.mutable_data_ptr<double>();
  run.progress.stop_agreed = number[1] > 0;
  if (ranks > 1) run.rank_seconds.assign(number + 2, number + 2 + ranks);
  return {std::move(batches), std::max(number[0], 1.0)};
}

// What the host must know of a step before it updates: read in one copy, the only time that a step
// waits for its device.
struct Figures {
  double loss = 0, z = 0, penalty = 0;  // sums over tokens, or micro-batches
  optim::AdamW::Norm norm;
};

Figures read_figures(const Run& run, const at::Tensor& sums, const at::Tensor& penalty) {
  const at::NoGradGuard no_grad;
  const at::Tensor extra =
      penalty.defined() ? penalty.reshape({1}).to(at::kDouble) : at::zeros({1}, sums.options());
  at::Tensor squares = run.optimizer->gradient_squares();
  if (run.sharding != nullptr) run.sharding->sum_squares(squares);
  const at::Tensor all = at::cat({sums, extra, squares}).cpu();
  const auto* value = all.const_data_ptr<double>();
  return {value[0], value[1], value[2],
          run.optimizer->gradient_norm(all.narrow(0, 3, all.numel() - 3))};
}

// Applies the gradient, or drops it when it is not finite and the FP8 guard may go on without it.
// Returns whether it was applied.
bool update(Run& run, const optim::AdamW::Norm& norm, double learning_rate) {
  const engine::Range range("update");
  auto& progress = run.progress;
  if (norm.not_finite.empty()) {
    if (run.saver != nullptr) run.saver->before_update();
    run.batching.updating = true;
    run.optimizer->step(learning_rate, norm);
    if (run.sharding != nullptr) run.sharding->weights_changed();
    run.batching.updating = false;
    progress.skipped_in_a_row = 0;
    return true;
  }
  const std::string what = str("the gradient of ", norm.not_finite, " is not finite at step ",
                               progress.step + 1, "; no update was applied");
  const bool guarded = run.fp8 != nullptr && run.settings.fp8_guard != config::Fp8Guard::kOff;
  if (!guarded || progress.skipped_in_a_row >= kMostSkippedInARow)
    fail(ExitCode::kGuard, "train", what,
         ". Lower learning_rate, or resume from an earlier checkpoint with another seed");
  log_warn(what + ", training goes on (fp8_guard)");
  run.optimizer->drop_gradients();
  ++progress.skipped_steps;
  ++progress.skipped_in_a_row;
  return false;
}

void begin_step(Run& run) {
  const int64_t step = run.progress.step + 1;
  run.world.set_step(step);
  if (run.fp8 != nullptr) run.fp8->begin_step(step);
  if (run.sharding != nullptr)
    run.sharding->gather_plain(run.fp8 != nullptr && run.fp8->measuring());
}

void join_ranks(Run& run, at::Tensor& sums, at::Tensor& penalty) {
  run.world.sum(sums, "loss");
  if (penalty.defined()) run.world.sum(penalty, "penalty");
  if (at::Tensor amaxes = run.fp8 != nullptr ? run.fp8->amaxes() : at::Tensor(); amaxes.defined())
    run.world.max(amaxes, "magnitudes");
}

void report_fp8(const Run& run, std::vector<nn::Fp8TensorReport> reports,
                monitor::StepRecord& record) {
  record.fp8_layers = run.fp8->layers_in_fp8();
  record.fp8_fallbacks = static_cast<int64_t>(run.fp8->fallbacks().size());
  for (auto& r : reports)
    record.fp8_tensors.push_back({std::move(r.layer), std::move(r.tensor),
                                  r.role == fp8::Role::kGradient, r.health, std::move(r.trouble)});
}

void report_memory(const Run& run, monitor::StepRecord& record) {
  const engine::MemoryUse memory = engine::memory_of(run.engine->target.device);
  record.memory_peak_bytes = static_cast<double>(memory.peak);
  record.memory_kept_bytes = static_cast<double>(memory.in_use);
}

// What a step's times are counted from.
struct Clocks {
  explicit Clocks(const Run& run)
      : waited_for_data(run.loader->wait_seconds()), waited_for_ranks(run.world.waited_seconds()) {}
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double waited_for_data, waited_for_ranks;
};

void report_times(Run& run, const Clocks& before, monitor::StepRecord& record) {
  const Clocks now(run);
  record.seconds = std::chrono::duration<double>(now.start - before.start).count();
  record.tokens_per_second = static_cast<double>(run.tokens_per_step()) / record.seconds;
  record.data_wait_seconds = now.waited_for_data - before.waited_for_data;
  record.rank_seconds = run.rank_seconds;
  run.own_seconds = record.seconds - (now.waited_for_ranks - before.waited_for_ranks);
}

}  // namespace

monitor::StepRecord train_step(Run& run) {
  const engine::Range range("step", run.progress.step + 1);
  const Clocks before(run);
  auto& progress = run.progress;
  monitor::StepRecord record;
  begin_step(run);

  // 1. Forward and backward over the micro-batches; gradients add up in FP32, and over ranks under
  // the backward pass.
  const auto [batches, tokens] = read_batches(run);
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
  progress.position = batches.back().after;
  record.epoch =
      static_cast<int64_t>((progress.position.samples - 1) / run.loader->samples_per_epoch());

  // 2. One loss and one scale for all ranks.
  join_ranks(run, sums, penalty);

  // 3. The loss is looked at before it is learned from.
  const Figures figures = read_figures(run, sums, penalty);
  record.loss = figures.loss / tokens;
  if (!std::isfinite(record.loss))
    fail(ExitCode::kGuard, "train", "the loss of step ", progress.step + 1, " is ", record.loss,
         "; no update was applied. Lower learning_rate, or resume from the last checkpoint");

  // 4. Clip and update; the BF16 weights are written in the same pass. Then the FP8 scales.
  record.learning_rate = optim::learning_rate(progress.step, run.schedule);
  record.grad_norm = figures.norm.value;
  record.skipped = !update(run, figures.norm, record.learning_rate);
  if (run.fp8 != nullptr)
    report_fp8(run, record.skipped ? run.fp8->drop_step() : run.fp8->finish_step(), record);

  // 5. What happened.
  for (const data::Batch& batch : batches) run.samples_left_out += batch.left_out;
  progress.step += 1;
  progress.tokens += static_cast<uint64_t>(run.tokens_per_step());
  record.step = progress.step;
  record.tokens = progress.tokens;
  record.precision = run.precision();
  if (penalty.defined())
    record.penalty =
        figures.penalty /
        static_cast<double>(run.settings.gradient_accumulation_steps * run.world.size());
  else if (run.settings.penalty_weight > 0)
    record.penalty = figures.z / tokens;
  report_memory(run, record);
  report_times(run, before, record);
  return record;
}

void try_pass(Run& run, const data::Batch& batch) {
  const double share = 1 / std::max(static_cast<double>(batch.learned), 1.0);
  if (run.lora != nullptr) run.lora->begin_pass(0);
  if (run.sharding != nullptr) run.sharding->begin_pass(/*last=*/true);
  forward_backward(run, to_device(batch, run.engine->target.device), share);
  if (run.sharding != nullptr) run.sharding->end_pass();
}

}  // namespace octavo::train
