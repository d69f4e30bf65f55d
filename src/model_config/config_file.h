#pragma once
// config.json of Hugging Face, of every family.

#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "model_config/model_config.h"

namespace octavo::model_config {

// A field that changes the mathematics and is not implemented is refused: thrown, or, for a caller
// that needs the sizes alone, put into `refusal` (the first one).
ModelConfig read(const Json& config, const std::string& source,
                 std::optional<Error>* refusal = nullptr);
Json to_json(const ModelConfig& config);

}  // namespace octavo::model_config
