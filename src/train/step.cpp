#include "train/step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/log_file.h"
#include "engine/allocator.h"
#include "engine/range.h"
#include "train/guards/bad_step.h"
#include "train/reporting/expert_load.h"
#include "train/run_schedule.h"
#include "train/source_loss.h"
#include "train/state/mixture_order.h"
#include "train/state/persist.h"

namespace octavo::train {
namespace {

StepData read_step(int64_t count, data::Loader& loader) {
  const engine::Range range("read data");
  StepData read;
  for (int64_t i = 0; i < count; ++i) {
    read.batches.push_back(loader.next());
    read.tokens += static_cast<double>(read.batches.back().loss_tokens);
    if (read.batches.back().after.samples == loader.end()) break;  // the last step may be short
  }
  return read;
}

// The data of this step, with the loss tokens of all ranks. Several ranks have read it, and told
// each other, in the step before; only their first step takes a message of its own.
StepData take_step(Run& run) {
  if (run.data.next) {
    StepData read = std::move(*run.data.next);
    run.data.next.reset();
    if (read.error) std::rethrow_exception(read.error);
    return read;
  }
  StepData read = read_step(run.settings.gradient_accumulation_steps, *run.data.loader);
  if (run.world.size() == 1) {
    read.tokens = std::max(read.tokens, 1.0);
    return read;
  }
  // On the device: over host sockets it would be the only collective of a step.
  at::Tensor tokens =
      at::full({1}, read.tokens, at::TensorOptions(run.trained.device()).dtype(at::kDouble));
  run.world.sum(tokens, "tokens of the first step");
  const double all =
      run.trained.has_numbers ? tokens.item<double>() : read.tokens * run.world.size();
  read.tokens = std::max(all, 1.0);
  return read;
}

// Reads the data of the step after the one whose passes have begun.
void read_ahead(Run& run, const StepData& now) {
  if (run.progress.step + 1 >= run.schedule.max_steps ||
      now.batches.back().after.samples == run.data.loader->end())
    return;
  try {
    run.data.next = read_step(run.settings.gradient_accumulation_steps, *run.data.loader);
  } catch (...) {  // of the next step
    run.data.next = StepData{.batches = {}, .tokens = 0, .error = std::current_exception()};
  }
}

// Their numbers, of all ranks, in the order of the data. A rank may have fewer than another in the
// last step.
std::vector<uint64_t> samples_of_all(int64_t batch_size, dist::World& world,
                                     const std::vector<data::Batch>& batches) {
  const auto rows = static_cast<size_t>(batch_size);
  std::vector<int64_t> own;
  for (const data::Batch& batch : batches) {
    own.insert(own.end(), batch.samples.begin(), batch.samples.end());
    own.insert(own.end(), rows - batch.samples.size(), -1);
  }
  const at::Tensor all = world.from_all(own, "samples of the step");
  const auto* number = all.const_data_ptr<int64_t>();
  std::vector<uint64_t> samples;
  for (size_t first = 0; first < own.size(); first += rows)
    for (size_t rank = 0; rank < static_cast<size_t>(world.size()); ++rank)
      for (size_t row = 0; row < rows; ++row)
        if (const int64_t sample = number[rank * own.size() + first + row]; sample >= 0)
          samples.push_back(static_cast<uint64_t>(sample));
  return samples;
}

void update(Run& run, const optim::Optimizer::Norm& norm, double learning_rate) {
  const engine::Range range("update");
  if (run.saver != nullptr) {
    const heartbeat::Exempt exempt("a checkpoint takes the weights before they change");
    run.saver->before_update();
  }
  run.batching.past_passes = true;
  run.trained.optimizer->step(learning_rate, norm);
  if (run.trained.sharding != nullptr) run.trained.sharding->weights_changed();
  run.progress.skipped_in_a_row = 0;
}

// New FP8 scales from the magnitudes of this step; a skipped step leaves them as they were.
void update_fp8_scales(nn::Fp8Model& fp8, monitor::StepRecord& record) {
  auto reports = record.skipped ? fp8.drop_step() : fp8.finish_step();
  record.fp8_layers = fp8.layers_in_fp8();
  record.fp8_fallbacks = static_cast<int64_t>(fp8.fallbacks().size());
  for (auto& r : reports)
    record.fp8_tensors.push_back({std::move(r.layer), std::move(r.tensor),
                                  r.role == fp8::Role::kGradient, r.health, std::move(r.trouble),
                                  r.channels});
}

void report_memory(at::Device device, monitor::StepRecord& record) {
  const engine::MemoryUse memory = engine::memory_of(device);
  record.memory_peak_bytes = static_cast<double>(memory.peak);
  record.memory_kept_bytes = static_cast<double>(memory.in_use);
}

// What a step's times are counted from.
struct Clocks {
  Clocks(const data::Loader& loader, const dist::World& world)
      : waited_for_data(loader.wait_seconds()), waited_for_ranks(world.waited_seconds()) {}
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double waited_for_data, waited_for_ranks;
};

// The seconds of all ranks are as many numbers: among many ranks they ride with a few steps only.
constexpr int64_t kSecondsPerStep = 64;

bool seconds_are_told(int64_t step, int ranks) {
  return step % std::max<int64_t>(1, ranks / kSecondsPerStep) == 0;
}

void report_times(const Clocks& before, const Clocks& now, double tokens, StepTimes& times,
                  monitor::StepRecord& record) {
  record.seconds = std::chrono::duration<double>(now.start - before.start).count();
  record.tokens_per_second = tokens / record.seconds;
  record.data_wait_seconds = now.waited_for_data - before.waited_for_data;
  record.rank_seconds = times.of_ranks;
  times.own = record.seconds - (now.waited_for_ranks - before.waited_for_ranks);
}

// Of a mixture: what came from each source so far, its loss in this step, and who left in it.
void report_sources(const Run& run, const std::vector<double>& sums, uint64_t before,
                    monitor::StepRecord& record) {
  const data::Position& now = run.progress.position;
  const data::MixedTokens* mixed = run.data.train->mixed();
  if (mixed == nullptr || now.mixture == nullptr) return;
  record.sources = source_uses(*mixed, now, run.settings.max_seq_length);
  if (run.trained.has_numbers) report_losses(sums, record.sources);
  for (const std::string& line : describe_changes(*mixed, *now.mixture, before, now.samples))
    log_info(str(line, " (step ", run.progress.step, ")"));
}

// With length_schedule: of this step's sequences.
void report_length(const Run& run, uint64_t before, monitor::StepRecord& record) {
  if (run.settings.length_schedule.empty()) return;
  const int ranks = run.world.size();
  record.sequence_length = sequence_length(run.settings, ranks, run.progress, before);
  const uint64_t now = run.progress.position.samples;
  if (const int64_t next = sequence_length(run.settings, ranks, run.progress, now);
      next != record.sequence_length)
    log_info(str("length_schedule: sequences of ", next, " tokens from step ",
                 run.progress.step + 1, " on, ", record.sequence_length, " before"));
}

// Where the run stands after the step, and what the step was like.
void fill_record(Run& run, const std::vector<data::Batch>& batches, double tokens,
                 const StepStats& stats, const Clocks& before, monitor::StepRecord& record) {
  auto& progress = run.progress;
  for (const data::Batch& batch : batches) run.data.samples_left_out += batch.left_out;
  const uint64_t samples = std::min(samples_per_step(run.settings, run.world.size()),
                                    batches.back().after.samples - progress.position.samples);
  const uint64_t read = samples * static_cast<uint64_t>(run.settings.max_seq_length);
  const uint64_t position_before = progress.position.samples;
  progress.position = batches.back().after;
  progress.step += 1;
  progress.tokens += read;
  record.epoch =
      static_cast<int64_t>((progress.position.samples - 1) / run.data.loader->samples_per_epoch());
  record.step = progress.step;
  record.tokens = progress.tokens;
  record.position = progress.position.samples;
  report_sources(run, stats.sources, position_before, record);
  report_length(run, position_before, record);
  if (run.settings.record_samples)
    record.samples = samples_of_all(run.settings.batch_size, run.world, batches);
  record.precision = run.trained.precision();
  if (stats.has_penalty)
    record.penalty = stats.penalty / static_cast<double>(std::ssize(batches) * run.world.size());
  else if (run.settings.penalty_weight > 0)
    record.penalty = stats.z / tokens;
  if (!stats.routing.empty() && run.trained.has_numbers)
    report_experts(run.trained.model->routing()->sizes(), stats.routing,
                   static_cast<double>(std::ssize(batches) * run.world.size()), record);
  report_memory(run.trained.device(), record);
  if (run.saver != nullptr) {
    const checkpoint::Saver::Counts saves = run.saver->counts();
    record.save_seconds = saves.last_seconds;
    record.failed_saves = saves.failed_in_a_row;
  }
  if (run.uploader != nullptr) {
    const checkpoint::Uploader::Counts uploads = run.uploader->counts();
    record.upload_seconds = uploads.last_seconds;
    record.failed_uploads = uploads.failed_in_a_row;
  }
  report_times(before, Clocks(*run.data.loader, run.world), static_cast<double>(read), run.times,
               record);
}

}  // namespace

monitor::StepRecord train_step(Run& run) {
  const engine::Range range("step", run.progress.step + 1);
  const Clocks before(*run.data.loader, run.world);
  monitor::StepRecord record;
  set_log_step(run.progress.step + 1);
  run.batching.past_passes = false;
  begin_step(run.world, run.trained, run.progress.step + 1);

  // 1. Forward and backward over the micro-batches; gradients add up in FP32, and over ranks under
  // the backward pass. One loss and one scale for all ranks.
  const StepData taken = take_step(run);
  const std::vector<data::Batch>& batches = taken.batches;
  const double tokens = taken.tokens;
  const StepStats stats =
      run_passes(run.settings, run.world, run.trained, batches, tokens, [&]() -> RankNews {
        read_ahead(run, taken);
        return {.next_tokens = run.data.next ? run.data.next->tokens : 0,
                .seconds = seconds_are_told(run.progress.step, run.world.size())
                               ? std::optional(run.times.own)
                               : std::nullopt,
                .save_due = run.world.is_first() && save_is_due_by_time(run),
                .saves_fail = saves_fail(run)};
      });
  if (run.data.next) run.data.next->tokens = std::max(stats.next_tokens, 1.0);
  run.times.of_ranks = stats.rank_seconds;
  run.progress.stop_agreed = stats.stop_asked;
  run.progress.save_agreed = run.world.size() == 1 ? save_is_due_by_time(run) : stats.save_due;
  run.progress.saves_fail = run.world.size() == 1 ? saves_fail(run) : stats.saves_fail;
  record.loss = stats.loss / tokens;
  record.grad_norm = stats.norm.value;
  record.learning_rate = optim::learning_rate(run.progress.step, run.schedule);

  // 2. A step with a loss spike or numbers that are not finite is skipped. Otherwise clip and
  // update; the BF16 weights are written in the same pass.
  if (auto incident = judge_step(run.settings.bad_steps, run.guards.losses, run.progress.step + 1,
                                 stats, record.loss)) {
    record.skipped = true;
    skip_step(run, std::move(*incident), batches, tokens);
    run.batching.past_passes = true;
  } else {
    update(run, stats.norm, record.learning_rate);
    run.guards.losses.add(record.loss);
  }

  // 3. FP8 scales for the next step.
  if (run.trained.fp8 != nullptr) update_fp8_scales(*run.trained.fp8, record);

  // 4. What happened.
  fill_record(run, batches, tokens, stats, before, record);
  return record;
}

}  // namespace octavo::train
