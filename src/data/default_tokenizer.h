#pragma once

#include <string>

#include "config/settings.h"

namespace octavo::data {

// The tokenizer of texts for which none is named: that of model_name, which may be a path, a name
// on the hub or a preset. Fails where the model's own is not to be had, because a model that knows
// other tokens learns nothing from bytes. Only `custom`, which has none, takes bytes, and says so.
std::string default_tokenizer(const config::Settings& settings);

}  // namespace octavo::data
