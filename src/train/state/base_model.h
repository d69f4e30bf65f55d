#pragma once
// The frozen model that adapters are trained beside. A checkpoint of adapters keeps what it takes
// to find the same weights again: where they came from, the revision on the hub, and a hash of all
// of them. Adapters are never put beside other weights.

#include <string>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "config/settings.h"
#include "models/model.h"

namespace octavo::train {

struct BaseModel {
  enum class Kind { kFolder, kCheckpoint, kRandom };  // kFolder: of Hugging Face, or on the hub
  Kind kind = Kind::kRandom;
  std::string name;      // as it was given; of random weights, the model's
  std::string path;      // of a local folder or checkpoint, from the root; "" of a name on the hub
  std::string revision;  // of a name on the hub: its commit
  int64_t seed = 0;      // of random weights
  std::string hash;      // of the weights; "" in checkpoints from before it was kept
  std::string text() const;  // for messages
};

// The base of a run with these settings; `resolved` are with_resolved_names(). Reads all weights.
BaseModel base_of(const config::Settings& given, const config::Settings& resolved,
                  const Json& model_config);

// In a checkpoint's "lora" entry, and back.
void save_base(const BaseModel& base, Json& lora);
BaseModel parse_base(const Json& lora, const std::string& source);
// The same, and a guess for checkpoints that say no more than a name.
BaseModel stored_base(const checkpoint::State& state, const std::string& source);

// Fails unless both are the same weights.
void check_same_base(const BaseModel& wanted, const BaseModel& found, const std::string& source);

// The base of a checkpoint of adapters, frozen, with its weights. Fails when they cannot be found,
// or are not the ones that the adapters belong to.
std::unique_ptr<models::Model> load_base(const checkpoint::State& adapters,
                                         const std::string& source,
                                         const config::Settings& settings,
                                         const engine::Engine& engine);

// The folder or hub name that PEFT would load the base by. Fails when there is none.
std::string base_for_peft(const BaseModel& base, const std::string& source);

}  // namespace octavo::train
