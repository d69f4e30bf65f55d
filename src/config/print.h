#pragma once
// Everything that is written from the table of keys.

#include <string>

#include "config/parse.h"

namespace octavo::config {

// Every key with its value, by section; parse() of it gives the same Settings.
std::string to_yaml(const Settings& settings);
// The keys that the verb reads, by section, for --help.
std::string help_text(Readers reader);
// Key, value and origin, one a line.
std::string show(const Parsed& parsed);
std::string json_schema();    // docs/config.schema.json, for editors
std::string markdown_docs();  // docs/reference/configuration.md

}  // namespace octavo::config
