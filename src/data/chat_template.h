#pragma once
// Chats as text: the templates of the models we know. A chat becomes segments, each of which is a
// marker (one token) or text, and counts in the loss or not. Text is never searched for markers, so
// what a user wrote cannot end a turn or start another.

#include <string>
#include <vector>

#include "config/settings.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {

using config::ChatTemplate;

struct Message {
  std::string role;  // system, user, assistant, tool, …
  std::string content;
  std::string input;  // Alpaca's second part of an instruction; "" for none
};

struct Segment {
  enum class Kind {
    kText,
    kMarker,         // an added token by its name
    kBegin,          // what the tokenizer's own post-processor puts in front
    kEndOfDocument,  // the tokenizer's
  };
  Kind kind = Kind::kText;
  std::string text;
  bool in_loss = false;  // of an answer: the model writes it
};

// The template that the tokenizer's added tokens show, else alpaca. Never kAuto.
ChatTemplate template_of(const tokenizer::Tokenizer& tokenizer);
// As an index or a checkpoint keeps it: "own" for kAuto, which stands there for the template of the
// model's own folder (data/own_template.h).
std::string_view stored_name(ChatTemplate kind);
// Of such a name; `source` is for the message when there is none of it.
ChatTemplate template_named(const std::string& name, const std::string& source);
// Fails when the tokenizer lacks a marker of the template.
void check_template(ChatTemplate kind, const tokenizer::Tokenizer& tokenizer);

// `open_turn`: ends with the beginning of an answer, for the model to continue.
std::vector<Segment> render_chat(ChatTemplate kind, const std::vector<Message>& messages,
                                 bool open_turn);

struct EncodedChat {
  std::vector<tokenizer::TokenId> ids;
  std::vector<char> in_loss;  // of each id
};
// Text between two markers is encoded in one piece, except where an answer begins: there a model
// that generates has its prompt's end.
EncodedChat encode_chat(const tokenizer::Tokenizer& tokenizer,
                        const std::vector<Segment>& segments);

}  // namespace octavo::data
