#include "base/text.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(Glob, Matches) {
  for (const char* pattern : {"h.*.mlp.*", "*", "*c_fc*", "h.?.mlp.c_fc.weight",
                              "h.3.mlp.c_fc.weight", "**weight", "h*.*.weight"})
    EXPECT_TRUE(glob_match(pattern, "h.3.mlp.c_fc.weight")) << pattern;
  for (const char* pattern :
       {"", "h.*.attn.*", "h.??.mlp.c_fc.weight", "h.3.mlp", "*bias", "H.*", "?"})
    EXPECT_FALSE(glob_match(pattern, "h.3.mlp.c_fc.weight")) << pattern;
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_TRUE(glob_match("***", ""));
  EXPECT_FALSE(glob_match("?", ""));
  EXPECT_TRUE(glob_match("*f(char const*", "void f(char const*, int)"));  // a star in the name
}

// A matcher that tries every split would not come back from this one.
TEST(Glob, ManyStarsStayCheap) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(5000, 'a')));
}

TEST(NearestName, FindsWhatWasMeant) {
  constexpr std::string_view kNames[] = {"batch_size", "learning_rate", "max_lr", "seed"};
  EXPECT_EQ(nearest_name("batchsize", kNames), "batch_size");
  EXPECT_EQ(nearest_name("learning_rat", kNames), "learning_rate");
  EXPECT_EQ(nearest_name("lr", kNames), "max_lr");
  EXPECT_EQ(nearest_name("seed", kNames), "seed");
  EXPECT_EQ(nearest_name("zzzzzzzzzz", kNames), "");
  EXPECT_EQ(nearest_name(std::string(100, 's'), kNames), "");
  EXPECT_EQ(nearest_name("seed", {}), "");
}

TEST(Counted, OneHasNoPlural) {
  EXPECT_EQ(counted(0, "shard"), "0 shards");
  EXPECT_EQ(counted(1, "shard"), "1 shard");
  EXPECT_EQ(counted(2, "training file"), "2 training files");
}

TEST(Split, KeepsEmptyParts) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split("a,b,c", ','), (Parts{"a", "b", "c"}));
  EXPECT_EQ(split("", ','), (Parts{""}));
  EXPECT_EQ(split(",a,,", ','), (Parts{"", "a", "", ""}));
  EXPECT_EQ(split("abc", ','), (Parts{"abc"}));
}

TEST(Join, UndoesSplit) {
  for (const char* text : {"", "a", "a,b", ",,", "a,,b,"})
    EXPECT_EQ(join(split(text, ','), ","), text);
  EXPECT_EQ(join({}, ", "), "");
}

TEST(Trim, WhiteSpaceAtBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
  EXPECT_EQ(trim("x"), "x");
}

}  // namespace
}  // namespace octavo
