#pragma once
// The general path for pre-tokenizer patterns that no hand-written scanner knows: PCRE2 with its
// JIT. Patterns are written for Oniguruma's Ruby syntax; only the part that means the same here is
// accepted.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/cutter.h"

namespace octavo::tokenizer {

// The pattern for PCRE2 (UTF, UCP) that matches what `pattern` does in Oniguruma; refuses
// constructs whose meaning differs or that no pre-tokenizer needs. `source` names the file in the
// message.
std::string translate_pattern(std::string_view pattern, std::string_view source);

class Regex {
 public:
  Regex(std::string_view pattern, std::string_view source);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) = delete;

  // Cuts `text` (valid UTF-8) at its matches; appends the end of each piece plus `base` to `ends`.
  // Thread-safe. A match that backtracks without bound is an error.
  void split(std::string_view text, CutMode mode, uint32_t base, std::vector<uint32_t>& ends) const;
  bool matches_whole(std::string_view text) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace octavo::tokenizer
