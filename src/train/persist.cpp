#include "train/persist.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/log.h"
#include "config/print.h"
#include "hub/hub.h"
#include "train/device.h"
#include "train/fp8_persist.h"
#include "train/lora_run.h"
#include "train/model_factory.h"

namespace octavo::train {
namespace {

// What must be the same for the run to be the same run, and what should be.
void check_same_run(const Run& run, const Json& extra, const std::string& source) {
  const std::string data = json_string(extra, "data_fingerprint", source);
  if (data != run.train_data->fingerprint())
    fail(ExitCode::kUsage, "train", source, ": trained on other data (fingerprint ", data,
         ", found ", run.train_data->fingerprint(),
         "); give the same data, or start anew with --init_from");
  const auto warn_changed = [&](const char* name, int64_t now) {
    const int64_t then = json_int(extra, name, source);
    if (then != now)
      log_warn(str("resume: ", name, " was ", then, " and is ", now,
                   "; training goes on, but not bit for bit as it would have"));
  };
  warn_changed("seed", run.settings.seed);
  warn_changed("batch_size", run.settings.batch_size);
  warn_changed("gradient_accumulation_steps", run.settings.gradient_accumulation_steps);
  warn_changed("max_seq_length", run.settings.max_seq_length);
  warn_changed("threads", at::get_num_threads());
}

// load_weights() converts; this says so.
void log_converted_masters(const Run& run, const checkpoint::State& state) {
  const auto find = finder(state, "model");
  int converted = 0;
  at::ScalarType then = at::kFloat, now = at::kFloat;
  for (const auto& p : run.model->params()) {
    const at::Tensor stored = find(p->name);
    if (!stored.defined() || stored.scalar_type() == p->master.scalar_type()) continue;
    ++converted;
    then = stored.scalar_type();
    now = p->master.scalar_type();
  }
  if (converted > 0)
    log_warn(str("resume: ", converted, " master weights were converted from ", at::toString(then),
                 " to ", at::toString(now), " (master_dtype is another than the checkpoint's)"));
}

}  // namespace

std::string checkpoint_dir(const config::Settings& settings) {
  if (!settings.checkpoint_dir.empty()) return settings.checkpoint_dir;
  return fp8::wants_fp8(settings) ? "checkpoints_fp8" : "checkpoints";
}

fs::path save(const Run& run, const std::string& run_name, bool best, const double* val_loss) {
  checkpoint::State state;
  state.step = run.progress.step;
  state.tokens = run.progress.tokens;
  state.precision = run.precision();
  state.has_val_loss = val_loss != nullptr;
  state.val_loss = val_loss != nullptr ? *val_loss : 0;
  state.extra = {{"run_name", run_name},
                 {"data_position", run.progress.position.samples},
                 {"data_fingerprint", run.train_data->fingerprint()},
                 {"tokenizer", run.tokenizer->name()},
                 {"tokenizer_fingerprint", run.tokenizer->fingerprint()},
                 {"optimizer_steps", run.optimizer->steps()},
                 {"model", run.model->hugging_face_config()},
                 {"seed", run.settings.seed},
                 {"batch_size", run.settings.batch_size},
                 {"gradient_accumulation_steps", run.settings.gradient_accumulation_steps},
                 {"max_seq_length", run.settings.max_seq_length},
                 {"threads", at::get_num_threads()},
                 {"layout", {{"ranks", run.world.size()}, {"sharding", "none"}}},
                 {"config", config::to_yaml(run.settings)}};
  state.extra["skipped_steps"] = run.progress.skipped_steps;
  state.extra["skipped_in_a_row"] = run.progress.skipped_in_a_row;
  if (run.progress.has_best) state.extra["best_val_loss"] = run.progress.best_val_loss;
  if (run.lora != nullptr)
    save_lora(run, state);
  else
    for (const auto& p : run.model->params())
      state.groups["model"].emplace_back(p->name, p->master);
  state.groups["optimizer"] = run.optimizer->state();
  save_fp8(run, state);
  return checkpoint::save(checkpoint_dir(run.settings), state,
                          {.best = best, .keep = static_cast<int>(run.settings.keep_checkpoints)});
}

std::string resume(Run& run) {
  const auto loaded = checkpoint::load_resolved(checkpoint_dir(run.settings), run.settings.resume);
  const checkpoint::State& state = loaded.state;
  const std::string source = loaded.path.string();
  check_same_run(run, state.extra, source);
  if (run.lora != nullptr) {
    resume_lora(run, state, source);
  } else {
    log_converted_masters(run, state);
    load_weights(*run.model, state);
  }
  run.optimizer->load(json_int(state.extra, "optimizer_steps", source), finder(state, "optimizer"));
  resume_fp8(run, loaded.state, source);
  run.progress.step = state.step;
  run.progress.tokens = state.tokens;
  run.progress.position.samples =
      static_cast<uint64_t>(json_int(state.extra, "data_position", source));
  if (state.extra.contains("skipped_steps")) {  // checkpoints before FP8 have none
    run.progress.skipped_steps = json_int(state.extra, "skipped_steps", source);
    run.progress.skipped_in_a_row = json_int(state.extra, "skipped_in_a_row", source);
  }
  if (state.extra.contains("best_val_loss")) {
    run.progress.has_best = true;
    run.progress.best_val_loss =
        json_field(state.extra, "best_val_loss", Json::value_t::number_float, source).get<double>();
  }
  // The run's own folder is continued unless another was asked for.
  if (run.settings.run_name.empty())
    run.settings.run_name = json_string(state.extra, "run_name", source);
  return source;
}

namespace {

// Weights to run, not to train.
constexpr nn::Storage kFrozen{.trainable = false};

void load_hf_folder(const fs::path& folder, Loaded& loaded) {
  const fs::path config = folder / "config.json";
  loaded.model = make_model(read_json(config), config.string(), *loaded.engine, kFrozen);
  load_weights(*loaded.model, folder);
}

// A model folder, or adapters: their base model with the adapters merged into it.
void load_folder(const std::string& what, const hub::Options& options, Loaded& loaded) {
  if (is_peft_folder(what)) {
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
  const std::string& what = settings.checkpoint;
  const hub::Options hub_options = hub::model_options(settings);
  const bool is_step = what == "latest" || what == "best" ||
                       fs::exists(fs::path(what) / "manifest.json") ||
                       fs::exists(fs::path(checkpoint_dir(settings)) / what);
  if (is_peft_folder(what) || fs::exists(fs::path(what) / "config.json") ||
      (!is_step && hub::is_hub_name(what))) {
    load_folder(what, hub_options, loaded);
    return loaded;
  }
  const auto found = checkpoint::load_resolved(checkpoint_dir(settings), what);
  const std::string source = found.path.string();
  const Json& extra = found.state.extra;
  if (is_lora(found.state)) {
    load_hf_folder(hub::resolve_model(lora_base(found.state, source), hub_options), loaded);
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
