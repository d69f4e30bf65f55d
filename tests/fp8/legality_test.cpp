#include "fp8/legality.h"

#include <gtest/gtest.h>

namespace octavo::fp8 {
namespace {

using Words = std::vector<std::string>;

TEST(Legality, SidesOfGpt2) {
  for (const Recipe recipe :
       {Recipe::kDelayed, Recipe::kCurrent, Recipe::kRowwise, Recipe::kBlockwise, Recipe::kMxfp8}) {
    EXPECT_EQ(refusal(recipe, 2304, 768), "");
    EXPECT_EQ(refusal(recipe, 768, 3072), "");
    EXPECT_NE(refusal(recipe, 50257, 768), "");
  }
  EXPECT_EQ(refusal(Recipe::kDelayed, 50257, 768), "outputs 50257 is not a multiple of 16");
  EXPECT_EQ(refusal(Recipe::kRowwise, 768, 100), "inputs 100 is not a multiple of 16");
  EXPECT_EQ(refusal(Recipe::kMxfp8, 50257, 48),
            "outputs 50257 is not a multiple of 32, inputs 48 is not a multiple of 32");
  EXPECT_EQ(refusal(Recipe::kBlockwise, 192, 128), "outputs 192 is not a multiple of 128");
}

TEST(Legality, MultiplesOfEveryRecipe) {
  const std::vector<std::pair<Recipe, int64_t>> sides = {{Recipe::kDelayed, 16},
                                                         {Recipe::kCurrent, 16},
                                                         {Recipe::kRowwise, 16},
                                                         {Recipe::kBlockwise, 128},
                                                         {Recipe::kMxfp8, 32}};
  for (const auto& [recipe, multiple] : sides)
    for (int64_t size = 1; size <= 300; ++size) {
      const bool legal = size % multiple == 0;
      EXPECT_EQ(refusal(recipe, size, 128).empty(), legal) << size;
      EXPECT_EQ(refusal(recipe, 128, size).empty(), legal) << size;
      const int64_t tokens = recipe == Recipe::kMxfp8 ? 32 : 16;
      EXPECT_EQ(token_refusal(recipe, size).empty(), size % tokens == 0) << size;
      EXPECT_EQ(token_refusal(recipe, size + padding(recipe, size)), "") << size;
      EXPECT_LT(padding(recipe, size), tokens) << size;
    }
  EXPECT_EQ(token_refusal(Recipe::kDelayed, 1023), "tokens 1023 is not a multiple of 16");
  EXPECT_EQ(token_refusal(Recipe::kMxfp8, 48), "tokens 48 is not a multiple of 32");
  EXPECT_EQ(token_refusal(Recipe::kBlockwise, 48), "") << "a short block at the end is legal";
}

TEST(Legality, MissingTokens) {
  EXPECT_EQ(padding(Recipe::kDelayed, 1023), 1);
  EXPECT_EQ(padding(Recipe::kMxfp8, 48), 16);
  EXPECT_EQ(padding(Recipe::kBlockwise, 48), 0);
  EXPECT_EQ(padding(Recipe::kRowwise, 0), 0);
}

TEST(Skip, GlobsAndWords) {
  const auto by = [](const Words& patterns, const std::string& layer, int64_t block) {
    return skipped_by(patterns, layer, block, 12);
  };
  EXPECT_EQ(by({}, "h.0.attn.c_attn", 0), "");
  EXPECT_EQ(by({"h.0.attn.c_attn"}, "h.0.attn.c_attn", 0), "h.0.attn.c_attn");
  EXPECT_EQ(by({"h.0"}, "h.0.attn.c_attn", 0), "") << "a part of a name is no match";
  EXPECT_EQ(by({"*c_proj"}, "h.3.mlp.c_proj", 3), "*c_proj");
  EXPECT_EQ(by({"*c_proj"}, "h.3.mlp.c_fc", 3), "");
  EXPECT_EQ(by({"h.?.mlp.*"}, "h.9.mlp.c_fc", 9), "h.?.mlp.*");
  EXPECT_EQ(by({"h.?.mlp.*"}, "h.10.mlp.c_fc", 10), "");
  EXPECT_EQ(by({"first"}, "h.0.mlp.c_fc", 0), "first");
  EXPECT_EQ(by({"first"}, "h.1.mlp.c_fc", 1), "");
  EXPECT_EQ(by({"last"}, "h.11.mlp.c_fc", 11), "last");
  EXPECT_EQ(by({"last"}, "h.10.mlp.c_fc", 10), "");
  EXPECT_EQ(by({"first", "last", "*"}, "lm_head", -1), "*") << "in no block";
  EXPECT_EQ(by({"x", "*.mlp.*", "first"}, "h.0.mlp.c_fc", 0), "*.mlp.*")
      << "the first that matches";
  EXPECT_EQ(by({"first:2"}, "h.1.mlp.c_fc", 1), "first:2");
  EXPECT_EQ(by({"first:2"}, "h.2.mlp.c_fc", 2), "");
  EXPECT_EQ(by({"last:8"}, "h.4.mlp.c_fc", 4), "last:8");
  EXPECT_EQ(by({"last:8"}, "h.3.mlp.c_fc", 3), "");
  EXPECT_EQ(by({"first:100", "last:100"}, "lm_head", -1), "");
  for (const char* none : {"first:0", "first:-1", "first:", "first:2x", "last: 2", "first2",
                           "last:99999999999999999999"})
    EXPECT_EQ(by({none}, "h.0.mlp.c_fc", 0), "") << none;
  EXPECT_EQ(skipped_by(Words{"last"}, "lm_head", -1, 0), "") << "no blocks, no last one";
  EXPECT_EQ(skipped_by(Words{"last"}, "h.0.mlp.c_fc", 0, 1), "last")
      << "one block is first and last";
}

TEST(Skip, DefaultOfARecipe) {
  for (const Recipe recipe : kRecipes) EXPECT_EQ(default_skip(recipe, 12), Words{});
  EXPECT_EQ(default_skip(Recipe::kNvfp4, 12), Words{"last:2"});
  EXPECT_EQ(default_skip(Recipe::kNvfp4, 20), Words{"last:3"});
  EXPECT_EQ(default_skip(Recipe::kNvfp4, 2), Words{"last:1"});
  EXPECT_EQ(default_skip(Recipe::kNvfp4, 1), Words{}) << "all would be kept out";
  EXPECT_EQ(skipped_by(Words{"none"}, "h.0.mlp.c_fc", 0, 1), "");
  EXPECT_EQ(unmatched(Words{"none"}, {}, 0), Words{}) << "it says so";
}

TEST(Skip, PatternsThatMatchNothing) {
  const std::vector<LayerName> layers = {
      {"h.0.attn.c_attn", 0}, {"h.0.mlp.c_fc", 0}, {"h.1.attn.c_attn", 1}, {"h.1.mlp.c_fc", 1}};
  const auto idle = [&](const Words& patterns) { return unmatched(patterns, layers, 2); };
  EXPECT_EQ(idle({"first", "last", "*", "h.1.*", "h.?.mlp.c_fc"}), Words{});
  EXPECT_EQ(idle({"h.2.*", "first", "c_attn", "Last"}), (Words{"h.2.*", "c_attn", "Last"}));
  // Matched, though a pattern before it had every one of its layers already.
  EXPECT_EQ(idle({"*", "h.0.mlp.c_fc"}), Words{});
  EXPECT_EQ(unmatched(Words{"first", "last", "*"}, {}, 0), (Words{"first", "last", "*"}));
  const auto said = [&](const Words& patterns) { return skip_problem(patterns, layers, 2); };
  EXPECT_EQ(said({"first", "h.1.*", "none"}), "");
  EXPECT_EQ(said({"first", "h.0"}),
            "fp8_skip: no layer is named 'h.0'; wanted first, last, last:3, none, or a pattern "
            "over names such as h.0.attn.c_attn; did you mean 'h.0.*'?");
  EXPECT_NE(said({"h.0.mlp.c_fcc"}).find("did you mean 'h.0.mlp.c_fc'?"), std::string::npos);
  EXPECT_EQ(said({"zzzzzzzzzzzz"}).find("did you mean"), std::string::npos);
}

}  // namespace
}  // namespace octavo::fp8
