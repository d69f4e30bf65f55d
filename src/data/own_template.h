#pragma once
// The chat template of a model's own folder, which states it in Jinja: chat_template.jinja, or
// chat_template in tokenizer_config.json.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "data/chat_template.h"
#include "jinja/template.h"

namespace octavo::data {

class OwnTemplate {
 public:
  // Of the folder where the tokenizer lies; null when it has none. Fails when it is no Jinja that
  // can be done here.
  static std::shared_ptr<const OwnTemplate> find(const tokenizer::Tokenizer& tokenizer);
  // The same, and null, with a warning that says why, where it cannot be done here or marks no
  // answers.
  static std::shared_ptr<const OwnTemplate> usable(const tokenizer::Tokenizer& tokenizer,
                                                   bool with_mask);
  OwnTemplate(std::string text, std::string file, jinja::OrderedJson special_tokens,
              const tokenizer::Tokenizer& tokenizer);

  const std::string& text() const { return text_; }
  const std::string& file() const { return file_; }
  // Of the text and what it is given: chats become other tokens when it changes.
  std::string fingerprint() const { return hash_of(text_, special_tokens_); }
  // The same for the name that loads a tokenizer; "" when its folder has no template.
  static std::string fingerprint_beside(const std::string& tokenizer_name);
  // How the tokens of answers are known, for a log line.
  std::string mask_source() const;

  // A chat as ids. What somebody wrote in it becomes no special token, as in encode_chat().
  // `open_turn`: ends with the beginning of an answer. `with_mask`: fails where it cannot be said
  // which tokens the model writes.
  EncodedChat encode(const std::vector<Message>& messages, bool open_turn, bool with_mask) const;

 private:
  struct Marks;
  static std::string hash_of(const std::string& text, const jinja::OrderedJson& special_tokens);
  struct Rendering;
  Rendering render(const std::vector<Message>& messages, size_t count, bool open_turn,
                   const Marks& marks) const;
  std::vector<jinja::Span> answers(const std::vector<Message>& messages, const Rendering& whole,
                                   const Marks& marks) const;
  jinja::Span answer_at(const std::vector<Message>& messages, size_t index, const Rendering& whole,
                        const Marks& marks) const;
  Marks marks_for(const std::vector<Message>& messages) const;
  size_t without_space_behind_end(const std::string& text, jinja::Span span) const;
  size_t end_of_turn(const std::string& text, size_t from) const;
  // The special token that is spelled at the beginning of `text`; "" for none.
  std::string_view special_at(std::string_view text) const;
  bool spells_special(std::string_view text) const;
  void encode_part(std::string_view text, const Marks& marks,
                   std::vector<tokenizer::TokenId>& ids) const;

  std::string text_, file_;
  jinja::OrderedJson special_tokens_;  // bos_token and the like, by their names
  bool takes_input_;  // has a place of its own for Alpaca's input, as templates that we export
  jinja::Template template_;
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<std::string> specials_;  // texts of the tokenizer's special tokens, longest first
  std::array<bool, 256> begins_special_{};  // by first byte: most bytes of a text begin none
};

}  // namespace octavo::data
