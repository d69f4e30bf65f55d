#pragma once
// PEFT's adapter_config.json: untrusted input.

#include <string>

#include "base/json.h"
#include "nn/lora.h"

namespace octavo::train {

// What would change the adapters' mathematics and is not implemented is refused.
nn::LoraOptions parse_peft_config(const Json& config, const std::string& source);

}  // namespace octavo::train
