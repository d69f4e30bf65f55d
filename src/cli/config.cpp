// octavo config show|check|import|schema|docs, octavo sweep schema

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "cli/verbs.h"
#include "config/print.h"
#include "migrate/import.h"
#include "sweep/schema.h"

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
  for (const auto* lines : {&parsed.notes, &parsed.defaults})
    for (const std::string& line : *lines) std::cout << "  " << line << "\n";
  return 0;
}

int config_import(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  const bool json = parsed.settings.json;
  const std::string& output = parsed.settings.output;
  if (parsed.positionals.empty()) {
    if (json || !output.empty())
      fail(ExitCode::kUsage, "cli", "config import: wanted a FILE to import, found none");
    std::cout << migrate::import_tables();
    return 0;
  }
  migrate::Import import = migrate::import_files(parsed.positionals);
  if (!output.empty()) {
    const fs::path file(output);
    place_model(
        import,
        (file.parent_path() / str(file.stem().string(), "_", migrate::kModelFolder)).string());
  }
  const std::string folder = migrate::model_folder(import);
  std::cout << (json ? migrate::import_json(import) : migrate::import_text(import));
  if (import.is_refused())
    fail(ExitCode::kUsage, "config", "not imported: see REFUSED in the report, and what to do",
         output.empty() ? "" : "; nothing was written");
  if (!output.empty()) {
    if (!folder.empty()) {
      fs::create_directories(folder);
      write_file_atomic(fs::path(folder) / "config.json", migrate::model_json(import));
    }
    write_file_atomic(output, migrate::import_yaml(import));
    if (!json)
      std::cout << "written to " << output
                << (folder.empty() ? "" : " and " + folder + "/config.json") << "\n";
  } else if (!json) {
    std::cout << "\n" << migrate::import_yaml(import);
    if (!folder.empty())
      std::cout << "\n# " << folder << "/config.json\n" << migrate::model_json(import);
  }
  return 0;
}

int config_schema(const Verb& verb, Args args) {
  return print_or_write(verb, args, config::json_schema());
}

int sweep_schema(const Verb& verb, Args args) {
  return print_or_write(verb, args, sweep::json_schema());
}

int config_docs(const Verb& verb, Args args) {
  return print_or_write(verb, args, config::markdown_docs());
}

}  // namespace octavo::cli
