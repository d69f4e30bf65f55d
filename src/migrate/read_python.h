#pragma once
// torchtitan's Python configurations, read as data: nothing is executed. Understood are calls of
// dataclasses with literals (JobConfig(training=Training(steps=10)), Trainer.Config(…)) that a name
// is bound to or a function returns, functions of the file that such a function begins with, and
// config.a.b = … behind that. Everything else becomes an entry that says where it stands.

#include <string>
#include <string_view>
#include <vector>

#include "migrate/import_read.h"

namespace octavo::migrate {

// The entries of the configuration `wanted`; "": of the only one in the file. The name that was
// taken is the entry "config_name".
std::vector<ForeignEntry> python_entries(std::string_view text, const std::string& shown,
                                         const std::string& wanted);

}  // namespace octavo::migrate
