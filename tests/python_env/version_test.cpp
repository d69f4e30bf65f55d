// Versions and specifiers, by the examples of PEP 440 itself.
// tests/conformance/verify_for.py compares thousands more with `packaging`.

#include "python_env/version.h"

#include <gtest/gtest.h>

#include "python_env/specifier.h"

namespace octavo::python_env {
namespace {

Version version(const std::string& text) {
  const auto found = parse_version(text);
  EXPECT_TRUE(found.has_value()) << text;
  return found.value_or(Version{});
}

bool fits(const std::string& text, const std::string& range) {
  const auto specifiers = parse_specifiers(range);
  EXPECT_TRUE(specifiers.has_value()) << range;
  return specifiers && allows(*specifiers, version(text));
}

TEST(Pep440, OrderOfReleases) {
  // "Summary of permitted suffixes and relative ordering".
  const char* kOrdered[] = {
      "1.0.dev456",    "1.0a1",         "1.0a2.dev456", "1.0a12.dev456",
      "1.0a12",        "1.0b1.dev456",  "1.0b2",        "1.0b2.post345.dev456",
      "1.0b2.post345", "1.0rc1.dev456", "1.0rc1",       "1.0",
      "1.0+abc.5",     "1.0+abc.7",     "1.0+5",        "1.0.post456.dev34",
      "1.0.post456",   "1.0.15",        "1.1.dev1",     "1!0.1"};
  for (size_t i = 0; i + 1 < std::size(kOrdered); ++i) {
    EXPECT_LT(version(kOrdered[i]), version(kOrdered[i + 1])) << kOrdered[i];
    EXPECT_GT(version(kOrdered[i + 1]), version(kOrdered[i])) << kOrdered[i];
  }
}

TEST(Pep440, OtherSpellings) {
  const std::pair<const char*, const char*> kSame[] = {
      {"v1.0", "1.0"},
      {"1.1RC1", "1.1rc1"},
      {"1.1-alpha.2", "1.1a2"},
      {"1.0preview3", "1.0rc3"},
      {"1.0-1", "1.0.post1"},
      {"1.0.r4", "1.0.post4"},
      {"1.0_post", "1.0.post0"},
      {"1.2.dev", "1.2.dev0"},
      {" 1.0\n", "1.0"},
      {"1.0+Ubuntu-1", "1.0+ubuntu.1"},
      {"00!01.02", "1.2"},
      {"1.0a", "1.0a0"},
      {"2.8.0a0+5228986c39.nv25.06", "2.8.0a0+5228986c39.nv25.6"}};
  for (const auto& [text, normal] : kSame) {
    EXPECT_EQ(version(text).text(), normal);
    EXPECT_EQ(version(text), version(normal)) << text;
  }
  EXPECT_EQ(version("1.0"), version("1.0.0"));
}

TEST(Pep440, RefusesWhatIsNoVersion) {
  for (const char* text :
       {"", "abc", "1.", "1..2", "1.0+", "1.0+a..b", "1.0+a!", "1.0.x", "1.0a1b2", "1 0", "1.0-",
        "unknown", "99999999999999999999999", "1.0a99999999999999999999999"})
    EXPECT_FALSE(parse_version(text).has_value()) << text;
  EXPECT_FALSE(parse_version(std::string(1000, '1')).has_value());
}

TEST(Pep440, Specifiers) {
  EXPECT_TRUE(fits("2.6.0a0", ">=2.6.0a0,<2.8.0"));
  EXPECT_FALSE(fits("2.8.0", ">=2.6.0a0,<2.8.0"));
  EXPECT_FALSE(fits("2.8.0.dev1", "<2.8.0")) << "a pre-release of the bound itself";
  EXPECT_TRUE(fits("2.7.4.post1", ">=2.7.4"));
  EXPECT_FALSE(fits("2.7.4.post1", ">2.7.4"));
  EXPECT_FALSE(fits("2.8.3+cu12", ">2.8.3")) << "a build of the bound itself";
  EXPECT_TRUE(fits("1.4.5", "~=1.4.2"));
  EXPECT_FALSE(fits("1.5.0", "~=1.4.2"));
  EXPECT_TRUE(fits("2.9.1+cu128", "==2.9.1"));
  EXPECT_FALSE(fits("2.9.1+cu128", "==2.9.1+cpu"));
  EXPECT_TRUE(fits("2.8.0a0+5228.nv25", "==2.8.*"));
  EXPECT_FALSE(fits("2.10.0", "==2.1.*"));
  EXPECT_TRUE(fits("2.9.1", "!=2.8.*, "));
  EXPECT_TRUE(fits("1.0", "===1.0"));
  EXPECT_TRUE(fits("1.0", ""));
}

TEST(Pep440, RefusesWhatIsNoSpecifier) {
  for (const char* text : {"2.0", ">=", "=>1", "~=1", ">=1.*", ">=1.0+local", "==1.0a1.*", "1,2"})
    EXPECT_FALSE(parse_specifiers(text).has_value()) << text;
}

}  // namespace
}  // namespace octavo::python_env
