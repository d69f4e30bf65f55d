// octavo config show|check|schema|docs

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "cli/verbs.h"
#include "config/print.h"

namespace octavo::cli {
namespace {

int print_or_write(const Verb& verb, Args args, const std::string& content) {
  const std::string output = config::parse(args, verb.arguments).settings.output;
  if (output.empty())
    std::cout << content;
  else
    write_file_atomic(output, content);
  return 0;
}

}  // namespace

int config_show(const Verb& verb, Args args) {
  std::cout << config::show(config::parse(args, verb.arguments));
  return 0;
}

int config_check(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  if (parsed.config_file.empty())
    fail(ExitCode::kUsage, "cli",
         "config check: wanted a CONFIG.yaml, found none; name the file to check");
  std::cout << parsed.config_file << ": " << parsed.origins.size()
            << " keys given, no contradictions\n";
  return 0;
}

int config_schema(const Verb& verb, Args args) {
  return print_or_write(verb, args, config::json_schema());
}

int config_docs(const Verb& verb, Args args) {
  return print_or_write(verb, args, config::markdown_docs());
}

}  // namespace octavo::cli
