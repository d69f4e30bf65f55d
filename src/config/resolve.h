#pragma once
// What keys mean together, once it is known where each came from: a flag beats the file whatever
// its name, a shorter run has a shorter warm-up, and the learning rate depends on the task.

#include "config/parse.h"

namespace octavo::config {

// `parsed` has the flags on top of `file`. Changes its settings, and explains each change in its
// notes and in `derived`, and defaults that follow from the task or the model in `defaults`; keys
// of one level that contradict each other go into `conflicts`. `readers`: the verb, which may not
// care.
void resolve(Parsed& parsed, const Parsed& file, Readers readers);

}  // namespace octavo::config
