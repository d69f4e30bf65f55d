#pragma once
// The loss of a fixed text, to compare a model with what was written of it.

#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace octavo::exporter {

struct FixedText {
  std::vector<tokenizer::TokenId> ids;
  std::string what;  // for people
};

// At most 257 ids: of an English text that is part of the program when there is a tokenizer that
// fits the model, else ids drawn from a fixed seed.
FixedText fixed_text(const models::Model& model, const tokenizer::Tokenizer* tokenizer);

// Mean over the tokens after the first.
double text_loss(const engine::Engine& engine, const models::Model& model, const FixedText& text);

}  // namespace octavo::exporter
