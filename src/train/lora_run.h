#pragma once
// Training adapters (LoRA) instead of the model's weights: made from the settings, kept in
// checkpoints and in PEFT's files.

#include <string>

#include "checkpoint/checkpoint.h"
#include "train/trained_model.h"

namespace octavo::train {

// Freezes nothing itself: the model was made frozen. Puts adapters beside its layers when lora_rank
// says so, and packs the frozen weights into FP8 when lora_base does.
void start_lora(const config::Settings& settings, TrainedModel& trained);

// Where adapters may be: a model's layers and the modules that they are.
std::vector<nn::Lora::LayerOf> lora_layers(const models::Model& model);

// What the optimizer updates: the adapters, or the model's parameters.
const nn::ParamList& trained_params(const TrainedModel& trained);

// Those and the model's own.
nn::ParamList all_params(const TrainedModel& trained);

// Of all multiply-adds of a trained token of a sequence of `length`. Frozen layers have no weight
// gradient.
double flops_per_token(const TrainedModel& trained, int64_t length);

// The checkpoint's part, and back.
void save_lora(const TrainedModel& trained, checkpoint::State& state);
void resume_lora(TrainedModel& trained, const checkpoint::State& state, const std::string& source);
// Whether a checkpoint holds adapters; base_model.h says of which model.
bool is_lora(const checkpoint::State& state);
// Makes a checkpoint's adapters beside the layers of the model that they belong to.
std::unique_ptr<nn::Lora> attach_lora(const engine::Engine& engine, const models::Model& model,
                                      const checkpoint::State& state, const std::string& source);
// Adds them to its weights.
void merge_lora(const engine::Engine& engine, models::Model& model, const checkpoint::State& state,
                const std::string& source);

// PEFT's adapter_config.json and adapter_model.safetensors.
void write_peft(const nn::Lora& lora, const models::Model& model, const std::string& base,
                const fs::path& folder, const std::string& revision = "");
bool is_peft_folder(const fs::path& folder);
std::string peft_base(const fs::path& folder);      // base_model_name_or_path
std::string peft_revision(const fs::path& folder);  // of it; "" when it says none
// Makes the adapters of such a folder beside the model's layers.
std::unique_ptr<nn::Lora> read_peft(const engine::Engine& engine, const models::Model& model,
                                    const fs::path& folder);

// The receipt's part: what the adapters take of a step, and what FP8 can still gain.
Json lora_receipt(const TrainedModel& trained, int64_t length);

}  // namespace octavo::train
