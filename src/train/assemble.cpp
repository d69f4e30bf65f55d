#include "base/error.h"
#include "base/log.h"
#include "base/log_file.h"
#include "data/splits.h"
#include "engine/trace.h"
#include "eval/hellaswag.h"
#include "train/batching/auto_batch.h"
#include "train/device.h"
#include "train/guards/output_check.h"
#include "train/guards/same_run.h"
#include "train/run.h"
#include "train/run_schedule.h"
#include "train/state/mixture_order.h"
#include "train/state/persist.h"
#include "train/state/remote.h"

namespace octavo::train {
namespace {

dist::World connect(config::Settings& s) {
  const launch::RankInfo place = launch::rank_info_from_environment();
  if (place.ranks > 1 && s.sharding_mode == config::ShardingMode::kNone) {
    s.sharding_mode = config::ShardingMode::kDdp;
    log_info(str("sharding_mode: ddp, since there are ", place.ranks, " ranks"));
  }
  if (place.ranks == 1 && s.sharding_mode != config::ShardingMode::kNone)
    log_info(str("sharding_mode ", config::name_of(s.sharding_mode),
                 ": one rank shares with nobody; it keeps everything"));
  // What happens on all ranks is said once; warnings and errors are everybody's own.
  set_log_rank(place.rank);
  if (place.rank > 0) set_log_level(LogLevel::kWarn);
  return dist::World::connect(
      place, {.timeout = std::chrono::milliseconds(static_cast<int64_t>(s.dist_timeout * 1e3)),
              .interface = s.dist_interface,
              .device = device_of(s),
              .settings = settings_of_all_ranks(s),
              .hybrid = s.sharding_mode == config::ShardingMode::kHybrid,
              .spread = s.sharding_mode != config::ShardingMode::kDdp});
}

}  // namespace

int64_t Run::tokens_per_step() const {
  return settings.batch_size * settings.gradient_accumulation_steps * settings.max_seq_length *
         world.size();
}

namespace {

// Everything behind the rendezvous of the ranks.
void assemble_run(Run& run, config::Settings settings, Weights weights) {
  // What is downloaded or prepared is so once, while the others wait.
  config::Settings resolved;
  DataSet data;
  run.world.rank_zero_first("names and data", [&] {
    resolved = with_resolved_names(settings);
    if (!run.claim.run_id.empty() && !settings.eval_hellaswag.empty()) {
      run.data.hellaswag =
          data::benchmark_file(settings, "eval_hellaswag", settings.eval_hellaswag);
      eval::check_hellaswag_file(run.data.hellaswag);
    }
    settle_tokenizer(resolved);
    data = open_data_set(resolved);
  });
  check_same_data(run.world, *data.train);
  run.data.train = data.train;
  run.data.val = data.val;
  run.data.tokenizer = tokenizer::load_tokenizer(data.tokenizer);
  if (run.data.tokenizer->fingerprint() != data.train->tokenizer_fingerprint())
    fail(ExitCode::kUsage, "train", "the data was made with another tokenizer than '",
         data.tokenizer, "' is now; prepare the data again");

  const int64_t vocab = settings.vocab_size > 0 ? settings.vocab_size : data.train->vocab_size();
  if (vocab < data.train->vocab_size())
    fail(ExitCode::kUsage, "train", "vocab_size ", vocab, " is smaller than the data's ",
         data.train->vocab_size());
  run.settings = std::move(settings);
  const config::Settings& s = run.settings;
  run.trained =
      build_model(s, resolved, run.world, vocab, s.resume.empty() ? weights : Weights::kLater);
  if (s.cuda_graph)
    run.trained.graph =
        std::make_unique<StepGraph>(run.trained, s, run.world.size(), *run.data.train);
  settle_batch_size(run);
  if (!s.resume.empty()) resume(run);
  data::Position& position = run.progress.position;
  if (const auto* mixed = run.data.train->mixed(); mixed != nullptr && position.mixture == nullptr)
    position.mixture = new_mixture(s, run.world.size(), *mixed);
  if (run.trained.sharding != nullptr) run.trained.sharding->weights_changed();
  open_loader(s, run.world, run.progress, run.data);
  run.schedule = schedule_of(s, steps_asked(s, run.world.size(), *run.data.train, run.progress));
  if (const auto& then = run.resumed.schedule; then && run.world.is_first())
    if (const std::string change = changed_schedule(*then, run.schedule, run.progress.step);
        !change.empty())
      log_warn(change);
}

}  // namespace

std::unique_ptr<Run> assemble(config::Settings settings, bool writes, Weights weights) {
  auto run = std::make_unique<Run>();
  check_upload(settings);
  run->world = connect(settings);
  try {
    settings.resume = local_resume(settings, run->world);
    if (writes) run->claim = claim_folders(settings, run->world);
    if (!settings.trace.empty()) engine::trace::start(settings.trace, run->world.rank());
    assemble_run(*run, std::move(settings), weights);
  } catch (const std::exception& error) {
    remove_empty(run->claim.made);
    run->world.announce_exit(error);
    throw;
  }
  return run;
}

}  // namespace octavo::train
