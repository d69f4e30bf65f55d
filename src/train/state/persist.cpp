#include "train/state/persist.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/model_file.h"
#include "base/progress.h"
#include "checkpoint/download.h"
#include "config/print.h"
#include "data/chat_template.h"
#include "hub/hub.h"
#include "model_config/presets.h"
#include "object_store/address.h"
#include "train/device.h"
#include "train/guards/finite_weights.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/run_schedule.h"
#include "train/state/base_model.h"
#include "train/state/data_order.h"
#include "train/state/folder_check.h"
#include "train/state/fp8_persist.h"
#include "train/state/mixture_order.h"
#include "train/state/rank_rows.h"

namespace octavo::train {

namespace {

constexpr const char* kDisk = "a checkpoint is written, and a disk takes the time it takes";

checkpoint::State state_of(const Run& run, const std::string& run_name, bool best,
                           const double* val_loss) {
  checkpoint::State state;
  state.step = run.progress.step;
  state.tokens = run.progress.tokens;
  state.precision = run.trained.precision();
  state.has_val_loss = val_loss != nullptr;
  state.val_loss = val_loss != nullptr ? *val_loss : 0;
  const char* sharding =
      run.world.size() == 1 ? "none" : config::name_of(run.settings.sharding_mode).data();
  state.extra = {{"run_name", run_name},
                 {"data_position", run.progress.position.samples},
                 {"data_fingerprint", run.data.train->fingerprint()},
                 {"tokenizer", run.data.tokenizer->name()},
                 {"tokenizer_fingerprint", run.data.tokenizer->fingerprint()},
                 {"optimizer_steps", run.trained.optimizer->steps()},
                 {"model", run.trained.model->hugging_face_config()},
                 {"seed", run.settings.seed},
                 {"shuffle", run.settings.shuffle},
                 {"batch_size", run.settings.batch_size},
                 {"gradient_accumulation_steps", run.settings.gradient_accumulation_steps},
                 {"max_seq_length", run.settings.max_seq_length},
                 {"threads", at::get_num_threads()},
                 {"layout", {{"ranks", run.world.size()}, {"sharding", sharding}}},
                 {"schedule", schedule_json(run.schedule)},
                 {"config", config::to_yaml(run.settings)}};
  if (const Json order = order_json(run.progress.position.order); !order.is_null())
    state.extra["data_order"] = order;
  if (const auto& mixture = run.progress.position.mixture; mixture != nullptr)
    state.extra["data_mixture"] = mixture_json(*mixture);
  const auto chat = run.data.train->chat_template();
  state.extra["chat_template"] =
      chat ? Json(data::stored_name(*chat)) : Json();  // null: trained on text
  if (!run.claim.run_id.empty()) state.extra["run_id"] = run.claim.run_id;
  state.extra["skipped_steps"] = run.progress.skipped_steps;
  state.extra["skipped_in_a_row"] = run.progress.skipped_in_a_row;
  state.extra["refused_steps"] = run.progress.bad_step_skips;
  state.extra["rollbacks"] = run.progress.rollbacks;
  state.extra["recent_losses"] = run.guards.losses.recent();
  if (run.progress.has_best) state.extra["best_val_loss"] = run.progress.best_val_loss;
  // Of no save in progress: whether that one will move best_model nobody knows.
  const std::optional<double>& named = run.progress.best_model_loss;
  // Always there, null when there is none: checkpoints from before it was kept have no such field.
  if (best && val_loss != nullptr)
    state.extra["best_model_loss"] = *val_loss;
  else
    state.extra["best_model_loss"] = named ? Json(*named) : Json();
  if (run.progress.evaluation_left_out) state.extra["evaluation_left_out"] = true;
  if (run.trained.lora != nullptr)
    save_lora(run.trained, state);
  else
    add_masters(run.trained.model->params(), "model", state);
  add_moments(trained_params(run.trained), *run.trained.optimizer, state);
  save_fp8(run.trained, state);
  state.changing = {"fp8"};  // the scaling state moves in the forward pass
  return state;
}

checkpoint::SaveOptions save_options(const Run& run, bool best = false) {
  checkpoint::SaveOptions options{.best = best,
                                  .newest_run = true,
                                  .permanent_due = run.progress.permanent_due,
                                  .keep = static_cast<int>(run.settings.keep_checkpoints),
                                  .permanent_every = run.settings.permanent_checkpoint_freq};
  if (checkpoint::Uploader* uploader = run.uploader.get(); uploader != nullptr)
    options.in_use = [uploader](const fs::path& path) { return uploader->in_use(path); };
  return options;
}

// Names the folder that the ranks of this start of the run write into.
std::string new_token() {
  std::random_device random;
  char text[32];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

checkpoint::Saver& saver_of(Run& run, const std::string& run_name) {
  if (run.saver != nullptr) return *run.saver;
  dist::World& world = run.world;
  constexpr double kLeastPatience = 60;  // seconds: disks are slower than networks
  checkpoint::SaverOptions options{
      .part = {world.rank(), world.size(), world.shards(),
               world.from_first(new_token(), "the token of checkpoints")},
      .timeout = std::max(kLeastPatience, run.settings.dist_timeout),
      .processes = world.rank_info().local_ranks};
  if (checkpoint::Uploader* uploader = run.uploader.get(); uploader != nullptr)
    options.on_saved = [uploader](const fs::path& path, bool permanent) {
      uploader->add(path, permanent);
    };
  run.saver = std::make_unique<checkpoint::Saver>(fs::path(checkpoint_dir(run.settings)) / run_name,
                                                  std::move(options));
  return *run.saver;
}

// Once the save before has ended, however it did: it was to move best_model, or has replaced the
// checkpoint which that names, as after going back. A run that comes from a bucket has no link here
// until it moves it, and keeps to what it knows.
void settle_best_model(Run& run) {
  if (run.saver == nullptr) return;
  Progress& progress = run.progress;
  const bool was_to_move = progress.best_save_loss.has_value();
  const auto found =
      best_loss_on_disk(run.world, run.saver->directory(),
                        was_to_move ? progress.best_save_loss : progress.best_model_loss);
  if (was_to_move || found) progress.best_model_loss = found;
  progress.best_save_loss.reset();
}

// Of a save that begins now, when no other is in progress.
bool moves_best_model(const Run& run, bool may_be_best, const double* val_loss) {
  const std::optional<double>& named = run.progress.best_model_loss;
  return may_be_best && (val_loss == nullptr || !named || *val_loss < *named);
}

}  // namespace

bool refuses_save(Run& run, const std::string& run_name) {
  const std::string bad = weight_not_finite(run.world, run.trained);
  if (bad.empty()) return false;
  checkpoint::Saver& saver = saver_of(run, run_name);
  const heartbeat::Exempt exempt(kDisk);
  // It would be `latest`: what a rollback, or the next start, takes.
  saver.leave_out(run.progress.step, str("wanted finite weights, found that ", bad, " is not"));
  return true;
}

void start_save(Run& run, const std::string& run_name, bool may_be_best, const double* val_loss) {
  if (run.save_clock) run.save_clock->on_save(CheckpointClock::Clock::now());
  if (refuses_save(run, run_name)) return;
  checkpoint::Saver& saver = saver_of(run, run_name);
  const heartbeat::Exempt exempt(kDisk);
  saver.finish_before(run.progress.step);
  settle_best_model(run);
  const bool best = moves_best_model(run, may_be_best, val_loss);
  saver.start(state_of(run, run_name, best, val_loss), save_options(run, best));
  if (best && val_loss != nullptr) run.progress.best_save_loss = *val_loss;
}

fs::path save(Run& run, const std::string& run_name, bool may_be_best, const double* val_loss) {
  if (refuses_save(run, run_name))
    fail(ExitCode::kGuard, "train", "wanted finite weights to save at step ", run.progress.step,
         ", found others (the line CHECKPOINT NOT SAVED names one); resume from the checkpoint "
         "before, with a lower learning_rate or bad_steps: rollback");
  checkpoint::Saver& saver = saver_of(run, run_name);
  finish_saves(run);
  settle_best_model(run);
  const bool best = moves_best_model(run, may_be_best, val_loss);
  const heartbeat::Exempt exempt(kDisk);
  fs::path path = saver.save(state_of(run, run_name, best, val_loss), save_options(run, best));
  if (best && val_loss != nullptr) run.progress.best_model_loss = *val_loss;
  return path;
}

std::optional<double> best_loss_on_disk(dist::World& world, const fs::path& folder,
                                        std::optional<double> otherwise) {
  std::optional<double> found;
  if (world.is_first()) try {
      found = checkpoint::best_val_loss(folder);
    } catch (const Error& error) {
      log_warn(str("checkpoint: best_model of ", folder.string(), " cannot be read now (",
                   error.what(), "); its loss is taken to be what it was"));
      found = otherwise;
    }
  at::Tensor agreed = at::tensor({found ? 1.0 : 0.0, found.value_or(0)}, at::kDouble);
  world.sum(agreed, "the loss of best_model");
  if (agreed[0].item<double>() == 0) return std::nullopt;
  return agreed[1].item<double>();
}

std::optional<double> best_model_loss(Run& run) {
  Progress& progress = run.progress;
  if (progress.best_save_loss && save_in_progress(run)) return progress.best_save_loss;
  settle_best_model(run);
  return progress.best_model_loss;
}

void remove_old_checkpoints(const Run& run) {
  Json extra = {{"run_name", run.settings.run_name}};
  if (!run.claim.run_id.empty()) extra["run_id"] = run.claim.run_id;
  const fs::path folder = checkpoint_folder(run.settings);
  if (fs::exists(folder)) checkpoint::remove_old(folder, save_options(run), extra);
}

void check_room(const Run& run) {
  checkpoint::check_room(checkpoint_folder(run.settings),
                         state_of(run, run.settings.run_name, false, nullptr));
}

bool finish_saves(Run& run) {
  if (run.saver == nullptr) return true;
  const auto saved = [&] {
    const heartbeat::Exempt exempt(kDisk);
    return run.saver->wait();
  };
  at::Tensor failed = at::tensor({saved() ? 0.0 : 1.0}, at::kDouble);
  run.world.max(failed, "whether the last checkpoint was saved");
  return failed.item<double>() == 0;
}

bool save_in_progress(Run& run) {
  const bool here = run.saver != nullptr && run.saver->is_saving();
  at::Tensor any = at::tensor({here ? 1.0 : 0.0}, at::kDouble);
  run.world.max(any, "whether a checkpoint is being saved");
  return any.item<double>() > 0;
}

namespace {

// In the step that is being made: a permanent checkpoint could not be saved, and no other save will
// be due that makes up for it. Not in every step: what fails now fails in the next one too.
bool permanent_is_due_again(const Run& run) {
  const config::Settings& s = run.settings;
  const int64_t step = run.progress.step + 1, due = run.progress.permanent_due;
  if (s.permanent_checkpoint_freq == 0 || s.checkpoint_freq > 0 || s.checkpoint_minutes > 0)
    return false;
  // After a rollback behind it, it is due by itself.
  if (run.saver == nullptr || run.saver->is_saving() || step <= due) return false;
  return due > run.saver->counts().permanent_step &&
         step % std::max<int64_t>(1, s.permanent_checkpoint_freq / 10) == 0;
}

}  // namespace

bool save_is_due_by_time(const Run& run) {
  const double save = run.saver != nullptr ? run.saver->counts().last_seconds : 0;
  return (run.save_clock && run.save_clock->is_due(save, CheckpointClock::Clock::now())) ||
         permanent_is_due_again(run);
}

std::string saves_by_time(const Run& run) {
  const double save = run.saver != nullptr ? run.saver->counts().last_seconds : 0;
  const std::string every = format_duration(run.save_clock->interval(save));
  if (run.settings.checkpoint_minutes > 0) return str("every ", every, " (checkpoint_minutes)");
  return str("every ", every, " by Young and Daly's rule (",
             save > 0 ? "a save takes " + format_duration(save) : "no save was measured yet",
             "; checkpoint_minutes sets another time)");
}

bool saves_fail(const Run& run) {
  const int64_t most = run.settings.max_failed_saves;
  return most > 0 && run.saver != nullptr && run.saver->counts().failed_in_a_row >= most;
}

void fail_unsaved(const Run& run) {
  fail(
      ExitCode::kGuard, "train", run.settings.max_failed_saves,
      " checkpoints in a row could not be saved (max_failed_saves); the lines CHECKPOINT NOT SAVED "
      "say why: free the disk, choose another checkpoint_dir or, where weights are not finite, "
      "lower "
      "learning_rate; then --resume latest");
}

bool has_time_to_save(Run& run, double seconds_since_stop) {
  constexpr double kNotice = 30, kMargin = 2;  // seconds; and for what comes after the save
  const double save = run.saver != nullptr ? run.saver->counts().last_seconds : 0;
  // The slowest rank decides for all.
  at::Tensor late =
      at::tensor({seconds_since_stop + save + kMargin > kNotice ? 1.0 : 0.0}, at::kDouble);
  run.world.max(late, "whether there is time to save");
  return late.item<double>() == 0;
}

namespace {

// Weights to run, not to train.
constexpr nn::Storage kFrozen{.trainable = false};

void load_hf_folder(const fs::path& folder, Loaded& loaded) {
  const fs::path config = model_file(folder, "config.json");
  check_promised_size(folder);
  loaded.model = make_model(read_json(config), config.string(), *loaded.engine, kFrozen);
  load_weights(*loaded.model, folder);
}

// A model folder, or adapters: their base model with the adapters merged into it.
void load_folder(const std::string& what, hub::Options options, Loaded& loaded) {
  if (is_peft_folder(what)) {
    if (const std::string revision = peft_revision(what); !revision.empty())
      options.revision = revision;
    const fs::path base = hub::resolve_model(peft_base(what), options);
    load_hf_folder(base, loaded);
    read_peft(*loaded.engine, *loaded.model, what)->merge();
    loaded.tokenizer = fs::exists(fs::path(what) / "tokenizer.json") ? what : base.string();
    return;
  }
  const fs::path folder = hub::resolve_model(what, options);
  load_hf_folder(folder, loaded);
  loaded.tokenizer = folder.string();
}

}  // namespace

Loaded load_model(const config::Settings& settings) {
  Loaded loaded;
  loaded.engine = std::make_unique<engine::Engine>(target_of(settings));
  std::string what = settings.checkpoint;
  if (object_store::is_s3_address(what))
    what = checkpoint::download(*object_store::s3(), what, checkpoint_dir(settings)).string();
  const hub::Options hub_options = hub::model_options(settings);
  const bool is_step = checkpoint::is_checkpoint_name(checkpoint_dir(settings), what);
  if (!is_step && hub::is_hub_name(what)) what = model_config::hub_name(what).value_or(what);
  // A word without an owner is no name on the hub, but a checkpoint that is not here.
  const bool on_hub = !is_step && hub::is_hub_name(what) && what.find('/') != what.npos;
  if (is_peft_folder(what) || fs::exists(fs::path(what) / "config.json") || on_hub) {
    load_folder(what, hub_options, loaded);
    loaded.source = what;
    return loaded;
  }
  const auto found = checkpoint::load_resolved(checkpoint_dir(settings), what, settings.run_name);
  const std::string source = loaded.source = found.path.string();
  const Json& extra = found.state.extra;
  if (is_lora(found.state)) {
    loaded.model = load_base(found.state, source, settings, *loaded.engine);
    merge_lora(*loaded.engine, *loaded.model, found.state, source);
  } else {
    loaded.model = make_model(json_field(extra, "model", Json::value_t::object, source), source,
                              *loaded.engine, kFrozen);
    load_weights(*loaded.model, found.state);
  }
  loaded.tokenizer = json_string(extra, "tokenizer", source);
  loaded.tokenizer_fingerprint = json_string(extra, "tokenizer_fingerprint", source);
  return loaded;
}

}  // namespace octavo::train
