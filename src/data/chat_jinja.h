#pragma once
// Our chat templates in the language of other programs: Jinja, as tokenizer_config.json keeps it.

#include <string>

#include "data/chat_template.h"

namespace octavo::data {

// kAuto is the template of the tokenizer's own folder.
//
// Renders what render_chat() does, for transformers' apply_chat_template and what works like it.
// Two things differ there, in every template: a marker in somebody's text is taken for one, and
// where an answer begins with white space its tokens may join those of the line before.
std::string jinja_of(ChatTemplate kind, const tokenizer::Tokenizer& tokenizer);

// The token that ends an answer, with which a model that was trained on such chats is done.
tokenizer::TokenId end_of_answer(ChatTemplate kind, const tokenizer::Tokenizer& tokenizer);

}  // namespace octavo::data
