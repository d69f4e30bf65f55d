#pragma once
// libtorch's errors as what they are: a GPU, a network, memory; or a bug of ours.

#include <c10/util/Exception.h>

#include "base/failure.h"

namespace octavo::train {

// kUnknown for what would come again after a restart: shapes, types, wrong arguments.
Failure failure_of_torch(const c10::Error& error);
// Of any error that ends a run.
Failure failure_of_run(const std::exception& error);

// Throws what the launcher knows how to cure as an Error of exit code 3; returns for bugs.
void fail_if_environment(const c10::Error& error);

}  // namespace octavo::train
