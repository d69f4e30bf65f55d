#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "models/model.h"

namespace octavo::train {

// kNone: the device has no numbers, so nobody would read them.
enum class Weights { kOfSettings, kLater, kNone };

// Names on the hub become folders; a model's own tokenizer is taken when none is given. A run keeps
// the names that it was given: folders differ from machine to machine.
config::Settings with_resolved_names(config::Settings settings);

// How the settings want weights and gradients to be kept.
nn::Storage storage_of(const config::Settings& settings);

// Where the weights come from: a folder of Hugging Face, a checkpoint, or "random" when they are
// drawn. The settings are with_resolved_names().
inline constexpr const char* kRandomWeights = "random";
std::string weights_of(const config::Settings& settings);

// The model that the settings name: with the weights of init_from, of the folder that model_name
// is, or drawn from seed. kLater: the caller loads a checkpoint over them and says which.
std::unique_ptr<models::Model> make_model(const config::Settings& settings, int64_t vocab,
                                          const engine::Engine& engine,
                                          const nn::Storage& storage = {},
                                          Weights weights = Weights::kOfSettings);

// From a Hugging Face config (also kept in checkpoints); weights are zero until loaded.
std::unique_ptr<models::Model> make_model(const Json& hugging_face_config,
                                          const std::string& source, const engine::Engine& engine,
                                          const nn::Storage& storage = {});

// All weights from a Hugging Face folder or a checkpoint.
void load_weights(models::Model& model, const fs::path& folder);
void load_weights(models::Model& model, const checkpoint::State& state);

// Looks up a tensor of a checkpoint's group by name; undefined when there is none.
std::function<at::Tensor(const std::string&)> finder(const checkpoint::State& state,
                                                     const char* group);

}  // namespace octavo::train
