#include "tokenizer/pre_tokenizer.h"

#include <chrono>

#include "fixtures.h"

namespace octavo::tokenizer {
namespace {

using Words = std::vector<std::string>;

Words words_of(const PreTokenizer& pre_tokenizer, std::string_view text) {
  PreTokenizer::Scratch scratch;
  const std::string_view cut = pre_tokenizer.split(text, Place::kStart, scratch);
  Words words;
  uint32_t begin = 0;
  for (const uint32_t end : scratch.ends) {
    words.emplace_back(cut.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

PreTokenizer of(StageKind kind) {
  return PreTokenizer({{kind, {}}}, "test");
}

// PCRE2's tables may be older than ours; code points that it does not know are left out.
std::string known_to_pcre2(const std::string& text) {
  static const Regex kAssigned(R"([\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}\p{Cc}\p{Cf}])", "test");
  std::string known;
  for (size_t at = 0; at < text.size();) {
    const std::string_view c =
        std::string_view(text).substr(at, decode_utf8(text.data() + at).length);
    if (kAssigned.matches_whole(c)) known += c;
    at += c.size();
  }
  return known;
}

class ScannerAgainstPcre2 : public testing::TestWithParam<std::string_view> {};

TEST_P(ScannerAgainstPcre2, SameWordsOnRandomText) {
  const Stage stage = stage_of_pattern(GetParam());
  ASSERT_NE(stage.kind, StageKind::kRegex);
  const PreTokenizer scanner({stage}, "test");
  const PreTokenizer regex({{StageKind::kRegex, std::string(GetParam())}}, "test");
  std::mt19937 random(7);
  for (int round = 0; round < 10'000; ++round) {
    const std::string text = known_to_pcre2(random_text(random, 16));
    const Words words = words_of(scanner, text);
    ASSERT_EQ(words, words_of(regex, text)) << text;
    std::string joined;
    for (const std::string& word : words) joined += word;
    ASSERT_EQ(joined, text);
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, ScannerAgainstPcre2,
                         testing::Values(kGpt2Pattern, kLlama3Pattern, kQwen2Pattern));

TEST(PreTokenizer, Gpt2ByHand) {
  EXPECT_EQ(words_of(of(StageKind::kGpt2), "I'll  go, don't 12'S\n\n x "),
            (Words{"I", "'ll", " ", " go", ",", " don", "'t", " 12", "'", "S", "\n\n", " x", " "}));
}

TEST(PreTokenizer, Llama3ByHand) {
  EXPECT_EQ(words_of(of(StageKind::kLlama3), "I'LL (go) 12345!\r\n\n  x\t y\n"),
            (Words{"I", "'LL", " (", "go", ")", " ", "123", "45", "!\r\n\n", " ", " x", "\t", " y",
                   "\n"}));
}

TEST(PreTokenizer, Qwen2TakesDigitsOneByOne) {
  EXPECT_EQ(words_of(of(StageKind::kQwen2), "a 12"), (Words{"a", " ", "1", "2"}));
}

TEST(PreTokenizer, DigitsThenByteLevelAsInSmolLm2) {
  const PreTokenizer pre({{StageKind::kDigits, {}}, {StageKind::kGpt2, {}}}, "test");
  EXPECT_EQ(words_of(pre, "a 12b  3"), (Words{"a", " ", "1", "2", "b", "  ", "3"}));
  EXPECT_EQ(words_of(of(StageKind::kDigitRuns), "a12b"), (Words{"a", "12", "b"}));
}

TEST(PreTokenizer, PrefixSpaceGoesBeforeEveryPieceThatHasNone) {
  const PreTokenizer pre(
      {{StageKind::kDigits, {}}, {StageKind::kPrefixSpace, {}}, {StageKind::kGpt2, {}}}, "test");
  EXPECT_EQ(words_of(pre, "a1 b"), (Words{" a", " 1", " b"}));
}

TEST(PreTokenizer, LongRunsTakeLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const StageKind kind : {StageKind::kGpt2, StageKind::kLlama3, StageKind::kQwen2})
    for (const char* unit : {" ", "\n", "a", "1", "!", "' ", " \n", "\u00a0"}) {
      std::string text;
      while (text.size() < 2'000'000) text += unit;
      text += "x";
      size_t total = 0;
      for (const std::string& word : words_of(of(kind), text)) total += word.size();
      EXPECT_EQ(total, text.size());
    }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 20);
}

}  // namespace
}  // namespace octavo::tokenizer
