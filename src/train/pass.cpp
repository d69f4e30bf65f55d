#include "train/pass.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "base/heartbeat.h"
#include "base/rank_status.h"
#include "base/signals.h"
#include "engine/range.h"
#include "models/device_batch.h"
#include "nn/loss.h"
#include "train/lora_run.h"
#include "train/source_loss.h"

namespace octavo::train {
namespace {

using config::PenaltyType;

// Of the loss that balances experts.
double balance_weight(const config::Settings& s, const nn::Routing& routing) {
  return s.router_aux_loss_coef >= 0 ? s.router_aux_loss_coef : routing.sizes().balance_weight;
}

// `loss_scale`: of one token in the loss of the step.
MicroBatch forward_backward(const config::Settings& s, int ranks, TrainedModel& trained,
                            const models::DeviceBatch& batch, double loss_scale) {
  const bool on_activations = s.penalty_weight > 0 && s.penalty_type != PenaltyType::kZLoss;
  nn::Penalty penalty{.kind = s.penalty_type == PenaltyType::kKurtosis
                                  ? nn::PenaltyKind::kKurtosis
                                  : nn::PenaltyKind::kActivationL2,
                      .gradient_scale = s.penalty_weight /
                                        static_cast<double>(s.gradient_accumulation_steps * ranks)};
  const nn::LossOptions options{
      .classes = trained.model->vocab_size(),
      .gradient_scale = loss_scale,
      .z_weight = s.penalty_type == PenaltyType::kZLoss ? s.penalty_weight : 0,
      .want_each = batch.sources.of_rows.defined()};

  nn::Loss loss;
  nn::Routing* routing = trained.model->routing();
  if (routing != nullptr) {
    const double share = 1 / static_cast<double>(s.gradient_accumulation_steps * ranks);
    routing->begin_pass(share * balance_weight(s, *routing), share * s.router_z_loss_coef);
  }
  {
    const engine::Range range("forward");
    const at::Tensor hidden =
        trained.model->hidden(batch.tokens, on_activations ? &penalty : nullptr);
    loss = nn::head_loss(*trained.engine, hidden, trained.model->head(), batch.targets, options);
  }
  const engine::Range range("backward");
  torch::autograd::backward({loss.root}, {});
  return {loss.sums, penalty.total, routing != nullptr ? routing->end_pass() : at::Tensor(),
          loss.each.defined() ? sums_by_source(loss.each, batch.sources) : at::Tensor()};
}

// The number of this rank's first token in the order of all that are trained on (data/sampler.h).
uint64_t first_token(const dist::World& world, const data::Batch& batch) {
  const auto rows = static_cast<uint64_t>(batch.rows), ranks = static_cast<uint64_t>(world.size()),
             rank = static_cast<uint64_t>(world.rank());
  return (batch.after.samples - rows * ranks + rows * rank) * static_cast<uint64_t>(batch.length);
}

MicroBatch run_micro_batch(const config::Settings& settings, const dist::World& world,
                           TrainedModel& trained, const data::Batch& batch, double loss_scale,
                           StepGraph::Place place) {
  const auto pass = [&](const models::DeviceBatch& it) {
    return forward_backward(settings, world.size(), trained, it, loss_scale);
  };
  if (trained.lora != nullptr) trained.lora->begin_pass(first_token(world, batch));
  if (trained.fp8 != nullptr) trained.fp8->begin_pass(first_token(world, batch));
  MicroBatch result = trained.graph != nullptr
                          ? trained.graph->run(trained, batch, loss_scale, place, pass)
                          : pass(models::to_device(batch, trained.device()));
  if (trained.lora != nullptr) trained.lora->end_pass();
  return result;
}

void join_ranks(dist::World& world, const TrainedModel& trained, at::Tensor& sums,
                at::Tensor& penalty, at::Tensor& routing) {
  world.sum(sums, "loss");
  if (penalty.defined()) world.sum(penalty, "penalty");
  if (routing.defined()) world.sum(routing, "routing");
  if (at::Tensor amaxes = trained.fp8 != nullptr ? trained.fp8->amaxes() : at::Tensor();
      amaxes.defined())
    world.max(amaxes, "magnitudes");
}

// Delayed scales move on after each micro-batch, as in Transformer Engine (fp8_update); after the
// last one with the step, which may be skipped.
void finish_pass(dist::World& world, TrainedModel& trained) {
  if (trained.fp8 == nullptr || !trained.fp8->updates_each_pass()) return;
  const at::NoGradGuard no_grad;
  at::Tensor amaxes = trained.fp8->amaxes();
  world.max(amaxes, "magnitudes of a pass");
  trained.fp8->finish_pass();
}

// Where each number lies in the one copy that a step sends to the host. The first five are summed
// over ranks; then the norms' squares follow, one per group, the FP8 statistics, delayed scales'
// magnitudes, what routers said (Routing::end_pass), the sources' losses (sums_by_source), and what
// ranks told each other.
enum Slot : int64_t {
  kLoss,       // over tokens
  kLogSumExp,  // squared, over tokens: z-loss
  kProbes,     // not finite when a GEMM's output was not
  kGradients,  // of this rank, after they were reduced: not finite on one rank must be known to all
  kStopAsked,  // ranks that were asked to stop
  kPenalty,    // of activations
  kNorms,      // the first of them
};

// What ranks sum up: the slots after loss and logsumexp^2, and the sources' losses.
at::Tensor with_own_state(const nn::Probes& probes, const at::Tensor& sums,
                          const at::Tensor& squares, const at::Tensor& sources) {
  const at::Tensor stop_asked = at::full({1}, stop_requested() ? 1.0 : 0.0, sums.options());
  std::vector<at::Tensor> parts = {sums, probes.total(), squares.sum().reshape({1}), stop_asked};
  if (sources.defined()) parts.push_back(sources);
  return at::cat(parts);
}

// What is before the ranks' own seconds.
enum News : int64_t { kNextTokens, kSaveDue, kSavesFail, kSeconds };

// To be summed over ranks: the tokens of all, what some ask for, and each one's seconds at a place
// of its own.
at::Tensor told(const RankNews& news, const dist::World& world, at::Device device) {
  const at::Tensor host = at::zeros({kSeconds + (news.seconds ? world.size() : 0)},
                                    at::TensorOptions(at::kDouble).pinned_memory(device.is_cuda()));
  auto* number = host.mutable_data_ptr<double>();
  number[kNextTokens] = news.next_tokens;
  number[kSaveDue] = news.save_due ? 1 : 0;
  number[kSavesFail] = news.saves_fail ? 1 : 0;
  if (news.seconds) number[kSeconds + world.rank()] = *news.seconds;
  return host.to(device, /*non_blocking=*/true);
}

void take_news(const at::Tensor& heard, StepStats& stats) {
  const auto* number = heard.const_data_ptr<double>();
  stats.next_tokens = number[kNextTokens];
  stats.save_due = number[kSaveDue] > 0;
  stats.saves_fail = number[kSavesFail] > 0;
  stats.rank_seconds.assign(number + kSeconds, number + heard.numel());
}

// The wait for the device.
at::Tensor on_host(const at::Tensor& numbers) {
  const heartbeat::Waiting waiting(heartbeat::Wait::kDevice);
  return numbers.cpu();
}

// `sums`: the slots before kPenalty, `of_sources` numbers of sums_by_source(), and what ranks told
// each other.
StepStats read_stats(TrainedModel& trained, const at::Tensor& sums, int64_t of_sources,
                     const at::Tensor& penalty, const at::Tensor& routing, at::Tensor squares) {
  const at::Tensor none = at::zeros({1}, sums.options());
  if (trained.sharding != nullptr) trained.sharding->sum_squares(squares);
  std::vector<at::Tensor> parts = {sums.narrow(0, 0, kPenalty),
                                   penalty.defined() ? penalty.reshape({1}).to(at::kDouble) : none,
                                   squares};
  const at::Tensor fp8_stats = trained.fp8 != nullptr ? trained.fp8->stats() : at::Tensor();
  if (fp8_stats.defined()) parts.push_back(fp8_stats);
  const at::Tensor fp8_magnitudes =
      trained.fp8 != nullptr ? trained.fp8->step_magnitudes() : at::Tensor();
  const int64_t magnitudes_at =
      kNorms + squares.numel() + (fp8_stats.defined() ? fp8_stats.numel() : 0);
  if (fp8_magnitudes.defined()) parts.push_back(fp8_magnitudes.flatten().to(at::kDouble));
  if (routing.defined()) parts.push_back(routing);
  const int64_t heard = sums.numel() - kPenalty;
  if (heard > 0) parts.push_back(sums.narrow(0, kPenalty, heard));
  const at::Tensor all = on_host(at::cat(parts));
  const auto* slot = all.const_data_ptr<double>();
  if (fp8_stats.defined())
    trained.fp8->take_stats(all.narrow(0, kNorms + squares.numel(), fp8_stats.numel()));
  double magnitudes = 0;
  if (fp8_magnitudes.defined() && trained.has_numbers)
    magnitudes = trained.fp8->take_magnitudes(all.narrow(0, magnitudes_at, fp8_magnitudes.numel()));
  StepStats stats{.loss = slot[kLoss],
                  .z = slot[kLogSumExp],
                  .penalty = slot[kPenalty],
                  .has_penalty = penalty.defined(),
                  .probes = slot[kProbes] + slot[kGradients] + magnitudes,
                  // Where there are no numbers, ranks stop each by itself.
                  .stop_asked = trained.has_numbers ? slot[kStopAsked] > 0 : stop_requested(),
                  .save_due = false,
                  .saves_fail = false,
                  .norm = trained.optimizer->gradient_norm(all.narrow(0, kNorms, squares.numel())),
                  .next_tokens = 0,
                  .rank_seconds = {},
                  .routing = {},
                  .sources = {}};
  if (routing.defined()) {
    const double* first = slot + all.numel() - heard - routing.numel();
    stats.routing.assign(first, first + routing.numel());
  }
  const double* first_source = slot + all.numel() - heard;
  stats.sources.assign(first_source, first_source + of_sources);
  if (const int64_t told = heard - of_sources; told > 0)
    take_news(all.narrow(0, all.numel() - told, told), stats);
  return stats;
}

}  // namespace

void begin_step(dist::World& world, TrainedModel& trained, int64_t step, bool repeated) {
  world.set_step(step);
  heartbeat::beats().step.store(step, std::memory_order_relaxed);
  own_page().step.store(step, std::memory_order_relaxed);
  if (trained.device_progress != nullptr) trained.device_progress->begin_step();
  trained.probes->begin_step(repeated);
  if (trained.fp8 != nullptr) trained.fp8->begin_step(step);
  if (trained.sharding != nullptr)
    trained.sharding->gather_plain(trained.fp8 != nullptr && trained.fp8->measuring());
}

StepStats run_passes(const config::Settings& settings, dist::World& world, TrainedModel& trained,
                     const std::vector<data::Batch>& batches, double tokens,
                     const std::function<RankNews()>& news) {
  at::Tensor sums = at::zeros({2}, at::TensorOptions(trained.device()).dtype(at::kDouble));
  at::Tensor penalty, routing, sources;
  for (const data::Batch& batch : batches) {
    const StepGraph::Place place{.accumulates = settings.gradient_accumulation_steps > 1,
                                 .is_last = &batch == &batches.back()};
    if (trained.sharding != nullptr) trained.sharding->begin_pass(place.is_last);
    const MicroBatch result = run_micro_batch(settings, world, trained, batch, 1 / tokens, place);
    if (trained.sharding != nullptr) trained.sharding->end_pass();
    if (trained.device_progress != nullptr) trained.device_progress->after_pass();
    if (!place.is_last) finish_pass(world, trained);
    sums += result.sums;
    if (result.penalty.defined())
      penalty = penalty.defined() ? penalty + result.penalty : result.penalty;
    if (result.routing.defined())
      routing = routing.defined() ? routing + result.routing : result.routing;
    if (result.sources.defined())
      sources = sources.defined() ? sources + result.sources : result.sources;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor squares = trained.optimizer->gradient_squares();
  sums = with_own_state(*trained.probes, sums, squares, sources);
  std::optional<RankNews> own;
  if (news && world.size() > 1) {
    own = news();
    sums = at::cat({sums, told(*own, world, trained.device())});
  }
  join_ranks(world, trained, sums, penalty, routing);
  const int64_t of_sources = sources.defined() ? sources.numel() : 0;
  StepStats stats = read_stats(trained, sums, of_sources, penalty, routing, squares);
  if (own && !trained.has_numbers) {  // nothing was summed
    stats.next_tokens = own->next_tokens * world.size();
    if (own->seconds) stats.rank_seconds.assign(static_cast<size_t>(world.size()), *own->seconds);
    stats.save_due = false;  // of the first rank alone: the others would not know
    stats.saves_fail = own->saves_fail;
  }
  return stats;
}

void try_pass(const config::Settings& settings, int ranks, TrainedModel& trained,
              const data::Batch& batch) {
  const double loss_scale = 1 / std::max(static_cast<double>(batch.loss_tokens), 1.0);
  if (trained.lora != nullptr) trained.lora->begin_pass(0);
  if (trained.sharding != nullptr) trained.sharding->begin_pass(/*last=*/true);
  forward_backward(settings, ranks, trained, models::to_device(batch, trained.device()),
                   loss_scale);
  if (trained.sharding != nullptr) trained.sharding->end_pass();
}

}  // namespace octavo::train
