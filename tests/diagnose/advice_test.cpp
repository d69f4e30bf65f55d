#include <gtest/gtest.h>

#include "config/parse.h"
#include "diagnose/diagnosis.h"
#include "diagnose/report.h"

namespace octavo::diagnose {
namespace {

using fp8::FormatChoice;
using fp8::Recipe;
using fp8::Role;

fp8::TensorHealth health(double underflowed_percent, double sqnr_db) {
  fp8::TensorHealth h;
  h.elements = h.nonzero = 1000;
  h.incidents.underflowed = static_cast<int64_t>(10 * underflowed_percent);
  h.amax = 1;
  h.factor = 448;
  h.signal = 1;
  h.noise = std::pow(10, -sqnr_db / 10);
  return h;
}

// One layer whose gradient is sick by all variants but those in `healthy`.
Diagnosis sick_but(const std::vector<Variant>& healthy, const fp8::Options& in_use) {
  Diagnosis found;
  found.in_use = in_use;
  LayerStats stats = stats_for("h.0.mlp.c_fc", 256, 256, variants(in_use));
  for (VariantStats& v : stats.variants) {
    const bool well = std::ranges::find(healthy, v.variant) != healthy.end();
    v.tensors.push_back(
        {Role::kGradient, fp8::Direction::kRow, well ? health(0.1, 30) : health(80, 5)});
    v.errors = {0.04, well ? 0.04 : 0.5, 0.04};
  }
  const auto& now = stats.variants.front().tensors.front();
  found.health.push_back(
      {"h.0.mlp.c_fc", "gradient", Role::kGradient, now.health, fp8::health_problem(now.health)});
  found.layers.push_back(std::move(stats));
  return found;
}

TEST(Advice, AMarginThatIsTooHighIsNamed) {
  const Diagnosis found = sick_but(
      {{Recipe::kDelayed, FormatChoice::kHybrid, 0}, {Recipe::kCurrent, FormatChoice::kHybrid, 0}},
      {.margin = 12});
  EXPECT_EQ(found.sick_layers(), std::vector<std::string>{"h.0.mlp.c_fc"});
  const auto advice = advise(found);
  ASSERT_FALSE(advice.empty());
  EXPECT_TRUE(advice.front().needed);
  EXPECT_EQ(advice.front().what, "fp8_margin 0");
  EXPECT_NE(advice.front().evidence.find("h.0.mlp.c_fc gradient: 80.0% underflowed"),
            std::string::npos)
      << advice.front().evidence;
}

TEST(Advice, TheLeastChangeThatHeals) {
  const Diagnosis found = sick_but(
      {{Recipe::kBlockwise, FormatChoice::kE4m3, 0}, {Recipe::kMxfp8, FormatChoice::kE4m3, 0}}, {});
  EXPECT_TRUE(advise(found).front().what.starts_with("fp8_recipe blockwise"))
      << advise(found).front().what;
}

TEST(Advice, LayersThatNothingHealsStayInBf16) {
  const auto advice = advise(sick_but({}, {}));
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice.front().what, "fp8_skip h.0.mlp.c_fc");
}

TEST(Advice, BrokenNumbersAreNoMatterOfRecipes) {
  Diagnosis found = sick_but({{Recipe::kCurrent, FormatChoice::kHybrid, 0}}, {});
  found.health.front().health.incidents.nan = 3;
  found.health.front().trouble = fp8::health_problem(found.health.front().health);
  const auto advice = advise(found);
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_NE(advice.front().what.find("checkpoint"), std::string::npos);
  EXPECT_NE(advice.front().evidence.find("3 NaN"), std::string::npos);
}

TEST(Advice, ASaturatedTensorOfDelayedIsAnOldScale) {
  Diagnosis found = sick_but({{Recipe::kCurrent, FormatChoice::kHybrid, 0}}, {});
  auto& report = found.health.front();
  report.health.incidents.saturated = 100;
  report.trouble = fp8::health_problem(report.health);
  EXPECT_TRUE(advise(found).front().what.starts_with("fp8_margin 1"));
  found.in_use.interval = 50;
  EXPECT_TRUE(advise(found).front().what.starts_with("fp8_interval 1"));
}

TEST(Advice, HealthyAndNothingBetter) {
  Diagnosis found = sick_but(variants({}), {});
  EXPECT_TRUE(found.sick_layers().empty());
  EXPECT_TRUE(advise(found).empty());
  found.coverage.push_back({.layer = "h.0.mlp.c_proj",
                            .gemm = "forward",
                            .precision = "BF16",
                            .reason = "outputs 100 is not a multiple of 16",
                            .flops_share = 0.1});
  found.coverage.push_back({.layer = "head",
                            .gemm = "all three",
                            .precision = "BF16",
                            .reason = "the language-model head stays in BF16",
                            .flops_share = 0.4});
  const auto advice = advise(found);
  ASSERT_EQ(advice.size(), 2U);
  EXPECT_FALSE(advice[0].needed);
  EXPECT_NE(advice[0].evidence.find("not a multiple of 16"), std::string::npos);
  EXPECT_NE(advice[1].evidence.find("40.0%"), std::string::npos);
}

TEST(Advice, ABetterRecipeIsWorthAThought) {
  Diagnosis found = sick_but(variants({}), {});
  for (VariantStats& v : found.layers.front().variants)
    if (v.variant.recipe == Recipe::kRowwise) v.errors = {0.02, 0.02, 0.02};
  const auto advice = advise(found);
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_FALSE(advice.front().needed);
  EXPECT_TRUE(advice.front().what.starts_with("fp8_recipe rowwise"));
}

// The flags are in the words of the line, and train takes them.
void expect_typed(const Diagnosis& found) {
  for (const Advice& a : advise(found)) {
    SCOPED_TRACE(a.what);
    EXPECT_FALSE(a.what.starts_with(";"));
    EXPECT_EQ(a.what.find("…"), std::string::npos);
    EXPECT_TRUE(!a.needed || !a.flags.empty());
    EXPECT_NO_THROW(config::parse(a.flags, config::kTrainArguments));
    for (size_t i = 0; i + 1 < a.flags.size(); i += 2)
      EXPECT_NE(a.what.find(a.flags[i].substr(2) + " " + a.flags[i + 1]), std::string::npos);
  }
}

TEST(Advice, EveryLineCanBeTyped) {
  for (const Recipe recipe : fp8::kAllRecipes)
    for (const int64_t margin : {int64_t{0}, int64_t{16}}) {
      const fp8::Options in_use{.recipe = recipe,
                                .format = fp8::default_format(recipe),
                                .margin = margin,
                                .hadamard = false};
      for (const Variant& cure : variants(in_use)) {
        Diagnosis found = sick_but({cure}, in_use);
        expect_typed(found);
        auto& report = found.health.front();
        report.health.incidents.saturated = 100;
        report.trouble = fp8::health_problem(report.health);
        expect_typed(found);
      }
    }
}

// Which train refuses beside a recipe that Hopper has not.
TEST(Advice, HoppersAccumulatorsGoWithItsRecipes) {
  const auto first = [](Recipe recipe, bool as_hopper) {
    Diagnosis found = sick_but({{recipe, FormatChoice::kE4m3, 0}}, {});
    if (as_hopper) found.layers.front().hopper_sums = {0.001, 0.001, 0.001};
    expect_typed(found);
    return advise(found).front().what;
  };
  EXPECT_TRUE(first(Recipe::kMxfp8, true).starts_with("fp8_recipe mxfp8, fp8_accumulate fp32;"));
  EXPECT_EQ(first(Recipe::kMxfp8, false).find("fp8_accumulate"), std::string::npos);
  EXPECT_EQ(first(Recipe::kBlockwise, true).find("fp8_accumulate"), std::string::npos);
}

// What is typed takes the place of the list: all sick layers, and what it has already.
TEST(Advice, Fp8SkipIsSaidWhole) {
  Diagnosis found = sick_but({}, {});
  for (int i = 1; i < 9; ++i) {
    found.health.push_back(found.health.front());
    found.layers.push_back(found.layers.front());
    found.health.back().layer = found.layers.back().layer = "h." + std::to_string(i) + ".mlp.c_fc";
  }
  found.coverage.push_back({.layer = "h.9.mlp.c_fc",
                            .gemm = "forward",
                            .precision = "BF16",
                            .reason = "fp8_skip last:1 (default)",
                            .flops_share = 0.1});
  expect_typed(found);
  const std::string what = advise(found).front().what;
  EXPECT_TRUE(what.starts_with("fp8_skip last:1,h.0.mlp.c_fc,h.1.mlp.c_fc,")) << what;
  EXPECT_TRUE(what.ends_with(",h.8.mlp.c_fc")) << what;
}

TEST(Report, WorstFirstAndTheVerdict) {
  Diagnosis found = sick_but({}, {});
  found.health.insert(found.health.begin(),
                      {"h.1.attn.c_proj", "input", Role::kInput, health(0, 12), ""});
  sort_worst_first(found.health);
  EXPECT_EQ(found.health.front().layer, "h.0.mlp.c_fc");
  found.advice = advise(found);
  const std::string text = text_of(found);
  EXPECT_LT(text.find("h.0.mlp.c_fc"), text.find("h.1.attn.c_proj"));
  EXPECT_NE(text.find("verdict: SICK: 1 layer(s) beyond the limits: h.0.mlp.c_fc"),
            std::string::npos);
  const Json json = json_of(found);
  EXPECT_EQ(json["verdict"], "sick");
  EXPECT_EQ(json["what_if"]["layers"][0]["variants"].size(), variants({}).size());
}

}  // namespace
}  // namespace octavo::diagnose
