#include "tokenizer/added_tokens.h"

#include "fixtures.h"

namespace octavo::tokenizer {
namespace {

// Pieces as text, tokens as <id>.
std::string pieces_of(const AddedTokenMatcher& matcher, std::string_view text) {
  std::vector<AddedTokenMatcher::Piece> pieces;
  matcher.split(text, pieces);
  std::string shown;
  for (const auto& piece : pieces)
    shown +=
        piece.id >= 0 ? "<" + std::to_string(piece.id) + ">" : "[" + std::string(piece.text) + "]";
  return shown;
}

AddedToken token(TokenId id, std::string content) {
  AddedToken result;
  result.id = id;
  result.content = std::move(content);
  return result;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const AddedTokenMatcher matcher({token(1, "<|im"), token(2, "<|im_start|>"), token(3, "start")});
  EXPECT_EQ(pieces_of(matcher, "a<|im_start|>b<|im_stop"), "[a]<2>[b]<1>[_stop]");
  EXPECT_EQ(pieces_of(matcher, "start<|im_start"), "<3><1>[_]<3>");
  EXPECT_EQ(pieces_of(matcher, ""), "");
}

TEST(AddedTokens, StripTakesUnicodeSpacesAlong) {
  AddedToken left = token(1, "[L]"), both = token(2, "[B]");
  left.lstrip = true;
  both.lstrip = both.rstrip = true;
  const AddedTokenMatcher matcher({left, both});
  EXPECT_EQ(pieces_of(matcher, "a \u3000[L] b"), "[a]<1>[ b]");
  EXPECT_EQ(pieces_of(matcher, "a \t[B]\n b"), "[a]<2>[b]");
  EXPECT_EQ(pieces_of(matcher, "[B] [L]"), "<2><1>");
}

TEST(AddedTokens, SingleWordNeedsRoom) {
  AddedToken word = token(1, "cat");
  word.single_word = true;
  const AddedTokenMatcher matcher({word});
  EXPECT_EQ(pieces_of(matcher, "cat cats \u00e9cat (cat) _cat cat9 cat"),
            "<1>[ cats \u00e9cat (]<1>[) _cat cat9 ]<1>");
}

TEST(AddedTokens, NormalizedOnesMatchTheNormalizedText) {
  Json file = small_file();
  file["normalizer"] = {{"type", "NFC"}};
  Json normalized = added_token(256, "cafe\u0301");
  normalized["normalized"] = true;
  file["added_tokens"] = {normalized, added_token(257, "te\u0301")};
  const auto tokenizer = make_tokenizer(file);
  EXPECT_EQ(ids_of(*tokenizer, "caf\u00e9"), (std::vector<TokenId>{256}));
  EXPECT_EQ(ids_of(*tokenizer, "cafe\u0301"), (std::vector<TokenId>{256}));
  EXPECT_EQ(ids_of(*tokenizer, "te\u0301"), (std::vector<TokenId>{257}));
  EXPECT_EQ(ids_of(*tokenizer, "t\u00e9"), (std::vector<TokenId>{'t', 0xC3, 0xA9}));
}

TEST(AddedTokens, DecodeAsWrittenAndCanBeSkipped) {
  Json file = small_file();
  Json plain = added_token(257, "\u00e9t\u00e9 !");
  plain["special"] = false;
  file["added_tokens"] = {added_token(256, "<|endoftext|>"), plain};
  const auto tokenizer = make_tokenizer(file);
  EXPECT_EQ(ids_of(*tokenizer, "x<|endoftext|>\u00e9t\u00e9 !"),
            (std::vector<TokenId>{'x', 256, 257}));
  EXPECT_EQ(tokenizer->decode({'x', 256, 257}), "x<|endoftext|>\u00e9t\u00e9 !");
  EXPECT_EQ(tokenizer->decode({'x', 256, 257}, true), "x\u00e9t\u00e9 !");
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  EXPECT_EQ(tokenizer->vocab_size(), 258);
}

}  // namespace
}  // namespace octavo::tokenizer
