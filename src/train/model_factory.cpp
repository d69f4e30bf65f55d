#include "train/model_factory.h"

#include <ATen/ATen.h>

#include <set>
#include <unordered_map>

#include "base/error.h"
#include "checkpoint/hf.h"
#include "models/gpt2/gpt2.h"

namespace octavo::train {
namespace {

void set_if(int64_t& value, int64_t wanted) {
  if (wanted > 0) value = wanted;
}

models::gpt2::Config config_of(const config::Settings& s, int64_t vocab) {
  models::gpt2::Config config;
  const bool is_folder = fs::exists(fs::path(s.model_name) / "config.json");
  if (is_folder) {
    const fs::path file = fs::path(s.model_name) / "config.json";
    config = models::gpt2::from_hugging_face(read_json(file), file.string());
  } else if (s.model_name != "custom" && !models::gpt2::preset(s.model_name, config)) {
    fail(ExitCode::kUsage, "train", "model_name '", s.model_name,
         "' is neither gpt2, gpt2-medium, gpt2-large, gpt2-xl, custom, nor a folder with "
         "config.json");
  }
  set_if(config.layers, s.n_layer);
  set_if(config.heads, s.n_head);
  set_if(config.width, s.n_embd);
  if (!is_folder) {
    config.vocab = vocab;
    config.context = s.max_seq_length;
  }
  if (config.vocab < vocab)
    fail(ExitCode::kUsage, "train", "the data needs a vocabulary of ", vocab, ", the model of ",
         s.model_name, " has ", config.vocab, "; prepare the data with the model's tokenizer");
  if (config.context < s.max_seq_length)
    fail(ExitCode::kUsage, "train", "max_seq_length ", s.max_seq_length,
         " is beyond the model's context of ", config.context);
  if (config.width % config.heads != 0)
    fail(ExitCode::kUsage, "train", "n_embd ", config.width, " is not a multiple of n_head ",
         config.heads);
  return config;
}

}  // namespace

std::unique_ptr<models::Model> make_model(const config::Settings& settings, int64_t vocab,
                                          const engine::Engine& engine) {
  auto model = models::gpt2::make(config_of(settings, vocab), engine);
  if (settings.init_from.empty())
    model->initialize(static_cast<uint64_t>(settings.seed));
  else
    load_weights(*model, settings.init_from);
  return model;
}

std::unique_ptr<models::Model> make_model(const Json& config, const std::string& source,
                                          const engine::Engine& engine) {
  return models::gpt2::make(models::gpt2::from_hugging_face(config, source), engine);
}

std::function<at::Tensor(const std::string&)> finder(const checkpoint::State& state,
                                                     const char* group) {
  const auto found = state.groups.find(group);
  if (found == state.groups.end())
    fail(ExitCode::kDamaged, "train", "wanted a group '", group, "' in the checkpoint, found none");
  auto by_name = std::make_shared<std::unordered_map<std::string, at::Tensor>>(
      found->second.begin(), found->second.end());
  return [by_name](const std::string& name) {
    const auto entry = by_name->find(name);
    return entry == by_name->end() ? at::Tensor() : entry->second;
  };
}

void load_weights(models::Model& model, const checkpoint::State& state) {
  const at::NoGradGuard no_grad;
  const auto find = finder(state, "model");
  for (const auto& p : model.params()) {
    const at::Tensor stored = find(p->name);
    if (!stored.defined() || stored.sizes() != p->master.sizes())
      fail(ExitCode::kUsage, "train", "weight '", p->name, "': this model wants shape ",
           p->master.sizes(), ", the checkpoint has ",
           stored.defined() ? octavo::str(stored.sizes()) : "none",
           "; resume with the model settings it was made with");
    p->master.copy_(stored);
  }
  const size_t stored = state.groups.at("model").size();
  if (stored != model.params().size())
    fail(ExitCode::kUsage, "train", "this model has ", model.params().size(),
         " weights, the checkpoint ", stored, "; resume with the model settings it was made with");
  nn::refresh_compute(model.params());
}

void load_weights(models::Model& model, const fs::path& folder) {
  if (!fs::exists(folder / "config.json")) {
    load_weights(model, checkpoint::load(folder));
    return;
  }
  const auto files = checkpoint::open_hf_model(folder);
  std::set<std::string> used;
  model.load_hugging_face([&](const std::string& name) {
    if (!files.contains(name)) return at::Tensor();
    used.insert(name);
    return files.tensor(name);
  });
  for (const auto& [name, shard] : files.shard_of)
    if (!used.contains(name) && !model.may_ignore(name, files.tensor(name)))
      fail(ExitCode::kUsage, "train", folder.string(), " has a tensor '", name,
           "' that this model has no place for; its config.json does not describe its weights, or "
           "the architecture is not implemented");
}

}  // namespace octavo::train
