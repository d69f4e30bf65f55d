#pragma once
// TOML 1.0 (torchtitan's files) as flat entries. Bounded as JSON and YAML are: 16 levels, 1000
// keys; a key or table that appears twice is refused.

#include <string>
#include <string_view>
#include <vector>

#include "migrate/import_read.h"

namespace octavo::migrate {

std::vector<ForeignEntry> toml_entries(std::string_view text, const std::string& shown);

}  // namespace octavo::migrate
