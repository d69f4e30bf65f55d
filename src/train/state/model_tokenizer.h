#pragma once
// Which tokenizer belongs to a model.

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"
#include "train/state/persist.h"

namespace octavo::train {

// The tokenizer of a loaded model: the one that the key names, else the model's own. One that the
// checkpoint was not trained with is refused, as is a model without one when none is named.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const Loaded& loaded, const std::string& named);

}  // namespace octavo::train
