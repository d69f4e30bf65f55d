#pragma once
// What a tokenizer.json does to a text before anything cuts it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/nfc.h"
#include "tokenizer/unicode.h"

namespace octavo::tokenizer {

struct NormalizerStep {
  enum class Kind {
    kNfc,
    kLowercase,  // each character alone: a final sigma is like any other
    kStrip,      // white space at `left` and `right`
    kPrepend,    // `content` in front of a text that is not empty
    kReplace,    // each `pattern`, letter by letter, with `content`
  };
  Kind kind;
  std::string pattern, content;
  bool left = false, right = false;
};

// Bounds the work at each place of a text and how much longer it becomes.
inline constexpr size_t kMaxLiteral = 64;

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps);
  // `continues`: other text stands directly in front of `text`, so that nothing is prepended.
  // Returns `text` itself when nothing changes it, else what it leaves in `buffer`.
  std::string_view normalize(std::string_view text, bool continues, std::string& buffer) const;
  std::string normalize(std::string_view text) const;

 private:
  // False: the step leaves `text` as it is and nothing is in `out`.
  bool apply(const NormalizerStep& step, std::string_view text, std::string& out) const;
  void lowercase(std::string_view text, std::string& out) const;
  std::string_view strip(const NormalizerStep& step, std::string_view text) const;

  std::vector<NormalizerStep> steps_;
  std::optional<Nfc> nfc_;
  const CharClasses& classes_ = CharClasses::shared();
};

}  // namespace octavo::tokenizer
