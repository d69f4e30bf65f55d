#include "tokenizer/regex.h"

#include "fixtures.h"

namespace octavo::tokenizer {
namespace {

std::vector<uint32_t> ends_of(std::string_view pattern, std::string_view text) {
  std::vector<uint32_t> ends;
  Regex(pattern, "test").split(text, CutMode::kIsolated, 0, ends);
  return ends;
}

TEST(Regex, MatchesAndTheTextBetweenThem) {
  EXPECT_EQ(ends_of(R"(\d+)", "ab12cd3"), (std::vector<uint32_t>{2, 4, 6, 7}));
  EXPECT_EQ(ends_of("x", "abc"), (std::vector<uint32_t>{3}));
  EXPECT_EQ(ends_of("x", ""), (std::vector<uint32_t>{}));
}

TEST(Regex, MongolianVowelSeparatorIsNoSpace) {
  EXPECT_FALSE(Regex(R"(\s)", "test").matches_whole("\u180e"));
  EXPECT_TRUE(Regex(R"(\S)", "test").matches_whole("\u180e"));
  EXPECT_TRUE(Regex(R"([^\s]x)", "test").matches_whole("\u180ex"));
  EXPECT_TRUE(Regex(R"(\s)", "test").matches_whole("\u3000"));
}

TEST(Regex, WordCharactersAreOnigurumas) {
  const Regex word(R"(\w)", "test");
  for (const char* yes : {"a", "_", "7", "\u00e9", "\u0301", "\u2167", "\u24d0", "\u00bd"})
    EXPECT_TRUE(word.matches_whole(yes)) << yes;
  for (const char* no : {" ", "-", "\u2019", "\u2460", "\u200d"})
    EXPECT_FALSE(word.matches_whole(no)) << no;
}

TEST(Regex, ScriptsAreScriptsAndNotExtensions) {
  EXPECT_TRUE(Regex(R"(\p{Han})", "test").matches_whole("\u4e2d"));
  EXPECT_FALSE(Regex(R"(\p{Han})", "test").matches_whole("\u3001"));  // only in Script_Extensions
}

TEST(Regex, RefusesWhatOnigurumaReadsDifferently) {
  for (const char* pattern : {"^a",
                              "a$",
                              R"(\bx)",
                              R"(\h)",
                              R"((a)\1)",
                              "[a[b]]",
                              "[a&&b]",
                              "a{2}+",
                              "a{2}?",
                              "a**",
                              "(?m:.)",
                              "(?<name>a)",
                              "(*ACCEPT)",
                              R"([\S])",
                              R"(\p{Nonsense})",
                              "a{,3}",
                              "a{5000}",
                              "(?i:ss)",
                              R"((?i:\p{Lu}))",
                              R"(\xff)",
                              R"(\x{110000000})",
                              "[",
                              "[]",
                              R"(a\)",
                              "+a",
                              "(?#c)a"})
    expect_failure(ExitCode::kUsage, "not supported", [&] { Regex(pattern, "test"); });
}

TEST(Regex, RefusesMalformedEmptyAndHugePatterns) {
  expect_failure(ExitCode::kDamaged, "valid regular expression", [] { Regex("(a", "test"); });
  expect_failure(ExitCode::kUsage, "can match nothing", [] { Regex("a*", "test"); });
  expect_failure(ExitCode::kUsage, "can match nothing", [] { Regex("(?=a)", "test"); });
  expect_failure(ExitCode::kUsage, "longer than", [] { Regex(std::string(5000, 'a'), "test"); });
  const std::string nested = std::string(100, '(') + "a" + std::string(100, ')');
  expect_failure(ExitCode::kDamaged, "valid regular expression", [&] { Regex(nested, "test"); });
}

TEST(Regex, CatastrophicBacktrackingEndsInAnError) {
  const Regex regex("(?:a|aa|a?a)+b", "test");
  std::vector<uint32_t> ends;
  expect_failure(ExitCode::kUsage, "within its limits",
                 [&] { regex.split(std::string(2000, 'a') + "cb", CutMode::kIsolated, 0, ends); });
}

// Every word alone is matched soon enough; all of them would take hours.
TEST(Regex, LookingAheadAtEveryByteEndsInAnError) {
  const Regex regex("(?=[a ]+b)a|a", "test");
  std::vector<uint32_t> ends;
  expect_failure(ExitCode::kUsage, "it took more than",
                 [&] { regex.split(std::string(500'000, 'a'), CutMode::kIsolated, 0, ends); });
}

}  // namespace
}  // namespace octavo::tokenizer
