// The table of known-bad combinations: each row is whole, and what a row asks for is asked.
// tests/conformance/verify_for.py has an example for and against every row.

#include "verify/known_bad.h"

#include <gtest/gtest.h>

#include <set>

#include "python_env/specifier.h"
#include "verify/python_machine.h"

namespace octavo::verify {
namespace {

TEST(KnownBad, EveryRowIsWhole) {
  std::set<std::string_view> ids;
  for (const KnownBad& rule : known_bad_rules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id << " twice";
    EXPECT_FALSE(rule.what.empty()) << rule.id;
    EXPECT_FALSE(rule.fix.empty()) << rule.id;
    EXPECT_FALSE(rule.source.empty()) << rule.id;
    EXPECT_TRUE(!rule.packages[0].part.empty() || !rule.variables[0].name.empty()) << rule.id;
    EXPECT_NE(rule.status, Status::kOk) << rule.id;
    for (const PackageCondition& condition : rule.packages) {
      if (condition.part.empty()) continue;
      EXPECT_EQ(part_named(condition.part).id, condition.part);
      EXPECT_TRUE(python_env::parse_specifiers(condition.versions).has_value()) << rule.id;
    }
  }
}

TEST(KnownBad, AGoodEnvironmentMatchesNone) {
  for (const Trainer trainer : kTrainers)
    for (const Finding& line : judge_known_bad(good_environment(trainer)))
      EXPECT_EQ(line.status, Status::kOk)
          << name_of(trainer) << ": " << line.id << ": " << line.found;
}

constexpr KnownBad kRule{.id = "a rule",
                         .trainers = kForTe,
                         .packages = {{"te", "<2.17"}, {"cudnn", ">=9.23.0,<9.23.2"}},
                         .variables = {{"NVTE_X", VariableCondition::Is::kOther, "0"}},
                         .least_capability = 100,
                         .most_capability = 109,
                         .machine = "x86_64",
                         .what = "what",
                         .fix = "fix",
                         .source = "source"};

PythonFacts matching() {
  PythonFacts facts = good_environment(Trainer::kTe);
  install(facts, "transformer-engine", "2.16.1");
  install(facts, "nvidia-cudnn-cu13", "9.23.1.3");
  facts.nvml.gpus[0].major = 10;
  return facts;
}

std::optional<bool> match(const PythonFacts& facts, std::vector<std::string>* unknown = nullptr) {
  std::vector<std::string> why;
  const auto result = matches(kRule, facts, why);
  if (unknown != nullptr) *unknown = why;
  return result;
}

TEST(KnownBad, EveryConditionCounts) {
  EXPECT_EQ(match(matching()), true);
  PythonFacts facts = matching();
  facts.trainer = Trainer::kMegatron;
  EXPECT_EQ(match(facts), false);
  facts = matching();
  install(facts, "nvidia-cudnn-cu13", "9.23.2.1");
  EXPECT_EQ(match(facts), false);
  facts = matching();
  install(facts, "transformer-engine", "2.17.0");
  EXPECT_EQ(match(facts), false);
  facts = matching();
  facts.nvml.gpus[0].major = 9;
  EXPECT_EQ(match(facts), false);
  facts = matching();
  facts.machine = "aarch64";
  EXPECT_EQ(match(facts), false);
  facts = matching();
  facts.variables["NVTE_X"] = "0";
  EXPECT_EQ(match(facts), false);
}

TEST(KnownBad, WhatIsNotKnownIsNotPassed) {
  std::vector<std::string> unknown;
  PythonFacts facts = matching();
  facts.nvml.gpus.clear();
  EXPECT_EQ(match(facts, &unknown), std::nullopt);
  EXPECT_EQ(unknown, std::vector<std::string>{"the GPU's compute capability"});
  facts = matching();
  std::erase_if(facts.packages, [](const auto& p) { return p.name == "nvidia-cudnn-cu13"; });
  EXPECT_EQ(match(facts, &unknown), std::nullopt) << "it may come from the system";
  EXPECT_EQ(unknown, std::vector<std::string>{"the version of cuDNN"});
  facts.variables["CUDNN_VERSION"] = "9.23.0.1-1";
  EXPECT_EQ(match(facts), true) << "a container's variable";
  facts = matching();
  install(facts, "nvidia-cudnn-cu13", "nine");
  EXPECT_EQ(match(facts, &unknown), std::nullopt);
  // Known to be another version of one part: the other does not matter.
  install(facts, "transformer-engine", "2.18");
  EXPECT_EQ(match(facts), false);
  facts = matching();
  std::erase_if(facts.packages, [](const auto& p) { return p.name == "transformer-engine"; });
  EXPECT_EQ(match(facts), false) << "a package that is not there cannot be the wrong one";
}

TEST(KnownBad, LinesNameEvidenceAndSource) {
  PythonFacts facts = good_environment(Trainer::kTorchao);
  install(facts, "torchao", "0.14.1");
  const Finding line = finding_of(judge_known_bad(facts), "torchao 0.14.1 with another torch");
  EXPECT_EQ(line.status, Status::kWarn);
  EXPECT_NE(line.found.find("torchao 0.14.1, torch 2.14.1+cu130: "), std::string::npos)
      << line.found;
  EXPECT_NE(line.found.find("(torchao issue 2919)"), std::string::npos) << line.found;
  install(facts, "torchao", "0.14.1+git1234567");
  EXPECT_EQ(finding_of(judge_known_bad(facts), "torchao 0.14.1 with another torch").id, "");
  facts.variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1";
  EXPECT_EQ(finding_of(judge_known_bad(facts), "CUDA_DEVICE_MAX_CONNECTIONS=1").section,
            Section::kEnvironment);
}

}  // namespace
}  // namespace octavo::verify
