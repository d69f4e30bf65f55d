#pragma once
// Between parsing and running: where every variable is, and which filters and tests are not there.

#include "jinja/tree.h"

namespace octavo::jinja {

void analyze(Tree& tree);

}  // namespace octavo::jinja
