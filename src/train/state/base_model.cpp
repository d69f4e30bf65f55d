#include "train/state/base_model.h"

#include <ATen/ATen.h>

#include <map>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/model_file.h"
#include "checkpoint/hf.h"
#include "hub/hub.h"
#include "model_config/presets.h"
#include "train/model_factory.h"
#include "train/state/folder_check.h"

namespace octavo::train {
namespace {

using Kind = BaseModel::Kind;

// A line for each tensor, by name: the same weights give the same hash however they are divided
// into files.
class WeightsHash {
 public:
  void add(const std::string& name, const at::Tensor& tensor) {
    const at::Tensor whole = tensor.contiguous();
    const std::span bytes(static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes());
    lines_[name] = octavo::str(at::toString(whole.scalar_type()), whole.sizes(), hash_bytes(bytes));
  }
  std::string value() const {
    std::string text;
    for (const auto& [name, line] : lines_) text += name + " " + line + "\n";
    return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
  }

 private:
  std::map<std::string, std::string> lines_;
};

std::string hash_of_folder(const fs::path& folder) {
  const checkpoint::HfModel files = checkpoint::open_hf_model(folder);
  WeightsHash hash;
  for (const auto& [name, shard] : files.shard_of) {
    hash.add(name, files.tensor(name));
    files.release(name);
  }
  return hash.value();
}

std::string hash_of_checkpoint(const checkpoint::State& state) {
  const auto find = finder(state, "model");
  WeightsHash hash;
  for (const auto& [name, tensor] : state.groups.at("model")) hash.add(name, find(name));
  return hash.value();
}

// Random weights are a function of these.
std::string hash_of_random(const Json& model_config, int64_t seed) {
  const std::string text = octavo::str("random ", seed, " ", model_config.dump());
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

// .../snapshots/<commit> of the Hugging Face cache.
std::string commit_of(const fs::path& folder) {
  return folder.parent_path().filename() == "snapshots" ? folder.filename().string() : "";
}

const char* word_of(Kind kind) {
  return kind == Kind::kRandom ? "random" : kind == Kind::kCheckpoint ? "checkpoint" : "folder";
}

Kind kind_of_word(const std::string& word, const std::string& source) {
  for (const Kind kind : {Kind::kFolder, Kind::kCheckpoint, Kind::kRandom})
    if (word == word_of(kind)) return kind;
  fail(ExitCode::kDamaged, "train", source,
       ": base_weights: wanted folder, checkpoint or random, found '", word, "'");
}

// What a checkpoint from before its base was described says of it.
void guess_base(const checkpoint::State& state, const std::string& source, BaseModel& base) {
  base.seed = json_int(state.extra, "seed", source);
  std::error_code none;
  if (fs::exists(fs::path(base.name) / "config.json", none))
    base.kind = checkpoint::has_hf_weights(base.name) ? Kind::kFolder : Kind::kRandom;
  else if (fs::exists(fs::path(base.name) / "manifest.json", none))
    base.kind = Kind::kCheckpoint;
  else
    base.kind = base.name == kRandomWeights || model_config::is_built_in(base.name) ? Kind::kRandom
                                                                                    : Kind::kFolder;
  if (base.kind != Kind::kRandom && fs::exists(base.name, none))
    base.path = fs::canonical(base.name).string();
}

// Links such as `latest` move on; the folder that they meant then does not.
fs::path rank_info_of(const BaseModel& base, const std::string& source) {
  std::error_code none;
  for (const std::string& place : {base.path, base.name})
    if (!place.empty() && fs::is_directory(place, none)) return place;
  fail(ExitCode::kUsage, "train", source, ": wanted the model that its adapters belong to, ",
       base.text(), ", found nothing there; put it back, or a link to it");
}

// Fills `hash` of what was found.
std::unique_ptr<models::Model> load_weights_of(BaseModel& base, const checkpoint::State& adapters,
                                               const std::string& source,
                                               const config::Settings& settings,
                                               const engine::Engine& engine) {
  constexpr nn::Storage kFrozen{.trainable = false};
  const Json& shape = json_field(adapters.extra, "model", Json::value_t::object, source);
  if (base.kind == Kind::kFolder) {
    hub::Options options = hub::model_options(settings);
    if (!base.revision.empty()) options.revision = base.revision;
    const fs::path folder =
        base.path.empty() ? hub::resolve_model(base.name, options) : rank_info_of(base, source);
    const fs::path config = model_file(folder, "config.json");
    check_promised_size(folder);
    auto model = make_model(read_json(config), config.string(), engine, kFrozen);
    load_weights(*model, folder);
    base.hash = hash_of_folder(folder);
    return model;
  }
  auto model = make_model(shape, source, engine, kFrozen);
  if (base.kind == Kind::kRandom) {
    model->initialize(static_cast<uint64_t>(base.seed));
    base.hash = hash_of_random(shape, base.seed);
  } else {
    const checkpoint::State state = checkpoint::load(rank_info_of(base, source));
    load_weights(*model, state);
    base.hash = hash_of_checkpoint(state);
  }
  return model;
}

}  // namespace

std::string BaseModel::text() const {
  if (kind == Kind::kRandom) return octavo::str(name, " with random weights of seed ", seed);
  std::string said = name;
  if (!path.empty() && path != name) said += octavo::str(" (", path, ")");
  if (!revision.empty()) said += octavo::str(" at revision ", revision);
  return said;
}

BaseModel base_of(const config::Settings& given, const config::Settings& resolved,
                  const Json& model_config) {
  const std::string weights = weights_of(resolved);
  BaseModel base;
  base.seed = given.seed;
  base.name = given.init_from.empty() ? given.model_name : given.init_from;
  if (weights == kRandomWeights) {
    base.name = given.model_name;
    base.hash = hash_of_random(model_config, given.seed);
    return base;
  }
  if (given.init_from.empty() && hub::is_hub_name(given.model_name)) {
    base.name = given.model_name.substr(0, given.model_name.find('@'));
    base.revision = commit_of(weights);
  } else {
    base.path = fs::canonical(weights).string();
  }
  const bool is_folder = fs::exists(fs::path(weights) / "config.json");
  base.kind = is_folder ? Kind::kFolder : Kind::kCheckpoint;
  base.hash = is_folder ? hash_of_folder(weights) : hash_of_checkpoint(checkpoint::open(weights));
  return base;
}

BaseModel parse_base(const Json& lora, const std::string& source) {
  BaseModel base;
  base.name = json_string(lora, "base", source);
  base.kind = kind_of_word(json_string(lora, "base_weights", source), source);
  base.path = json_string(lora, "base_path", source);
  base.revision = json_string(lora, "base_revision", source);
  base.seed = json_int(lora, "base_seed", source);
  base.hash = json_string(lora, "base_hash", source);
  return base;
}

void save_base(const BaseModel& base, Json& lora) {
  lora["base"] = base.name;
  lora["base_weights"] = word_of(base.kind);
  lora["base_path"] = base.path;
  lora["base_revision"] = base.revision;
  lora["base_seed"] = base.seed;
  lora["base_hash"] = base.hash;
}

BaseModel stored_base(const checkpoint::State& state, const std::string& source) {
  const Json& lora = json_field(state.extra, "lora", Json::value_t::object, source);
  if (lora.contains("base_hash")) return parse_base(lora, source);
  BaseModel base;
  base.name = json_string(lora, "base", source);
  guess_base(state, source, base);
  return base;
}

void check_same_base(const BaseModel& wanted, const BaseModel& found, const std::string& source) {
  if (wanted.hash.empty()) {
    log_warn(octavo::str(source, ": was saved before adapters knew their base; it is taken to be ",
                         found.text()));
    return;
  }
  if (wanted.hash == found.hash || found.hash.empty()) return;  // "": a fake CUDA device loads none
  fail(ExitCode::kUsage, "train", source, ": wanted the weights that its adapters were trained ",
       "beside, ", wanted.text(), " (hash ", wanted.hash, "), found ", found.text(), " with hash ",
       found.hash,
       "; give that model (model_name, revision, init_from, seed) as it was then, or start new "
       "adapters");
}

std::unique_ptr<models::Model> load_base(const checkpoint::State& adapters,
                                         const std::string& source,
                                         const config::Settings& settings,
                                         const engine::Engine& engine) {
  const BaseModel wanted = stored_base(adapters, source);
  BaseModel found = wanted;
  auto model = load_weights_of(found, adapters, source, settings, engine);
  check_same_base(wanted, found, source);
  return model;
}

std::string base_for_peft(const BaseModel& base, const std::string& source) {
  if (base.kind == Kind::kFolder) return base.name;
  fail(ExitCode::kUsage, "train",
       "export_format peft: wanted adapters of a Hugging Face folder or ",
       "of a model on the hub, which others can load, found ", source, " of ", base.text(),
       base.kind == Kind::kCheckpoint ? ", an octavo checkpoint" : "",
       "; export the merged model with export_format bf16");
}

}  // namespace octavo::train
