#include "train/batching/auto_batch.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/allocator.h"
#include "engine/range.h"
#include "fp8/legality.h"
#include "plan/memory.h"
#include "train/batching/batch_note.h"
#include "train/batching/batch_search.h"
#include "train/dataset.h"
#include "train/pass.h"
#include "train/run_schedule.h"
#include "train/state/data_order.h"
#include "train/step.h"

namespace octavo::train {
namespace {

constexpr int64_t kMostSamples = 65536;     // of a pass: batch_size's own range
constexpr double kAvailableShare = 0.95;    // the rest is for what is not a tensor
constexpr double kFragmentation = 0.05;     // of a GPU's memory: held and of no use
constexpr int64_t kMostTokens = 1ll << 31;  // of a pass
constexpr double kGiga = 1e9;

// Gives back what a pass left behind that did not end, or must not count.
void forget_passes(TrainedModel& trained) {
  if (trained.lora != nullptr) trained.lora->end_pass();
  trained.optimizer->drop_gradients();
  if (trained.fp8 != nullptr) trained.fp8->abandon_step();
  engine::trim_memory(trained.device());
}

// A forward and backward pass over the first samples of the data.
std::optional<MemoryTaken> measure_pass(Run& run, int64_t rows) {
  const engine::Range range("trial", rows);
  const at::Device device = run.trained.device();
  ++run.batching.trials;
  run.settings.batch_size = rows;
  engine::trim_memory(device);
  engine::reset_peak(device);
  // With several ranks a pass is measured, and must not be broken off.
  if (run.world.size() > 1) engine::limit_cpu_memory(0);
  MemoryTaken taken{.before = static_cast<double>(engine::memory_of(device).in_use)};
  bool ran_out = false;
  try {
    data::Loader loader(run.data.train,
                        {.rows = rows,
                         .length = run.settings.max_seq_length,
                         .shuffle = false,
                         .skip_damaged = skips_damaged(run.settings),
                         .document_end = document_end(run.settings, *run.data.tokenizer)},
                        {});
    try_pass(run.settings, run.world.size(), run.trained, loader.next());
    taken.peak = static_cast<double>(engine::memory_of(device).peak);
  } catch (const c10::OutOfMemoryError&) {
    if (run.world.size() > 1) throw;
    ran_out = true;
  }
  forget_passes(run.trained);
  log_info(
      str("auto_batch_size: ", rows, " samples ",
          ran_out ? "do not fit" : str("take ", format_count(taken.peak), " bytes at the peak")));
  return ran_out ? std::nullopt : std::optional(taken);
}

// The fullest rank's.
MemoryTaken agreed(dist::World& world, const MemoryTaken& mine) {
  at::Tensor values = at::tensor({mine.before, mine.peak - mine.before}, at::kDouble);
  world.max(values, "memory of a trial");
  const double before = values[0].item<double>();
  return {before, before + values[1].item<double>()};
}

double agreed_limit(const config::Settings& settings, dist::World& world, at::Device device) {
  auto limit = static_cast<double>(engine::memory_limit(device));
  if (!device.is_cpu()) limit *= 1 - kFragmentation;
  if (settings.memory_limit_gb > 0) limit = std::min(limit, settings.memory_limit_gb * kGiga);
  at::Tensor smallest = at::tensor({-limit}, at::kDouble);
  world.max(smallest, "memory limit");
  return -smallest.item<double>();
}

std::function<double(int64_t)> forecast_of(const config::Settings& settings, int ranks,
                                           const engine::Target& target) {
  plan::MemoryWork work =
      plan::memory_work(settings, plan::shape_of(with_resolved_names(settings)));
  work.cpu = target.device.is_cpu();
  work.gpus = ranks;
  work.capability = target.capability;
  // The forecast is of activations in BF16.
  const double scale = target.compute == at::kFloat ? 2 : 1;
  return [work, scale](int64_t size) mutable {
    work.batch = size;
    return scale * plan::memory(work).total;
  };
}

// Sizes that a pass may have: they divide the samples of a step, when those are given, and make
// numbers of tokens that the recipe takes.
std::vector<int64_t> sizes_of(const Run& run, int64_t samples, int64_t most) {
  const auto& s = run.settings;
  const auto epoch = static_cast<int64_t>(data::sample_count(*run.data.train, s.max_seq_length));
  most = std::min({most, kMostSamples, kMostTokens / s.max_seq_length,
                   std::max<int64_t>(1, epoch / run.world.size())});
  std::vector<int64_t> sizes;
  if (samples > 0) {
    sizes = divisors(samples, most);
  } else {
    for (int64_t size = 1; size <= most; ++size) sizes.push_back(size);
  }
  // Padding costs time: it is for lengths that no size makes a multiple of.
  const auto is_padded = [&](int64_t size) {
    return fp8::padding(run.trained.fp8->options().recipe, size * s.max_seq_length) > 0;
  };
  if (run.trained.fp8 != nullptr && !std::ranges::all_of(sizes, is_padded))
    std::erase_if(sizes, is_padded);
  if (sizes.empty())
    fail(ExitCode::kUsage, "train", "no micro-batch of at most ", most, " samples of ",
         s.max_seq_length, " tokens divides the ", samples, " samples that a step has on a rank",
         "; change target_effective_batch_size or max_batch_size");
  return sizes;
}

int64_t largest_that_fits(Run& run, const std::vector<int64_t>& sizes) {
  const auto given = run.settings;
  if (run.trained.sharding != nullptr) run.trained.sharding->weights_changed();
  const BatchSearch search{
      .sizes = sizes,
      .limit = agreed_limit(given, run.world, run.trained.device()),
      .forecast = forecast_of(given, run.world.size(), run.trained.engine->target),
      .measure = [&](int64_t size) -> std::optional<MemoryTaken> {
        const auto taken = measure_pass(run, size);
        return taken ? std::optional(agreed(run.world, *taken)) : std::nullopt;
      },
      .may_fail = run.world.size() == 1};
  const BatchSearchResult found = search_batch(search);
  run.settings.batch_size = given.batch_size;
  if (run.trained.device().is_cpu()) engine::limit_cpu_memory(static_cast<size_t>(search.limit));
  run.batching.limit_bytes = search.limit;
  if (found.batch == 0)
    fail(ExitCode::kEnvironment, "train", "auto_batch_size: not even a pass of ", sizes.front(),
         " sample(s) fits into ", format_count(search.limit),
         " bytes; gradient_checkpointing true, moment_dtype bf16 or fp8, a shorter max_seq_length "
         "or lora_rank 16 take less");
  run.batching.peak_bytes = found.peak;
  log_info(str("auto_batch_size: ", found.batch, " samples fit in ", format_count(search.limit),
               " bytes (", found.trials, " trials)"));
  return found.batch;
}

// How weights are kept in FP8 hangs on how many passes there are in a step.
void restart_fp8(const config::Settings& settings, dist::World& world, TrainedModel& trained) {
  if (trained.fp8 == nullptr) return;
  trained.fp8.reset();
  start_fp8(settings, world, trained);
}

// Says what became of what was asked for.
void announce_batches(const config::Settings& s, int64_t ranks, int64_t target) {
  const int64_t all = s.batch_size * s.gradient_accumulation_steps * ranks;
  log_info(str("a step has ", all, " samples: ", s.batch_size, " in a pass, ",
               s.gradient_accumulation_steps, " pass(es), ", ranks, " rank(s)"));
  if (target > 0 && all != target)
    log_warn(str("target_effective_batch_size ", target, " is no multiple of ", ranks,
                 " ranks: a step has ", all, " samples, the nearest number that is"));
}

}  // namespace

void limit_memory(const config::Settings& settings, int local_ranks) {
  const double gigabytes = settings.memory_limit_gb;
  const double bytes = gigabytes > 0 ? gigabytes * kGiga
                                     : static_cast<double>(engine::available_cpu_memory()) *
                                           kAvailableShare / std::max(local_ranks, 1);
  engine::limit_cpu_memory(static_cast<size_t>(bytes));
}

void settle_batch_size(Run& run) {
  auto& s = run.settings;
  const Batches before{s.batch_size, s.gradient_accumulation_steps};
  run.batching.asked = asked_batches(s);
  const int64_t target = s.target_effective_batch_size;
  const bool asked = s.auto_batch_size || target > 0 || s.max_batch_size > 0;
  if (const auto noted = run.world.size() > 1 ? batch_note(s, run.world) : std::nullopt) {
    s.batch_size = noted->batch;
    s.gradient_accumulation_steps = noted->accumulation;
    ++run.batching.halvings;
  } else if (asked) {
    const int64_t samples = target > 0 ? samples_per_rank(target, run.world.size()) : 0;
    int64_t most = s.auto_batch_size ? kMostSamples : s.batch_size;
    if (s.max_batch_size > 0) most = std::min(most, s.max_batch_size);
    const std::vector<int64_t> sizes = sizes_of(run, samples, most);
    s.batch_size = s.auto_batch_size ? largest_that_fits(run, sizes) : sizes.back();
    if (s.auto_batch_size) run.batching.found = s.batch_size;
    if (samples > 0) s.gradient_accumulation_steps = samples / s.batch_size;
  }
  if (before != Batches{s.batch_size, s.gradient_accumulation_steps})
    restart_fp8(s, run.world, run.trained);
  if (asked) announce_batches(s, run.world.size(), target);
  run.batching.eval_samples = s.batch_size * s.eval_batches;
}

void open_loader(const config::Settings& s, const dist::World& world, const Progress& progress,
                 DataState& data) {
  data::Position start = progress.position;
  if (start.samples == 0 && start.mixture == nullptr)
    start.order = new_order(s, world.size(), *data.train);
  if (const std::string order = describe_order(start.order, s.max_seq_length, *data.train);
      !order.empty() && world.is_first() && data.loader == nullptr)
    log_info(str("shuffle: ", order));
  const data::Loader::Options options{.rows = s.batch_size,
                                      .length = s.max_seq_length,
                                      .seed = static_cast<uint64_t>(s.seed),
                                      .shuffle = s.shuffle,
                                      .rank = world.rank(),
                                      .world = world.size(),
                                      .end = samples_asked(s, *data.train, start),
                                      .skip_damaged = skips_damaged(s),
                                      .document_end = document_end(s, *data.tokenizer),
                                      .lengths = length_stages(s, world.size(), progress)};
  data.loader = std::make_unique<data::Loader>(data.train, options, start);
  data.next.reset();
}

namespace {

// The same step in smaller passes; nothing when there are none.
std::optional<Batches> smaller_passes(const config::Settings& s) {
  return halved({s.batch_size, s.gradient_accumulation_steps});
}

void take_smaller_passes(Run& run, const Batches& next, const c10::OutOfMemoryError& error) {
  auto& s = run.settings;
  log_warn(str("out of memory in step ", run.progress.step + 1, " with batch_size ", s.batch_size,
               " (", error.what_without_backtrace(), "): the step is done again, and the run goes ",
               "on, with batch_size ", next.batch, " and gradient_accumulation_steps ",
               next.accumulation));
  s.batch_size = next.batch;
  s.gradient_accumulation_steps = next.accumulation;
  ++run.batching.halvings;
  forget_passes(run.trained);
  if (run.trained.fp8 != nullptr)
    run.trained.fp8->resize_passes(s.batch_size * s.max_seq_length, s.gradient_accumulation_steps);
  open_loader(s, run.world, run.progress, run.data);
  if (run.trained.graph != nullptr)
    run.trained.graph =
        std::make_unique<StepGraph>(run.trained, run.settings, run.world.size(), *run.data.train);
}

}  // namespace

monitor::StepRecord train_step_in_memory(Run& run) {
  for (;;) {
    try {
      return train_step(run);
    } catch (const c10::OutOfMemoryError& error) {
      const std::optional<Batches> next = smaller_passes(run.settings);
      if (!next) throw;
      if (run.world.size() > 1) {
        write_batch_note(run.settings, run.world, run.progress.step + 1, *next, run.batching.asked);
        throw;
      }
      if (run.batching.past_passes) {
        log_warn(
            "out of memory after the step's update was applied or skipped: the step is not "
            "done again; resume from the last checkpoint with a smaller batch_size");
        throw;
      }
      take_smaller_passes(run, *next, error);
    }
  }
}

Json batching_receipt(const config::Settings& settings, const Batching& batching, int ranks) {
  const auto& [found, trials, halvings, eval_samples, limit, peak, past_passes, asked] = batching;
  return {{"batch_size", settings.batch_size},
          {"gradient_accumulation_steps", settings.gradient_accumulation_steps},
          {"samples_per_step", settings.batch_size * settings.gradient_accumulation_steps * ranks},
          {"auto_batch_size", found},
          {"trials", trials},
          {"memory_limit_bytes", limit},
          {"trial_peak_bytes", peak},
          {"halvings", halvings}};
}

}  // namespace octavo::train
