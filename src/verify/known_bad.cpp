#include "verify/known_bad.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "python_env/specifier.h"

namespace octavo::verify {
namespace {

bool is_about(const KnownBad& rule, Trainer trainer) {
  return (static_cast<unsigned>(rule.trainers) & (1u << static_cast<unsigned>(trainer))) != 0;
}

bool was_built_from_a_checkout(const python_env::Version& version) {
  return std::ranges::any_of(version.local,
                             [](const std::string& part) { return part.starts_with("git"); });
}

std::optional<bool> package_matches(const PackageCondition& condition, const PythonFacts& facts,
                                    std::vector<std::string>& unknown) {
  const Part& part = part_named(condition.part);
  const PartVersion found = version_of(facts, condition.part);
  if (!found.is_there && !part.is_library) return false;
  if (!found.version) {
    unknown.push_back(str("the version of ", part.shown));
    return std::nullopt;
  }
  if (condition.released && was_built_from_a_checkout(*found.version)) return false;
  const auto specifiers = python_env::parse_specifiers(condition.versions);
  OCTAVO_ASSERT(specifiers.has_value());
  return python_env::allows(*specifiers, *found.version);
}

bool variable_matches(const VariableCondition& condition, const PythonFacts& facts) {
  using Is = VariableCondition::Is;
  const auto it = facts.variables.find(std::string(condition.name));
  const bool is_set = it != facts.variables.end();
  const std::string value = is_set ? it->second : "";
  const bool contains = value.find(condition.value) != value.npos;
  switch (condition.is) {
    case Is::kSet:
      return is_set;
    case Is::kUnset:
      return !is_set;
    case Is::kValue:
      return is_set && value == condition.value;
    case Is::kOther:
      return value != condition.value;
    case Is::kContains:
      return is_set && contains;
    case Is::kLacks:
      return !contains;
  }
  return false;
}

bool asks_for_capability(const KnownBad& rule) {
  return rule.least_capability > 0 || rule.most_capability < 999;
}

// "Transformer Engine 2.8.0, cuDNN 9.13.1.26": what of these facts the row is about.
std::string evidence(const KnownBad& rule, const PythonFacts& facts) {
  std::vector<std::string> out;
  for (const PackageCondition& condition : rule.packages) {
    if (condition.part.empty()) continue;
    const PartVersion found = version_of(facts, condition.part);
    out.push_back(str(part_named(condition.part).shown, " ",
                      found.text.empty() ? "of unknown version" : found.text));
  }
  for (const VariableCondition& condition : rule.variables) {
    if (condition.name.empty()) continue;
    const auto it = facts.variables.find(std::string(condition.name));
    out.push_back(it == facts.variables.end()
                      ? str(condition.name, " not set")
                      : str(condition.name, "=", printable(it->second, 120)));
  }
  const int capability = capability_of(facts);
  if (asks_for_capability(rule) && capability != 0)
    out.push_back(str("compute capability ", capability / 10, ".", capability % 10));
  return join(out, ", ");
}

Finding line_of(const KnownBad& rule, const PythonFacts& facts) {
  const Section section =
      rule.variables[0].name.empty() ? Section::kKnownBad : Section::kEnvironment;
  return {section,
          std::string(rule.id),
          rule.status,
          "",
          str(evidence(rule, facts), ": ", rule.what, " (", rule.source, ")"),
          std::string(rule.fix)};
}

}  // namespace

std::optional<bool> matches(const KnownBad& rule, const PythonFacts& facts,
                            std::vector<std::string>& unknown) {
  if (!is_about(rule, facts.trainer)) return false;
  if (!rule.machine.empty() && rule.machine != facts.machine) return false;
  for (const VariableCondition& condition : rule.variables)
    if (!condition.name.empty() && !variable_matches(condition, facts)) return false;
  bool is_sure = true;
  for (const PackageCondition& condition : rule.packages) {
    if (condition.part.empty()) continue;
    const auto match = package_matches(condition, facts, unknown);
    if (match && !*match) return false;
    is_sure = is_sure && match.has_value();
  }
  if (asks_for_capability(rule)) {
    const int capability = capability_of(facts);
    if (capability == 0)
      unknown.emplace_back("the GPU's compute capability");
    else if (capability < rule.least_capability || capability > rule.most_capability)
      return false;
    is_sure = is_sure && capability != 0;
  }
  return is_sure ? std::optional(true) : std::nullopt;
}

std::vector<Finding> judge_known_bad(const PythonFacts& facts) {
  std::vector<Finding> out;
  size_t looked_at = 0, clean = 0;
  for (const KnownBad& rule : known_bad_rules()) {
    if (!is_about(rule, facts.trainer)) continue;
    ++looked_at;
    std::vector<std::string> unknown;
    const auto match = matches(rule, facts, unknown);
    if (match && !*match) {
      ++clean;
      continue;
    }
    Finding line = line_of(rule, facts);
    if (!match) {
      line.status = Status::kNotChecked;
      line.found = str("not known: ", join(unknown, ", "), ". ", line.found);
    }
    out.push_back(std::move(line));
  }
  out.push_back({Section::kKnownBad, "rows of the table", Status::kOk, "",
                 str(looked_at, " combinations looked for, ", clean, " are not here"), ""});
  return out;
}

}  // namespace octavo::verify
