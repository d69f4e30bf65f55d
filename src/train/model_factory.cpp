#include "train/model_factory.h"

#include <ATen/ATen.h>

#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "base/model_file.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_fp8.h"
#include "hub/hub.h"
#include "model_config/config_file.h"
#include "model_config/presets.h"
#include "train/state/folder_check.h"
#include "train/state/rank_rows.h"

namespace octavo::train {
namespace {

model_config::ModelConfig built_in_config(const config::Settings& s, int64_t vocab) {
  return model_config::built_in(s.model_name, {.layers = s.n_layer,
                                               .heads = s.n_head,
                                               .width = s.n_embd,
                                               .vocab = vocab,
                                               .context = s.max_seq_length});
}

void check_size(const config::Settings& s, const model_config::ModelConfig& model, int64_t vocab) {
  if (s.n_layer > 0 || s.n_head > 0 || s.n_embd > 0)
    fail(ExitCode::kUsage, "train", "n_layer, n_head and n_embd are for gpt2 and custom; ",
         s.model_name, " has its size in config.json: change it there");
  if (model.vocab < vocab)
    fail(ExitCode::kUsage, "train", "the data needs a vocabulary of ", vocab, ", the model of ",
         s.model_name, " has ", model.vocab, "; prepare the data with the model's tokenizer");
  if (model.context < s.max_seq_length)
    fail(ExitCode::kUsage, "train", "max_seq_length ", s.max_seq_length,
         " is beyond the model's context of ", model.context);
}

}  // namespace

config::Settings with_resolved_names(config::Settings settings) {
  if (!model_config::is_built_in(settings.model_name)) {
    hub::refuse_other_family(settings.model_name);
    settings.model_name =
        hub::resolve_model(settings.model_name, hub::model_options(settings)).string();
  }
  const fs::path folder = settings.model_name;
  if (settings.tokenizer.empty() && fs::exists(folder / "tokenizer.json")) {
    settings.tokenizer = settings.model_name;
    log_info(str("tokenizer: of ", settings.model_name));
  }
  return settings;
}

std::string weights_of(const config::Settings& settings) {
  if (!settings.init_from.empty()) return settings.init_from;
  return checkpoint::has_hf_weights(settings.model_name) ? settings.model_name : kRandomWeights;
}

nn::Storage storage_of(const config::Settings& settings) {
  using config::StateType;
  const auto type = [](StateType t) { return t == StateType::kBf16 ? at::kBFloat16 : at::kFloat; };
  return {.master = type(settings.master_dtype),
          .gradient = type(settings.gradient_dtype),
          .trainable = settings.lora_rank == 0,
          .packed = settings.lora_rank > 0 && settings.lora_base == config::LoraBase::kFp8};
}

std::unique_ptr<models::Model> make_model(const config::Settings& settings, int64_t vocab,
                                          const engine::Engine& engine, const nn::Storage& storage,
                                          Weights come) {
  std::unique_ptr<models::Model> model;
  const fs::path file = fs::path(settings.model_name) / "config.json";
  if (fs::exists(file)) {
    if (come != Weights::kLater && weights_of(settings) == settings.model_name)
      check_promised_size(settings.model_name);
    const auto config = model_config::read(
        read_json(model_file(settings.model_name, "config.json")), file.string());
    check_size(settings, config, vocab);
    model = models::make(config, engine, storage);
  } else if (const auto known = model_config::published(settings.model_name);
             known && !model_config::is_built_in(settings.model_name)) {
    check_size(settings, known->config, vocab);  // without files: start_on_random_tokens()
    model = models::make(known->config, engine, storage);
  } else {
    model = models::make(built_in_config(settings, vocab), engine, storage);
  }
  model->set_gradient_checkpointing(settings.gradient_checkpointing);
  const std::string weights = weights_of(settings);
  if (come == Weights::kNone) {
    log_info("weights: none, since no kernel of the fake CUDA device would read them");
  } else if (come == Weights::kLater) {
    model->initialize(static_cast<uint64_t>(settings.seed));  // finite, for passes before that
  } else if (weights == kRandomWeights) {
    model->initialize(static_cast<uint64_t>(settings.seed));
    log_info(octavo::str("weights: random, from seed ", settings.seed));
  } else {
    load_weights(*model, weights);
    log_info(octavo::str("weights: ", weights));
  }
  return model;
}

std::unique_ptr<models::Model> make_model(const Json& config, const std::string& source,
                                          const engine::Engine& engine,
                                          const nn::Storage& storage) {
  return models::make(model_config::read(config, source), engine, storage);
}

std::function<at::Tensor(const std::string&)> finder(const checkpoint::State& state,
                                                     const char* group) {
  const auto found = state.groups.find(group);
  if (found == state.groups.end())
    fail(ExitCode::kDamaged, "train", "wanted a group '", group, "' in the checkpoint, found none");
  auto by_name = std::make_shared<std::unordered_map<std::string, at::Tensor>>(
      found->second.begin(), found->second.end());
  return [by_name, state, group = std::string(group)](const std::string& name) {
    const auto entry = by_name->find(name);
    if (entry == by_name->end()) return at::Tensor();
    return entry->second.is_meta() ? checkpoint::tensor(state, group, name) : entry->second;
  };
}

void load_weights(models::Model& model, const checkpoint::State& state) {
  if (!state.groups.contains("model") && state.groups.contains("adapter"))
    fail(ExitCode::kUsage, "train",
         "wanted a checkpoint with the weights of a model, found one of adapters; export it "
         "(octavo checkpoints export) and start from that folder");
  if (!state.groups.contains("model"))
    fail(ExitCode::kDamaged, "train", "wanted a group 'model' in the checkpoint, found none");
  nn::fill_masters(model.params(), [&](nn::Param& p) {
    p.master.copy_(stored_master(state, "model", p, "weight",
                                 "resume with the model settings it was made with"));
  });
  const size_t stored = state.groups.at("model").size();
  if (stored != model.params().size())
    fail(ExitCode::kUsage, "train", "this model has ", model.params().size(),
         " weights, the checkpoint ", stored, "; resume with the model settings it was made with");
}

void load_weights(models::Model& model, const fs::path& folder) {
  if (!fs::exists(folder / "config.json")) {
    load_weights(model, checkpoint::load(folder));
    return;
  }
  const checkpoint::HfWeights weights(folder);
  const checkpoint::HfModel& files = weights.files();
  if (weights.in_eight_bits() > 0)
    log_info(octavo::str(folder.string(), ": ", weights.in_eight_bits(), " weights are in FP8 (",
                         weights.method(), ") and are dequantized as they are read"));
  std::set<std::string> used;
  std::string last;  // one tensor of the file in memory at a time
  model.load_hugging_face([&](const std::string& name) {
    if (!last.empty()) files.release(last);
    if (!weights.contains(name)) return at::Tensor();
    used.insert(name);
    last = name;
    return weights.tensor(name);
  });
  for (const auto& name : weights.names())
    if (!used.contains(name) && !model.may_ignore(name, files.tensor(name)))
      fail(ExitCode::kUsage, "train", folder.string(), " has a tensor '", name,
           "' that this model has no place for; its config.json does not describe its weights, or "
           "the architecture is not implemented");
}

}  // namespace octavo::train
