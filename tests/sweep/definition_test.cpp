#include "sweep/definition.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace octavo::sweep {
namespace {

std::string refusal(const std::string& yaml) {
  try {
    parse_definition(yaml, "s.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

void expect_refusal(const std::string& yaml, const std::string& words) {
  EXPECT_NE(refusal(yaml).find(words), std::string::npos) << yaml << "\nsaid: " << refusal(yaml);
}

// As it stands in the guides.
constexpr const char* kGuide = R"(
# sweep_lambda_fineweb.yaml
parameters:
  penalty_weight:
    values: [0.0, 0.005, 0.01, 0.02, 0.05]
  dataset:
    value: fineweb-edu
  use_fp8:
    value: true
)";

TEST(Definition, TakesTheGuidesSweep) {
  const Definition sweep = parse_definition(kGuide, "sweep_lambda_fineweb.yaml");
  EXPECT_EQ(sweep.method, Method::kGrid);
  EXPECT_EQ(sweep.metric, "val/loss");
  EXPECT_FALSE(sweep.maximize);
  EXPECT_EQ(sweep.name, "sweep_lambda_fineweb");
  EXPECT_EQ(trial_count(sweep), 5);
  ASSERT_EQ(sweep.parameters.size(), 3u);
  EXPECT_EQ(sweep.parameters[0].name, "penalty_weight");
  EXPECT_EQ(sweep.parameters[0].values[1], "0.005");
  EXPECT_EQ(sweep.parameters[1].values[0], "fineweb-edu");
  EXPECT_EQ(sweep.notes.size(), 2u);  // no method, no metric
}

TEST(Definition, TakesWhatPeopleWriteForWandb) {
  const Definition sweep = parse_definition(R"(
program: train.py
name: my sweep
project: demo
description: tries things
method: bayes
metric: {name: val_loss, goal: minimize, target: 1.5}
run_cap: 20
command:
  - ${env}
  - python
  - ${program}
early_terminate:
  type: hyperband
  min_iter: 3
parameters:
  max_lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-2}
  batch_size: {values: [8, 16]}
  warmup_steps: {min: 1, max: 10}
  weight_decay: {min: 0.0, max: 0.2}
  beta2: {distribution: q_uniform, min: 0.9, max: 0.99, q: 0.01}
)",
                                            "s.yaml");
  EXPECT_EQ(sweep.method, Method::kBayes);
  EXPECT_EQ(sweep.metric, "val/loss");
  EXPECT_EQ(sweep.target, 1.5);
  EXPECT_EQ(sweep.parameters[0].name, "learning_rate");  // max_lr is its alias
  EXPECT_EQ(sweep.parameters[0].kind, Kind::kLogUniform);
  EXPECT_EQ(sweep.parameters[2].kind, Kind::kInteger);
  EXPECT_EQ(sweep.parameters[3].kind, Kind::kUniform);
  EXPECT_EQ(sweep.parameters[4].step, 0.01);
  ASSERT_GE(sweep.hyperband.bands.size(), 4u);
  EXPECT_EQ(sweep.hyperband.bands[3], 81);  // as in W&B's own documentation: 3, 9, 27, 81
  EXPECT_EQ(trial_count(sweep), 20);
}

TEST(Definition, CountsBracketsFromTheEndAsWandbDoes) {
  const Definition sweep = parse_definition(
      "early_terminate: {type: hyperband, max_iter: 27, s: 2}\nparameters: {seed: {value: 1}}",
      "s.yaml");
  EXPECT_EQ(sweep.hyperband.bands, (std::vector<int64_t>{3, 9}));
}

TEST(Definition, RefusesWhatItDoesNotKnowWithTheNearestName) {
  const std::string one = "parameters: {seed: {value: 1}}\n";
  expect_refusal("metod: grid\n" + one, "did you mean method?");
  expect_refusal("method: grd\n" + one, "wanted grid, random or bayes");
  expect_refusal("metric: {nam: x}\n" + one, "did you mean name?");
  expect_refusal("metric: {name: val/los}\n" + one, "did you mean val/loss?");
  expect_refusal("early_terminate: {type: hyperband, min_itr: 3}\n" + one,
                 "did you mean min_iter?");
  expect_refusal("early_terminate: {type: hyperband}\n" + one, "min_iter");
  expect_refusal("parameters: {penalty_wieght: {value: 1}}", "did you mean penalty_weight?");
  expect_refusal("parameters: {seed: {valuess: [1]}}", "did you mean values?");
  expect_refusal("parameters: {seed: {distribution: unifrm, min: 1, max: 2}}",
                 "did you mean uniform?");
  expect_refusal("parameters: {seed: 3}", "wanted a section");
  expect_refusal("parameters: {seed: {parameters: {x: {value: 1}}}}", "nested parameters");
  expect_refusal("parameters: {run_name: {values: [a, b]}}", "leave it out");
  expect_refusal("parameters: {max_lr: {value: 1e-3}, learning_rate: {value: 1e-3}}",
                 "the same key as");
  expect_refusal("method: grid\n", "wanted parameters");
}

TEST(Definition, RefusesValuesThatTheKeyDoesNotTake) {
  expect_refusal("parameters: {batch_size: {values: [8, many]}}", "wanted an integer");
  expect_refusal("parameters: {penalty_weight: {value: -1}}", "wanted a number from 0");
  expect_refusal("parameters: {batch_size: {distribution: uniform, min: 1, max: 9}}",
                 "use int_uniform");
  expect_refusal("parameters: {use_fp8: {min: 0, max: 1}}", "is not a number");
  expect_refusal("parameters: {learning_rate: {distribution: log_uniform_values, min: 0, max: 1}}",
                 "more than 0");
  // Exponents of e, a mistake that W&B itself warns of.
  expect_refusal("parameters: {learning_rate: {distribution: log_uniform, min: 0.0001, max: 20}}",
                 "wanted a number");
  expect_refusal("parameters: {learning_rate: {min: 0.2, max: 0.1}}", "more than min");
  expect_refusal("parameters: {seed: {values: [1, 2], probabilities: [0.5, 0.4]}}", "the sum 1");
  expect_refusal("parameters: {seed: {values: [1], q: 3}}", "not read by categorical");
  expect_refusal("method: grid\nparameters: {learning_rate: {min: 0.1, max: 0.2}}",
                 "method grid wants");
  expect_refusal("method: grid\nparameters: {seed: {min: 1, max: 1000000}}", "at most 100000");
}

TEST(Definition, AListOfOneKeyIsOneValue) {
  const Definition sweep =
      parse_definition("parameters: {dataset: {value: [a.txt, b.txt]}}", "s.yaml");
  EXPECT_EQ(sweep.parameters[0].values[0], "a.txt,b.txt");
}

}  // namespace
}  // namespace octavo::sweep
