#include "library/octavo/tokenizer.h"

#include "tokenizer/tokenizer.h"

namespace octavo::v0 {

struct Tokenizer::State {
  std::unique_ptr<tokenizer::Tokenizer> own;
};

Tokenizer::Tokenizer(const std::string& name)
    : state_(std::make_unique<State>(State{tokenizer::load_tokenizer(name)})) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  state_->own->encode(text, ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_text(std::string_view text) const {
  std::vector<int32_t> ids;
  state_->own->encode_text(text, ids);
  return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  return state_->own->decode(ids, skip_special);
}

int64_t Tokenizer::vocab_size() const {
  return state_->own->vocab_size();
}

int32_t Tokenizer::end_of_document() const {
  return state_->own->end_of_document();
}

}  // namespace octavo::v0
