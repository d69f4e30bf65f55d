// CONFIG.yaml. What was taken is printed as YAML, and that means the same.
#include "config/key.h"
#include "config/parse.h"
#include "config/print.h"
#include "config/yaml.h"
#include "fuzz/harness.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  if (input.size() % 4 == 0) {  // as files of other programs are read
    fuzz::refusal_of(
        [&] { config::parse_yaml(input, "theirs.yaml", {.sections = true, .nulls = true}); });
    return;
  }
  fuzz::refusal_of([&] {
    // Most inputs have a key that is none. What its message costs (the nearest of all keys) is
    // spent on one of 16.
    for (const config::YamlEntry& entry : config::parse_yaml(input, "config.yaml"))
      if (config::find_key(entry.name) == nullptr && input.size() % 16 != 1) return;
    const config::Parsed parsed = config::parse_text(input, "config.yaml");
    if (input.size() % 4 != 1) return;  // three hundred lines to write and to read again
    const std::string printed = config::to_yaml(parsed.settings);
    const config::Parsed again = config::parse_text(printed, "what we wrote");
    fuzz::check(config::to_yaml(again.settings) == printed, "YAML that reads back otherwise");
  });
}
