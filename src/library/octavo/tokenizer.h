#pragma once
// Text to token ids and back, from Hugging Face's tokenizer.json (BPE), with the ids of Hugging
// Face's own library. Link octavo::tokenizer.
//
// What the file asks for and is not implemented is refused with a std::runtime_error: a tokenizer
// that is nearly right is worse than none.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::v0 {

class Tokenizer {
 public:
  // `name`: a tokenizer.json, a folder that holds one, or "bytes" (id = byte, 256 = end of
  // document).
  explicit Tokenizer(const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Added tokens in the text are recognised; nothing is put around it. Thread-safe.
  std::vector<int32_t> encode(std::string_view text) const;
  // The same, and what is spelled like a special token stays text: for text of strangers.
  std::vector<int32_t> encode_text(std::string_view text) const;
  // Unknown ids are an error.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = false) const;

  int64_t vocab_size() const;  // one more than the largest id
  int32_t end_of_document() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo::v0
