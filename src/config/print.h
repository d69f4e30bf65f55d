#pragma once
// Everything that is written from the table of keys.

#include <string>

#include "config/parse.h"

namespace octavo::config {

// Every key with its value, by section; parse() of it gives the same Settings.
std::string to_yaml(const Settings& settings);
// Key, value and origin, one a line.
std::string show(const Parsed& parsed);
std::string json_schema();    // configs/octavo.schema.json, for editors
std::string markdown_docs();  // docs/reference/configuration.md

}  // namespace octavo::config
