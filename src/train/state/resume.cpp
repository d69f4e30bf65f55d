// The way back from a checkpoint: persist.h's resume().
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/folders.h"
#include "config/print.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/run_schedule.h"
#include "train/state/data_order.h"
#include "train/state/fp8_persist.h"
#include "train/state/mixture_order.h"
#include "train/state/persist.h"
#include "train/state/rank_rows.h"
#include "train/state/run_folders.h"

namespace octavo::train {
namespace {

struct Layout {
  int64_t ranks = 1, samples = 0;  // samples: of a step, on all ranks
  std::string sharding;
};

Layout layout_of(const Json& extra, const std::string& source) {
  const Json& layout = json_field(extra, "layout", Json::value_t::object, source);
  const int64_t ranks = json_int(layout, "ranks", source);
  int64_t samples = ranks;
  for (const char* key : {"batch_size", "gradient_accumulation_steps"})
    if (__builtin_mul_overflow(samples, json_int(extra, key, source), &samples))
      fail(ExitCode::kDamaged, "train", source, ": ", key, " is beyond every batch");
  return {ranks, samples, json_string(layout, "sharding", source)};
}

void log_changed_ranks(const config::Settings& s, int ranks, const Layout& then) {
  const int64_t samples = ranks * s.batch_size * s.gradient_accumulation_steps;
  const std::string what = str("resume: there were ", then.ranks, " ranks (", then.sharding,
                               "), there are ", ranks, " (", config::name_of(s.sharding_mode), ")");
  if (samples == then.samples)
    log_info(what + "; the order of samples and the size of a step stay");
  else
    log_warn(str(what, "; a step had ", then.samples, " samples and has ", samples,
                 ": set batch_size or gradient_accumulation_steps to keep it"));
}

uint64_t position_of(const Json& extra, const std::string& source) {
  const int64_t position = json_int(extra, "data_position", source);
  if (position < 0)
    fail(ExitCode::kDamaged, "train", source, ": data_position: wanted at least 0, found ",
         position);
  return static_cast<uint64_t>(position);
}

// In the middle of an epoch another order has some samples twice and leaves others out.
void warn_changed_order(const config::Settings& s, const data::TokenData& train, const Json& extra,
                        const std::string& source) {
  const int64_t seed = json_int(extra, "seed", source);
  // Checkpoints from before shuffle was kept have none.
  const bool shuffle = extra.contains("shuffle") ? extra.at("shuffle") == Json(true) : s.shuffle;
  if (seed == s.seed && shuffle == s.shuffle) return;
  const std::string what = seed != s.seed ? str("seed was ", seed, " and is ", s.seed)
                                          : str("shuffle was ", shuffle, " and is ", s.shuffle);
  const uint64_t epoch = data::sample_count(train, s.max_seq_length);
  const bool same_order = !shuffle && !s.shuffle;
  const bool between = train.mixed() == nullptr && position_of(extra, source) % epoch == 0;
  if (same_order || between)
    log_warn(str("resume: ", what, "; training continues, but not bit for bit as it would have"));
  else
    log_warn(str("resume: ", what, ": the rest of this epoch comes in another order, so that some ",
                 "samples of it come twice and others not at all; later epochs are whole"));
}

// By what its weights' shapes follow from, in the words of config.json.
void check_same_model(const models::Model& model, const Json& extra, const std::string& source) {
  const Json& then = json_field(extra, "model", Json::value_t::object, source);
  const Json now = model.hugging_face_config();
  for (const char* name :
       {"model_type", "n_layer", "n_head", "n_embd", "num_hidden_layers", "hidden_size",
        "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size"}) {
    const Json before = then.value(name, Json()), after = now.value(name, Json());
    if (before != after)
      fail(ExitCode::kUsage, "train", source, ": wanted the model of that run (", name, " ",
           before.dump(), "), found another one (", after.dump(),
           "); give the same model, or leave --resume out and give --run_name OTHER");
  }
}

// What must be the same for the run to be the same run, and what should be.
void check_same_run(const Run& run, const Json& extra, const std::string& source) {
  check_same_model(*run.trained.model, extra, source);
  const std::string tokenizer = json_string(extra, "tokenizer_fingerprint", source);
  if (tokenizer != run.data.tokenizer->fingerprint())
    fail(ExitCode::kUsage, "train", source,
         ": wanted the tokenizer that the run was trained with (",
         json_string(extra, "tokenizer", source), "), found another one (",
         run.data.tokenizer->name(),
         "); give the same tokenizer and data, or leave --resume out and give --run_name OTHER");
  const std::string data = json_string(extra, "data_fingerprint", source);
  if (data != run.data.train->fingerprint())
    fail(ExitCode::kUsage, "train", source, ": trained on other data (fingerprint ", data,
         ", found ", run.data.train->fingerprint(),
         "); give the same data, or start anew: --init_from with that checkpoint and --run_name "
         "OTHER");
  const auto warn_changed = [&](const char* name, int64_t now) {
    const int64_t then = json_int(extra, name, source);
    if (then != now)
      log_warn(str("resume: ", name, " was ", then, " and is ", now,
                   "; training continues, but not bit for bit as it would have"));
  };
  warn_changed_order(run.settings, *run.data.train, extra, source);
  const Layout then = layout_of(extra, source);
  if (then.ranks == run.world.size()) {
    warn_changed("batch_size", run.settings.batch_size);
    warn_changed("gradient_accumulation_steps", run.settings.gradient_accumulation_steps);
  } else {
    log_changed_ranks(run.settings, run.world.size(), then);
  }
  warn_changed("threads", at::get_num_threads());
}

// load_weights() converts; this says so.
void log_converted_masters(const models::Model& model, const checkpoint::State& state) {
  const auto found = state.groups.find("model");
  if (found == state.groups.end()) return;  // load_weights() says so
  const std::map<std::string, at::Tensor> all(found->second.begin(), found->second.end());
  int converted = 0;
  at::ScalarType then = at::kFloat, now = at::kFloat;
  for (const auto& p : model.params()) {
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

// The first rank chooses, all check a share of the files, and what one finds damaged nobody takes.
checkpoint::Loaded open_together(const config::Settings& settings, dist::World& world,
                                 const std::string& which) {
  std::vector<fs::path> damaged, passed_over;
  for (;;) {
    Json choice;
    if (world.is_first()) {
      try {
        const fs::path path = checkpoint::choose(checkpoint_dir(settings), which, damaged,
                                                 &passed_over, settings.run_name);
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
    if (found.item<double>() == 0) return {path, checkpoint::open(path), passed_over};
    damaged.push_back(path);
  }
}

checkpoint::Loaded load_into(Run& run, const std::string& which) {
  auto loaded = run.world.size() > 1 ? open_together(run.settings, run.world, which)
                                     : checkpoint::load_resolved(checkpoint_dir(run.settings),
                                                                 which, run.settings.run_name);
  const checkpoint::State& state = loaded.state;
  const std::string source = loaded.path.string();
  check_same_run(run, state.extra, source);
  if (run.trained.lora != nullptr) {
    resume_lora(run.trained, state, source);
  } else {
    log_converted_masters(*run.trained.model, state);
    load_weights(*run.trained.model, state);
  }
  run.trained.optimizer->load(json_int(state.extra, "optimizer_steps", source),
                              moment_finder(state, trained_params(run.trained)));
  resume_fp8(run.trained, state, source);
  return loaded;
}

// The position is in samples. Samples of another length are other cuts of the same tokens: only
// between two epochs is it known which of them were seen.
data::Position resumed_position(const config::Settings& settings, int ranks,
                                const data::TokenData& train, const Json& extra,
                                const std::string& source) {
  const uint64_t position = position_of(extra, source);
  const int64_t now = settings.max_seq_length;
  const int64_t then = json_int(extra, "max_seq_length", source);
  const data::Order order = saved_order(extra, source);
  if (then == now || position == 0) return {position, order};
  if (then < 1)
    fail(ExitCode::kDamaged, "train", source, ": max_seq_length: wanted at least 1, found ", then);
  if (train.mixed() != nullptr)
    fail(ExitCode::kUsage, "train", source, ": wanted max_seq_length ", then,
         " as in the checkpoint, found ", now,
         "; the sources of a mixture have no common epoch at whose end it could change. Resume "
         "with --max_seq_length ",
         then, ", or start a new run from these weights with --init_from ", source);
  const uint64_t epoch = data::sample_count(train, then);
  if (epoch == 0 || position % epoch != 0)
    fail(ExitCode::kUsage, "train", source, ": wanted max_seq_length ", then,
         " as in the checkpoint, found ", now, "; it was saved in the middle of an epoch (sample ",
         epoch == 0 ? position : position % epoch, " of ", epoch,
         "), where samples of another length would repeat some tokens and leave others out. Resume "
         "with --max_seq_length ",
         then, " until the epoch ends, or start a new run from these weights with --init_from ",
         source);
  const uint64_t samples = position / epoch * data::sample_count(train, now);
  log_info(str("resume: max_seq_length was ", then, " and is ", now, "; ", position / epoch,
               " whole epochs were seen: ", position, " samples then, ", samples, " now"));
  // Blocks of samples of the new length.
  return {samples, order.is_uniform() ? order : new_order(settings, ranks, train)};
}

void resume_refusals(Progress& p, const Json& extra, const std::string& source) {
  if (extra.contains("skipped_steps")) {  // checkpoints before FP8 have none
    p.skipped_steps = json_int(extra, "skipped_steps", source);
    p.skipped_in_a_row = json_int(extra, "skipped_in_a_row", source);
  }
  if (!extra.contains("refused_steps")) return;  // nor those before bad_steps
  p.bad_step_skips = json_int(extra, "refused_steps", source);
  p.rollbacks = json_int(extra, "rollbacks", source);
}

// Those that the next one is judged by, of the same time as the weights.
void resume_losses(monitor::SpikeDetector& losses, const Json& extra, const std::string& source) {
  losses = {};
  if (!extra.contains("recent_losses")) return;  // a checkpoint before bad_steps
  for (const Json& loss : json_field(extra, "recent_losses", Json::value_t::array, source)) {
    if (!loss.is_number())
      fail(ExitCode::kDamaged, "train", source, ": recent_losses: wanted numbers, found ",
           loss.type_name());
    losses.add(loss.get<double>());
  }
}

// The checkpoint may be of before best_model moved. A run that comes from a bucket has no link, and
// its best one there.
std::optional<double> resumed_best(Run& run, const Json& extra, const std::string& source) {
  // Older checkpoints have none, but the lowest loss of the run. Null: best_model named nothing.
  const char* field = extra.contains("best_model_loss") ? "best_model_loss" : "best_val_loss";
  std::optional<double> saved;
  if (extra.contains(field) && !extra.at(field).is_null())
    saved = json_field(extra, field, Json::value_t::number_float, source).get<double>();
  const auto found = best_loss_on_disk(run.world, checkpoint_folder(run.settings), saved);
  return found ? found : saved;
}

// Training on from an earlier step replaces what the run saved behind it, as it comes to those
// steps.
void warn_of_later_checkpoints(const Run& run) {
  const fs::path folder = checkpoint_folder(run.settings);
  // Nearly always there is none, which their names tell without reading a manifest.
  const auto steps = checkpoint::step_folders(folder);
  if (steps.empty() || steps.back().step <= run.resumed.step) return;
  std::vector<std::string> later;
  for (const checkpoint::Summary& saved :
       checkpoint::list(folder, run.settings.permanent_checkpoint_freq)) {
    const std::string name = saved.path.filename().string();
    if (saved.step <= run.resumed.step || std::ranges::count(run.resumed.passed_over, name) > 0)
      continue;
    const char* what = saved.is_best ? " (best_model)" : saved.is_permanent ? " (permanent)" : "";
    later.push_back(name + what);
  }
  if (later.empty()) return;
  constexpr size_t kMostNamed = 5;
  const size_t more = later.size() - std::min(later.size(), kMostNamed);
  later.resize(later.size() - more);
  log_warn(
      str("resume: the run goes back to step ", run.resumed.step, ", and has ", join(later, ", "),
          more > 0 ? str(" and ", more, " more") : "",
          " behind it: a step that is saved again replaces its checkpoint. To keep them, give ",
          "--run_name OTHER --resume ", run.resumed.from));
}

}  // namespace

Restored restore(Run& run, const std::string& which) {
  const auto loaded = load_into(run, which);
  const std::string source = loaded.path.string();
  if (run.trained.sharding != nullptr) run.trained.sharding->weights_changed();
  if (run.trained.fp8 != nullptr) run.trained.fp8->forget_weights();
  if (run.trained.graph != nullptr) run.trained.graph->forget();
  resume_losses(run.guards.losses, loaded.state.extra, source);
  return {source, loaded.state.step, position_of(loaded.state.extra, source)};
}

void resume(Run& run) {
  const auto loaded = load_into(run, run.settings.resume);
  const checkpoint::State& state = loaded.state;
  const std::string source = loaded.path.string();
  run.resumed = {source,
                 state.step,
                 {},
                 saved_schedule(state.extra, source),
                 layout_of(state.extra, source).ranks};
  for (const fs::path& path : loaded.passed_over)
    run.resumed.passed_over.push_back(path.filename().string());
  run.progress.step = state.step;
  run.progress.tokens = state.tokens;
  run.progress.position =
      resumed_position(run.settings, run.world.size(), *run.data.train, state.extra, source);
  if (const data::MixedTokens* mixed = run.data.train->mixed(); mixed != nullptr)
    run.progress.position.mixture =
        resumed_mixture(run.settings, run.world.size(), *mixed, run.progress, state.extra, source);
  resume_refusals(run.progress, state.extra, source);
  resume_losses(run.guards.losses, state.extra, source);
  if (run.claim.run_id.empty() && state.extra.contains("run_id"))
    run.claim.run_id = json_string(state.extra, "run_id", source);
  // Another run's best is not this one's.
  const std::string made_by = json_string(state.extra, "run_name", source);
  const bool own =
      run.claim.resumes || run.settings.run_name.empty() || run.settings.run_name == made_by;
  if (own && state.extra.contains("best_val_loss")) {
    run.progress.has_best = true;
    run.progress.best_val_loss =
        json_field(state.extra, "best_val_loss", Json::value_t::number_float, source).get<double>();
  }
  run.progress.evaluation_left_out =
      own && state.extra.value("evaluation_left_out", Json()) == true;
  // The run's own folder is continued unless another was asked for.
  if (run.settings.run_name.empty()) run.settings.run_name = made_by;
  if (own) run.progress.best_model_loss = resumed_best(run, state.extra, source);
  if (own && run.world.is_first()) warn_of_later_checkpoints(run);
}

}  // namespace octavo::train
