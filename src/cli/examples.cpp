// octavo examples [NAME]: the files of configs/, from wherever the program is installed.

#include "cli/examples.h"

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/library.h"
#include "base/text.h"
#include "cli/verbs.h"

namespace octavo::cli {
namespace {

// "# yaml-language-server: $schema=octavo.schema.json", as configs/*.yaml begin.
constexpr std::string_view kModeline = "# yaml-language-server: $schema=";

// What the file is, by its first comment for people.
std::string summary_of(std::string_view text) {
  for (const std::string& line : split(text, '\n'))
    if (line.starts_with("# ") && !line.starts_with(kModeline)) return line.substr(2);
  return "";
}

// An absolute path, because editors look from the YAML file's own folder. It is this machine's: a
// file that others open wants `octavo config schema --output octavo.schema.json` beside it.
std::string schema_line(const std::string& name, const fs::path& schemas) {
  const std::string path = (schemas / name).string();
  std::error_code error;
  // A modeline ends at the first space, and a # begins a part of the schema.
  if (fs::exists(path, error) && path.find_first_of(" \t#") == path.npos)
    return str(kModeline, path);
  const std::string_view verb = name.starts_with("sweep") ? "sweep" : "config";
  return str("# for editors: octavo ", verb, " schema --output ", name,
             ", and in place of this line: ", kModeline.substr(2), name);
}

std::string without_folder(std::string line) {
  constexpr std::string_view kFolder = "configs/";
  for (size_t at = 0; (at = line.find(kFolder, at)) != line.npos;) line.erase(at, kFolder.size());
  return line;
}

std::string list_of_examples() {
  size_t width = 0;
  for (const Example& example : example_files()) width = std::max(width, example.name.size());
  std::string out;
  for (const Example& example : example_files()) {
    std::string name(example.name);
    name.resize(width, ' ');
    out += str("  ", name, "  ", summary_of(example.text), "\n");
  }
  return out + "\noctavo examples NAME > my.yaml writes one of them.\n";
}

}  // namespace

std::string as_own_file(std::string_view text, const fs::path& schemas) {
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines) {
    if (line.starts_with(kModeline))
      line = schema_line(line.substr(kModeline.size()), schemas);
    else if (line.starts_with("#"))
      line = without_folder(line);
  }
  return join(lines, "\n");
}

int examples(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  if (parsed.positionals.empty()) {
    std::cout << list_of_examples();
    return 0;
  }
  std::string wanted = parsed.positionals.front();
  if (wanted.ends_with(".yaml")) wanted.resize(wanted.size() - std::string_view(".yaml").size());
  std::vector<std::string_view> names;
  for (const Example& example : example_files()) {
    names.push_back(example.name);
    if (example.name != wanted) continue;
    std::cout << as_own_file(example.text,
                             own_program().parent_path().parent_path() / "share" / "configs");
    return 0;
  }
  const std::string nearest = nearest_name(wanted, names);
  fail(ExitCode::kUsage, "cli", "examples: wanted the name of an example, found '",
       wanted.substr(0, 80), "'; ",
       nearest.empty() ? "octavo examples lists them" : "did you mean " + nearest + "?");
}

}  // namespace octavo::cli
