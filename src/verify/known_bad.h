#pragma once
// Combinations of versions, variables and GPUs that are known not to work, as a table: each row has
// the public issue, pull request or release note that says so.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/finding.h"
#include "verify/python_facts.h"

namespace octavo::verify {

struct PackageCondition {
  std::string_view part = {};      // "": no condition
  std::string_view versions = {};  // a PEP 440 specifier: ">=2.1,<2.6"
  bool released = false;           // not built from a checkout ("0.14.1+git…")
};

struct VariableCondition {
  enum class Is : uint8_t {
    kSet,
    kUnset,
    kValue,
    kOther,  // not that value; unset counts
    kContains,
    kLacks,  // unset counts
  };
  std::string_view name = {};  // "": no condition
  Is is = Is::kSet;
  std::string_view value = {};
};

// Which trainers a row is about.
enum TrainerSet : unsigned { kForTe = 1, kForTorchao = 2, kForMegatron = 4, kForAll = 7 };

struct KnownBad {
  std::string_view id;
  TrainerSet trainers = kForAll;
  Status status = Status::kWarn;
  PackageCondition packages[2] = {};
  VariableCondition variables[3] = {};
  int least_capability = 0, most_capability = 999;  // 10 * major + minor
  std::string_view machine = {};                    // "aarch64"
  std::string_view what, fix, source;
};

std::span<const KnownBad> known_bad_rules();

// Whether the row describes these facts; no value when something that it asks for is not known,
// which `unknown` then names.
std::optional<bool> matches(const KnownBad& rule, const PythonFacts& facts,
                            std::vector<std::string>& unknown);

// A line for every row that matches or cannot be judged, and one that counts the others.
std::vector<Finding> judge_known_bad(const PythonFacts& facts);

}  // namespace octavo::verify
