#pragma once

#include <memory>

#include "base/json.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "models/model.h"

namespace octavo::train {

// The model that the settings name, with weights from init_from or drawn from seed.
std::unique_ptr<models::Model> make_model(const config::Settings& settings, int64_t vocab,
                                          const engine::Engine& engine);

// From a Hugging Face config (also kept in checkpoints); weights are zero until loaded.
std::unique_ptr<models::Model> make_model(const Json& hugging_face_config,
                                          const std::string& source, const engine::Engine& engine);

// All weights from a Hugging Face folder.
void load_weights(models::Model& model, const fs::path& hugging_face_folder);

}  // namespace octavo::train
