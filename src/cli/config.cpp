// octavo config show|check|import|schema|docs, octavo sweep schema

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/first_line.h"
#include "cli/verbs.h"
#include "config/print.h"
#include "hub/hub.h"
#include "migrate/import.h"
#include "plan/fp8_layers.h"
#include "sweep/schema.h"
#include "tokenizer/tokenizer.h"

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

// fp8_skip against the model's layers: fails as train would. A line when that cannot be said here,
// since nothing is downloaded for it; "" else.
std::string layers_line(config::Settings s) {
  if (!s.use_fp8 || s.fp8_skip.empty()) return "";
  s.offline = true;
  if (s.vocab_size == 0) s.vocab_size = 256;  // any: the data need not be read for it
  plan::Shape shape;
  try {
    shape = plan::shape_of(s);
  } catch (const Error& error) {
    return "fp8_skip is not checked against the model's layers: " + first_line(error.what());
  }
  if (const std::string problem = plan::fp8_skip_problem(shape, s.fp8_skip); !problem.empty())
    fail(ExitCode::kUsage, "config", problem);
  return "";
}

// The same of the tokenizer, which is read where it is here: a file may be written for another
// machine, as that of a cluster.
std::string tokenizer_line(const config::Settings& s) {
  if (s.tokenizer.empty()) return "";
  std::error_code none;
  if (s.tokenizer != "bytes" && !fs::exists(s.tokenizer, none))
    return str("tokenizer ", s.tokenizer, ": no file or folder here; it ",
               hub::is_hub_tokenizer(s.tokenizer) ? "would be looked for on the Hugging Face hub"
                                                  : "must be where the run is");
  tokenizer::load_tokenizer(s.tokenizer);
  return "";
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
  const std::vector<std::string> not_here = {layers_line(parsed.settings),
                                             tokenizer_line(parsed.settings)};
  std::cout << parsed.config_file << ": " << parsed.origins.size()
            << " keys given, no contradictions\n";
  for (const auto* lines : {&parsed.notes, &parsed.defaults, &not_here})
    for (const std::string& line : *lines)
      if (!line.empty()) std::cout << "  " << line << "\n";
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
