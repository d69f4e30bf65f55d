// The C++ side of verify_for.py: a line of stdin, a line of stdout.
//   versions              the normalised version of each line; - when it is none
//   order                 two versions with a tab between them: <, = or >; ? when one is none
//   specifiers            version, tab, specifier: 1 or 0; ? when one is none
//   markers PYTHON        a marker: 1 or 0; ? when it cannot be judged
//   packages PATH         name, tab, version of every package of the environment
//   rules                 id, tab, status, tab, source of every row of the known-bad table

#include <cstdio>
#include <functional>
#include <iostream>
#include <string>

#include "base/error.h"
#include "python_env/environment.h"
#include "python_env/requirement.h"
#include "tool_main.h"
#include "verify/known_bad.h"

namespace octavo::python_env {
namespace {

void for_lines(const std::function<std::string(const std::string&)>& answer) {
  std::string line;
  while (std::getline(std::cin, line)) std::printf("%s\n", answer(line).c_str());
}

std::pair<std::string, std::string> fields(const std::string& line) {
  const size_t tab = line.find('\t');
  return {line.substr(0, tab), tab == line.npos ? "" : line.substr(tab + 1)};
}

std::string normal_form(const std::string& line) {
  const auto version = parse_version(line);
  return version ? version->text() : "-";
}

std::string order_of(const std::string& line) {
  const auto [first, second] = fields(line);
  const auto a = parse_version(first), b = parse_version(second);
  return !a || !b ? "?" : *a < *b ? "<" : *a == *b ? "=" : ">";
}

std::string is_allowed(const std::string& line) {
  const auto [first, second] = fields(line);
  const auto version = parse_version(first);
  const auto specifiers = parse_specifiers(second);
  return !version || !specifiers ? "?" : allows(*specifiers, *version) ? "1" : "0";
}

void list_packages(const std::string& path) {
  const Environment found = find_environment(path, [](const std::string&) { return ""; });
  for (const Package& package : read_packages(found, package_names(found)))
    std::printf("%s\t%s\n", package.name.c_str(), package.metadata.version.c_str());
}

void list_rules() {
  for (const verify::KnownBad& rule : verify::known_bad_rules())
    std::printf("%s\t%s\t%s\n", std::string(rule.id).c_str(),
                std::string(verify::name_of(rule.status)).c_str(),
                std::string(rule.source).c_str());
}

void run(const std::string& task, const std::string& argument) {
  if (task == "versions") return for_lines(normal_form);
  if (task == "order") return for_lines(order_of);
  if (task == "specifiers") return for_lines(is_allowed);
  if (task == "packages") return list_packages(argument);
  if (task == "rules") return list_rules();
  if (task != "markers")
    fail(ExitCode::kUsage, "python_env_tool", "wanted a task of its list, found '", task, "'");
  const MarkerValues values = marker_values(argument);
  for_lines([&](const std::string& line) {
    const auto result = holds(line, values);
    return std::string(!result ? "?" : *result ? "1" : "0");
  });
}

}  // namespace
}  // namespace octavo::python_env

int main(int argc, char** argv) {
  return octavo::tool_main(
      [&] { octavo::python_env::run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : ""); });
}
