#include "sweep/tpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sweep/propose.h"

namespace octavo::sweep {
namespace {

Definition space(const std::string& method) {
  return parse_definition("method: " + method + R"(
run_cap: 40
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}
  weight_decay: {min: 0.0, max: 1.0}
  batch_size: {values: [8, 16, 32, 64]}
  warmup_steps: {min: 0, max: 100}
)",
                          "s.yaml");
}

// A bowl like that of a real learning rate, whose bottom is at 3e-3, 0.1, 16 and 20.
double loss(const std::vector<std::string>& values) {
  const double rate = std::log10(std::stod(values[0]) / 3e-3), decay = std::stod(values[1]) - 0.1;
  const double batch = std::stod(values[2]) == 16 ? 0 : 0.3, warm = std::stod(values[3]) - 20;
  return rate * rate + decay * decay + batch + 1e-4 * warm * warm;
}

double best_of(const Definition& sweep, uint64_t seed, int budget) {
  std::vector<SeenTrial> seen;
  double best = 1e9;
  for (int number = 1; number <= budget; ++number) {
    const Proposal proposal = propose(sweep, seed, number, seen);
    seen.push_back({proposal.draws, loss(proposal.values)});
    best = std::min(best, *seen.back().value);
  }
  return best;
}

TEST(Tpe, BeatsRandomOnAverageInAFixedBudget) {
  constexpr int kSeeds = 40, kBudget = 40;
  double bayes = 0, random = 0;
  int wins = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const double a = best_of(space("bayes"), seed, kBudget);
    const double b = best_of(space("random"), seed, kBudget);
    bayes += a / kSeeds;
    random += b / kSeeds;
    wins += a < b;
  }
  RecordProperty("bayes", std::to_string(bayes));
  RecordProperty("random", std::to_string(random));
  EXPECT_LT(bayes, 0.5 * random) << "bayes " << bayes << ", random " << random;
  EXPECT_GT(wins, kSeeds * 3 / 4);
}

TEST(Tpe, IsAFunctionOfSeedNumberAndTrials) {
  const Definition sweep = space("bayes");
  std::vector<SeenTrial> seen;
  for (int number = 1; number <= 12; ++number) {
    const Proposal proposal = propose(sweep, 7, number, seen);
    EXPECT_EQ(proposal.values, propose(sweep, 7, number, seen).values);
    EXPECT_NE(proposal.values, propose(sweep, 8, number, seen).values);
    for (const double u : proposal.draws) EXPECT_TRUE(u > 0 && u < 1);
    seen.push_back({proposal.draws, loss(proposal.values)});
  }
}

// Two agents that ask at the same time see each other's trial as one that still runs.
TEST(Tpe, KeepsAwayFromTrialsThatStillRun) {
  const Definition sweep = space("bayes");
  std::vector<SeenTrial> seen;
  for (int number = 1; number <= 20; ++number) {
    const Proposal proposal = propose(sweep, 3, number, seen);
    seen.push_back({proposal.draws, loss(proposal.values)});
  }
  const std::vector<double> first = propose(sweep, 3, 21, seen).draws;
  std::vector<SeenTrial> crowded = seen;
  for (int i = 0; i < 30; ++i) crowded.push_back({first, std::nullopt});
  double near = 0, near_crowded = 0;  // mean distance of the learning rate's draw
  for (int number = 22; number < 72; ++number) {
    near += std::abs(propose(sweep, 3, number, seen).draws[0] - first[0]) / 50;
    near_crowded += std::abs(propose(sweep, 3, number, crowded).draws[0] - first[0]) / 50;
  }
  EXPECT_GT(near_crowded, near);
}

// A draw belongs to the value in whose share it lies, not to the value whose middle is nearest:
// with 0.9 and 0.1, draws from 0.7 to 0.9 stood for the first and were counted for the second.
TEST(Tpe, WeightedListsAreReadByTheirShares) {
  const Definition sweep = parse_definition(
      "method: bayes\nrun_cap: 40\nparameters: {batch_size: {values: [8, 16], probabilities: [0.9, "
      "0.1]}}",
      "s.yaml");
  // All of the good ones have the first value, by draws in the upper part of its share.
  std::vector<SeenTrial> seen;
  for (int i = 0; i < 40; ++i) {
    const double u = i < 8 ? 0.71 + 0.02 * i : 0.95;
    ASSERT_EQ(value_at(sweep.parameters[0], u), i < 8 ? "8" : "16");
    seen.push_back({{u}, i < 8 ? 1.0 : 2.0});
  }
  int first = 0;
  for (int number = 41; number <= 140; ++number)
    first += propose(sweep, 5, number, seen).values[0] == "8";
  EXPECT_GT(first, 90);
}

TEST(Tpe, RandomDrawsAreSpreadEvenly) {
  Draws random(1, 1);
  double sum = 0, squares = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = random.next_normal();
    sum += x / 10000;
    squares += x * x / 10000;
  }
  EXPECT_NEAR(sum, 0, 0.04);
  EXPECT_NEAR(squares, 1, 0.05);
}

}  // namespace
}  // namespace octavo::sweep
