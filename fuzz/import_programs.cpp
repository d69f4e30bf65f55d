// torchtitan's TOML and Python, Megatron's scripts, arguments and YAML, by the first character: t,
// p, s, a, y. What is taken must be a configuration that octavo reads back as the same.
#include "config/parse.h"
#include "fuzz/harness.h"
#include "migrate/import.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  if (input.empty()) return;
  static fuzz::ScratchFolder folder;
  const char* name = input[0] == 't'   ? "input.toml"
                     : input[0] == 'p' ? "input.py"
                     : input[0] == 's' ? "input.sh"
                     : input[0] == 'a' ? "input.args"
                                       : "input.yaml";
  const std::string path = folder.write(name, input.substr(1)).string();
  fuzz::refusal_of([&] {
    const migrate::Import import = migrate::import_files(std::vector{path});
    if (input.size() % 64 == 0) {  // the reports are long: for some of the inputs
      migrate::import_text(import);
      migrate::import_json(import);
    }
    if (import.is_refused()) return;
    const config::Parsed again = config::parse_text(migrate::import_yaml(import), "imported.yaml");
    fuzz::check(again.settings == import.settings, "the YAML of an import says something else");
    if (import.model) migrate::model_json(import);
  });
}
