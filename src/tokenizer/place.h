#pragma once

namespace octavo::tokenizer {

// Where a text stands. Tokenizers of the SentencePiece heritage put a mark for a space in front of
// a text; in the middle of one they must not.
enum class Place {
  kStart,       // nothing stands in front of it
  kAfterToken,  // behind an added token
  kInsideText,  // directly behind other text
};

}  // namespace octavo::tokenizer
