// Facts about a Python environment. The interpreter is never started: files and the environment of
// this process are read.

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "python_env/requirement.h"
#include "verify/known_bad.h"
#include "verify/python_facts.h"

namespace octavo::verify {
namespace {

std::string value_of_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "";
}

void add_name(std::vector<std::string>& names, std::string_view name) {
  if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
}

// Variables that a rule or a part asks for, and all of Transformer Engine's. None is a secret.
std::map<std::string, std::string> looked_at_variables() {
  std::vector<std::string> names;
  for (const Part& part : parts())
    if (!part.variable.empty()) add_name(names, part.variable);
  for (const KnownBad& rule : known_bad_rules())
    for (const VariableCondition& condition : rule.variables)
      if (!condition.name.empty()) add_name(names, condition.name);
  std::map<std::string, std::string> out;
  for (const std::string& name : names)
    if (const char* value = std::getenv(name.c_str())) out[name] = value;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const size_t equals = line.find('=');
    if (line.starts_with("NVTE_") && equals != line.npos)
      out[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return out;
}

}  // namespace

PythonFacts gather_python(Trainer trainer, const std::string& python) {
  PythonFacts facts;
  facts.trainer = trainer;
  facts.environment = python_env::find_environment(python, value_of_variable);
  std::vector<std::string> names;
  for (const Part& part : parts())
    for (const std::string_view name : part.packages) add_name(names, name);
  facts.packages = python_env::read_packages(facts.environment, names, &facts.again);
  // What those require.
  std::vector<std::string> required;
  for (const python_env::Package& package : facts.packages)
    for (const std::string& line : package.metadata.requirements)
      if (const auto wanted = python_env::parse_requirement(line))
        if (std::ranges::find(names, wanted->name) == names.end()) add_name(required, wanted->name);
  for (python_env::Package& package : python_env::read_packages(facts.environment, required))
    facts.packages.push_back(std::move(package));
  for (const std::string_view id : {"torch", "te", "te-torch", "te-core", "torchao", "flash-attn"})
    for (const std::string_view name : part_named(id).packages)
      if (const python_env::Package* package = find_package(facts, name))
        for (const std::string& file : python_env::missing_libraries(*package))
          facts.missing_files.emplace_back(package->name, file);
  facts.variables = looked_at_variables();
  facts.driver = gather_driver();
  facts.nvml = gather_nvml();
  if (facts.driver.version.empty()) facts.driver.version = facts.nvml.driver;
  utsname machine{};
  if (uname(&machine) == 0) facts.machine = machine.machine;
  return facts;
}

}  // namespace octavo::verify
