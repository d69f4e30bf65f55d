#include <gtest/gtest.h>

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
