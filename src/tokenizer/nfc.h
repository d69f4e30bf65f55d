#pragma once
// Unicode normalisation form C over utf8proc, in time O(n log n) whatever the text: utf8proc's own
// ordering of combining marks is quadratic in the length of a run of them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::tokenizer {

class Nfc {
 public:
  // True when `text` is in form C for sure; false says nothing.
  bool surely_normal(std::string_view text) const;
  std::string normalize(std::string_view text) const;

 private:
  // A starter that form C leaves alone and that never joins what stands before it: text can be cut
  // in front of it.
  bool is_boundary(uint32_t code_point) const {
    return code_point < boundaries_.size() && boundaries_[code_point];
  }
  void normalize_run(std::string_view run, std::string& out) const;

  static const std::vector<bool>& boundaries();  // made once

  const std::vector<bool>& boundaries_ = boundaries();
};

}  // namespace octavo::tokenizer
