#pragma once
// log_format before the arguments are known to be right: a mistake in them is said in it, too.

#include "cli/own_flags.h"

namespace octavo::cli {

// Whether these arguments of train, or the file that they name, ask for messages as JSON.
bool wants_json_lines(Args args) noexcept;

}  // namespace octavo::cli
