#include "config/yaml.h"

#include <chrono>
#include <random>

#include "config/expect_refused.h"

namespace octavo::config {
namespace {

void refused(const std::string& text, std::initializer_list<std::string> parts) {
  expect_refused([&] { parse_yaml(text, "t.yaml"); }, parts);
}

TEST(Yaml, FlatFile) {
  const std::vector<YamlEntry> entries =
      parse_yaml("---\n# c\na: 1\n'b': \"x: \\n y\"\nc: [p, 'q r']\nd:\n  - u\n  - v\n", "t");
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].values, Words{"1"});
  EXPECT_EQ(entries[0].line, 3);
  EXPECT_EQ(entries[1].values, Words{"x: \n y"});
  EXPECT_EQ(entries[2].values, (Words{"p", "q r"}));
  EXPECT_TRUE(entries[2].is_list);
  EXPECT_EQ(entries[3].values, (Words{"u", "v"}));
  EXPECT_EQ(entries[3].line, 6);
}

TEST(Yaml, BlockText) {
  for (const char* text : {"a: |\n  x\n  y\n", "a: |\n  x\n  y", "a: |+\n  x\n  y\nb: 1\n"})
    EXPECT_EQ(parse_yaml(text, "t")[0].values, Words{"x\ny\n"}) << text;
}

TEST(Yaml, EmptyFilesHaveNoKeys) {
  for (const char* text : {"", "\n\n", "# only words\n", "---\n", "{}"})
    EXPECT_TRUE(parse_yaml(text, "t").empty()) << text;
}

TEST(Yaml, AnchorsAliasesAndTagsAreRefused) {
  refused("a: &x 1\n", {"t.yaml:1", "anchor"});
  refused("a: &x [1]\n", {"anchor"});
  refused("&x a: 1\n", {"anchor"});
  refused("a: 1\nb: *x\n", {"t.yaml:2"});
  refused("a: !!python/object:os.system x\n", {"tag", "python"});
  refused("a: !!int 3\n", {"tag"});
  refused("a: &a [b, b]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", {"t.yaml:1", "anchor"});
}

TEST(Yaml, ShapesOtherThanFlatAreRefused) {
  refused("a: 1\nb: 2\na: 3\n", {"t.yaml:3", "a again", "line 1"});
  refused("train:\n  batch_size: 1\n", {"t.yaml:1: train: ", "nested mapping"});
  refused("a: [[1]]\n", {"list"});
  refused("a: [{b: 1}]\n", {"nested"});
  refused("- a\n- b\n", {"list"});
  refused("just words\n", {"text where"});
  refused("a:\nb: 1\n", {"t.yaml:1: a: ", "no value"});
  refused("a: ~\n", {"t.yaml:1: a: ", "no value"});
  refused("a: [1, ~]\n", {"t.yaml:1: a: "});
  refused("? [a]\n: 1\n", {"list"});
  refused("a: 1\n---\nb: 2\n", {"second document"});
  refused("<<: {a: 1}\n", {"nested"});
}

TEST(Yaml, BrokenTextIsRefused) {
  refused("a: [1, 2\n", {"t.yaml:"});
  refused("a: 'x\n", {"t.yaml:"});
  refused("a: \"x\nb: 3\n", {"t.yaml:"});
  refused("a: b: c\n", {"t.yaml:1"});
  refused("\ta: 1\n", {"t.yaml:1"});
  refused(std::string("a: \0 1\n", 7), {"NUL"});
}

TEST(Yaml, SectionsAndNullsWhereTheyAreTaken) {
  const YamlShape shape{.sections = true, .nulls = true};
  const std::vector<YamlEntry> entries =
      parse_yaml("a: {b: 1, c: {d: [x]}, e: {}}\nf: ~\ng:\nh: 2\n", "t", shape);
  ASSERT_EQ(entries.size(), 6u);
  const char* const names[] = {"a.b", "a.c.d", "a.e", "f", "g", "h"};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(entries[i].name, names[i]);
    EXPECT_EQ(entries[i].is_null, i >= 2 && i <= 4) << names[i];
  }
  EXPECT_EQ(entries[1].values, Words{"x"});
  EXPECT_EQ(entries[5].values, Words{"2"});
  const auto refused_too = [&](const std::string& text, const std::string& part) {
    expect_refused([&] { parse_yaml(text, "t.yaml", shape); }, {part});
  };
  refused_too("a: {b: 1}\na: {c: 1}\n", "a again");
  refused_too("a: {b: 1}\na: 2\n", "a again");
  refused_too("a: {b: 1, b: 2}\n", "a.b again");
  refused_too("a: {b: 1}\na.b: 2\n", "a.b again");
  refused_too("a: [{b: 1}]\n", "nested");
  refused_too("a: [1, ~]\n", "no value");
  refused_too("? {a: 1}\n: 2\n", "nested");
  std::string deep;
  for (size_t i = 0; i < 18; ++i) deep += std::string(i, ' ') + "a:\n";
  refused_too(deep, "deeper than 16");
}

// Deep nesting, and long runs of what a scanner may back up over, end quickly and without a crash.
TEST(Yaml, HostileFilesEndQuickly) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string unit : {"[", "{", "- ", "? ", "a: [", "{a: ", "!", "&", "*", "'", "\"\\",
                                 "|\n", "a:\n ", ",", "]"}) {
    std::string text;
    while (text.size() + unit.size() <= 200'000) text += unit;
    EXPECT_THROW(parse_yaml(text, "t"), Error) << unit;
    EXPECT_THROW(parse_yaml(text, "t", {.sections = true, .nulls = true}), Error) << unit;
  }
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "k" + std::to_string(i) + ": 1\n";
  ASSERT_LT(many.size(), kMaxYamlBytes);
  refused(many, {"more than 1000 keys"});
  refused(std::string(kMaxYamlBytes + 1, ' '), {"at most 1048576 bytes"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// Random bytes and mutated files: an answer or an Error, nothing else.
TEST(Yaml, Fuzz) {
  std::mt19937 random(7);
  const std::string alphabet = "ab01:-?[]{},&*!|>'\"%@`# \n\t\\~\x80\xc3\xa9\xef\xbb\xbf";
  for (int round = 0; round < 20'000; ++round) {
    std::string text = round % 2 ? "batch_size: 8\ndataset: [a, \"b\"]\nprompt: 'x'\n" : "";
    for (size_t i = random() % 24; i > 0; --i) {
      const char c = alphabet[random() % alphabet.size()];
      text.insert(text.begin() + static_cast<ptrdiff_t>(random() % (text.size() + 1)), c);
    }
    try {
      parse_yaml(text, "t", {.sections = round % 3 == 0, .nulls = round % 3 == 0});
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kUsage);
    }
  }
}

}  // namespace
}  // namespace octavo::config
