#include "train/persist.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <map>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "config/print.h"
#include "hub/hub.h"
#include "train/device.h"
#include "train/fp8_persist.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/rank_rows.h"

namespace octavo::train {
namespace {

struct Layout {
  int64_t ranks = 1, samples = 0;  // samples: of a step, on all ranks
  std::string sharding;
};

Layout layout_of(const Json& extra, const std::string& source) {
  const Json& layout = json_field(extra, "layout", Json::value_t::object, source);
  const int64_t ranks = json_int(layout, "ranks", source);
  return {ranks,
          ranks * json_int(extra, "batch_size", source) *
              json_int(extra, "gradient_accumulation_steps", source),
          json_string(layout, "sharding", source)};
}

void log_changed_ranks(const Run& run, const Layout& then) {
  const auto& s = run.settings;
  const int64_t samples = run.world.size() * s.batch_size * s.gradient_accumulation_steps;
  const std::string what =
      str("resume: there were ", then.ranks, " ranks (", then.sharding, "), there are ",
          run.world.size(), " (", config::name_of(s.sharding_mode), ")");
  if (samples == then.samples)
    log_info(what + "; the order of samples and the size of a step stay");
  else
    log_warn(str(what, "; a step had ", then.samples, " samples and has ", samples,
                 ": set batch_size or gradient_accumulation_steps to keep it"));
}

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
  const Layout then = layout_of(extra, source);
  if (then.ranks == run.world.size()) {
    warn_changed("batch_size", run.settings.batch_size);
    warn_changed("gradient_accumulation_steps", run.settings.gradient_accumulation_steps);
  } else {
    log_changed_ranks(run, then);
  }
  warn_changed("max_seq_length", run.settings.max_seq_length);
  warn_changed("threads", at::get_num_threads());
}

// load_weights() converts; this says so.
void log_converted_masters(const Run& run, const checkpoint::State& state) {
  const auto found = state.groups.find("model");
  if (found == state.groups.end()) return;  // load_weights() says so
  const std::map<std::string, at::Tensor> all(found->second.begin(), found->second.end());
  int converted = 0;
  at::ScalarType then = at::kFloat, now = at::kFloat;
  for (const auto& p : run.model->params()) {
    const auto entry = all.find(p->name);
    if (entry == all.end() || entry->second.scalar_type() == p->master.scalar_type()) continue;
    const at::Tensor& stored = entry->second;
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

namespace {

checkpoint::State state_of(const Run& run, const std::string& run_name, const double* val_loss) {
  checkpoint::State state;
  state.step = run.progress.step;
  state.tokens = run.progress.tokens;
  state.precision = run.precision();
  state.has_val_loss = val_loss != nullptr;
  state.val_loss = val_loss != nullptr ? *val_loss : 0;
  const char* sharding =
      run.world.size() == 1 ? "none" : config::name_of(run.settings.sharding_mode).data();
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
                 {"layout", {{"ranks", run.world.size()}, {"sharding", sharding}}},
                 {"config", config::to_yaml(run.settings)}};
  state.extra["skipped_steps"] = run.progress.skipped_steps;
  state.extra["skipped_in_a_row"] = run.progress.skipped_in_a_row;
  if (run.progress.has_best) state.extra["best_val_loss"] = run.progress.best_val_loss;
  if (run.lora != nullptr)
    save_lora(run, state);
  else
    add_masters(run.model->params(), "model", state);
  add_moments(trained_params(run), *run.optimizer, state);
  save_fp8(run, state);
  state.changing = {"fp8"};  // the scaling state moves in the forward pass
  return state;
}

checkpoint::SaveOptions save_options(const Run& run, bool best) {
  return {.best = best, .keep = static_cast<int>(run.settings.keep_checkpoints)};
}

// Names the folder that the ranks of this start of the run write into.
std::string new_token() {
  std::random_device random;
  char text[32];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

checkpoint::Saver& saver_of(Run& run) {
  if (run.saver != nullptr) return *run.saver;
  dist::World& world = run.world;
  constexpr double kLeastPatience = 60;  // seconds: disks are slower than networks
  run.saver = std::make_unique<checkpoint::Saver>(
      checkpoint_dir(run.settings),
      checkpoint::SaverOptions{.part = {world.rank(), world.size(), world.shards(),
                                        world.from_first(new_token(), "the token of checkpoints")},
                               .timeout = std::max(kLeastPatience, run.settings.dist_timeout),
                               .processes = world.place().local_ranks});
  return *run.saver;
}

}  // namespace

void start_save(Run& run, const std::string& run_name, bool best, const double* val_loss) {
  saver_of(run).start(state_of(run, run_name, val_loss), save_options(run, best));
}

fs::path save(Run& run, const std::string& run_name, bool best, const double* val_loss) {
  return saver_of(run).save(state_of(run, run_name, val_loss), save_options(run, best));
}

bool finish_saves(Run& run) {
  if (run.saver == nullptr) return true;
  at::Tensor failed = at::tensor({run.saver->wait() ? 0.0 : 1.0}, at::kDouble);
  run.world.max(failed, "whether the last checkpoint was saved");
  return failed.item<double>() == 0;
}

namespace {

// The first rank chooses, all check a share of the files, and what one finds damaged nobody takes.
checkpoint::Loaded open_together(Run& run) {
  dist::World& world = run.world;
  std::vector<fs::path> damaged;
  for (;;) {
    Json choice;
    if (world.is_first()) {
      try {
        const fs::path path =
            checkpoint::choose(checkpoint_dir(run.settings), run.settings.resume, damaged);
        choice = {{"path", path.string()}};
      } catch (const Error& error) {
        choice = {{"error", error.what()}, {"code", static_cast<int>(error.code())}};
      }
    }
    choice = parse_json(world.from_first(choice.dump(), "the checkpoint to resume from"),
                        "the first rank's choice");
    if (choice.contains("error"))
      fail(static_cast<ExitCode>(choice.at("code").get<int>()), "train",
           "the first rank: ", choice.at("error").get<std::string>());
    const fs::path path = choice.at("path").get<std::string>();
    const auto problems = checkpoint::verify_share(path, world.rank(), world.size());
    for (const std::string& problem : problems)
      log_warn(str("CHECKPOINT NOT USABLE: ", path.string(), ": ", problem));
    at::Tensor found = at::tensor({static_cast<double>(problems.size())}, at::kDouble);
    world.sum(found, "damage of the checkpoint");
    if (found.item<double>() == 0) return {path, checkpoint::open(path)};
    damaged.push_back(path);
  }
}

}  // namespace

std::string resume(Run& run) {
  const auto loaded = run.world.size() > 1 ? open_together(run)
                                           : checkpoint::load_resolved(checkpoint_dir(run.settings),
                                                                       run.settings.resume);
  const checkpoint::State& state = loaded.state;
  const std::string source = loaded.path.string();
  check_same_run(run, state.extra, source);
  if (run.lora != nullptr) {
    resume_lora(run, state, source);
  } else {
    log_converted_masters(run, state);
    load_weights(*run.model, state);
  }
  run.optimizer->load(json_int(state.extra, "optimizer_steps", source),
                      moment_finder(state, trained_params(run)));
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
