// LLaMA-Factory YAML, DeepSpeed JSON and launch scripts, by the first character: y, j, s.
#include "migrate/import.h"
#include "fuzz/harness.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  if (input.empty()) return;
  static fuzz::ScratchFolder folder;
  const char* name = input[0] == 'j' ? "input.json" : input[0] == 's' ? "input.sh" : "input.yaml";
  const std::string path = folder.write(name, input.substr(1)).string();
  fuzz::refusal_of([&] {
    const migrate::Import import = migrate::import_files(std::vector{path});
    if (input.size() % 128 == 0) {  // the reports are long: for some of the inputs
      migrate::import_text(import);
      migrate::import_json(import);
    }
    if (!import.is_refused()) migrate::import_yaml(import);
  });
}
