#include "sweep/parameter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sweep/definition.h"
#include "sweep/propose.h"

namespace octavo::sweep {
namespace {

Parameter read(const std::string& fields, const std::string& key = "adam_eps") {
  return parse_definition("method: random\nparameters: {" + key + ": {" + fields + "}}", "s.yaml")
      .parameters[0];
}

double at(const Parameter& parameter, double u) {
  return std::stod(value_at(parameter, u));
}

TEST(Parameter, DistributionsHaveTheirQuantiles) {
  const auto weight = [](const std::string& fields) { return read(fields, "penalty_weight"); };
  EXPECT_NEAR(at(weight("min: 2.0, max: 4.0"), 0.25), 2.5, 1e-5);
  EXPECT_NEAR(at(weight("distribution: log_uniform_values, min: 0.01, max: 100"), 0.5), 1, 1e-5);
  EXPECT_NEAR(at(weight("distribution: log_uniform, min: 0, max: 2"), 0.5), std::exp(1), 1e-4);
  EXPECT_NEAR(at(weight("distribution: inv_log_uniform, min: 0, max: 2"), 0.5), std::exp(-1), 1e-5);
  EXPECT_NEAR(at(weight("distribution: normal, mu: 5, sigma: 2"), 0.8413447), 7, 1e-4);
  EXPECT_NEAR(at(weight("distribution: log_normal, mu: 1, sigma: 0.5"), 0.5), std::exp(1), 1e-4);
  EXPECT_EQ(value_at(weight("distribution: q_uniform, min: 0, max: 1, q: 0.1"), 0.32), "0.3");
  EXPECT_EQ(value_at(weight("distribution: q_uniform, min: 0, max: 1.05, q: 0.1"), 0.9999), "1");
}

TEST(Parameter, FewDigitsAndNeverOutsideTheRange) {
  const Parameter p = read("min: 0.1234567, max: 0.9876543", "penalty_weight");
  EXPECT_EQ(value_at(p, 0.3), "0.38272");
  EXPECT_LE(at(p, 1 - 1e-12), 0.9876543);
  EXPECT_GE(at(p, 1e-12), 0.1234567);
}

TEST(Parameter, IntegersHaveEqualShares) {
  const Parameter p = read("min: 1, max: 4", "batch_size");
  std::map<std::string, int> seen;
  for (int i = 0; i < 400; ++i) ++seen[value_at(p, (i + 0.5) / 400)];
  EXPECT_EQ(seen.size(), 4u);
  for (const auto& [value, count] : seen) EXPECT_EQ(count, 100) << value;
}

TEST(Parameter, ProbabilitiesAreKept) {
  const Parameter p = read("values: [1, 2, 3], probabilities: [0.5, 0.2, 0.3]", "seed");
  EXPECT_EQ(value_at(p, 0.49), "1");
  EXPECT_EQ(value_at(p, 0.51), "2");
  EXPECT_EQ(value_at(p, 0.71), "3");
  EXPECT_EQ(value_at(p, middle_of(p, 1)), "2");
}

TEST(Parameter, AGridHasEveryCombinationOnceTheLastFastest) {
  const Definition sweep = parse_definition(
      "method: grid\nparameters:\n  batch_size: {values: [8, 16]}\n  seed: {min: 1, max: 3}\n"
      "  weight_decay: {distribution: q_uniform, min: 0.1, max: 0.2, q: 0.1}\n",
      "s.yaml");
  ASSERT_EQ(trial_count(sweep), 12);
  std::vector<std::vector<std::string>> tried;
  for (int64_t number = 1; number <= 12; ++number)
    tried.push_back(propose(sweep, 0, number, {}).values);
  EXPECT_EQ(tried[0], (std::vector<std::string>{"8", "1", "0.1"}));
  EXPECT_EQ(tried[1], (std::vector<std::string>{"8", "1", "0.2"}));
  EXPECT_EQ(tried[2], (std::vector<std::string>{"8", "2", "0.1"}));
  EXPECT_EQ(tried[11], (std::vector<std::string>{"16", "3", "0.2"}));
  std::ranges::sort(tried);
  EXPECT_EQ(std::ranges::adjacent_find(tried), tried.end());
}

}  // namespace
}  // namespace octavo::sweep
