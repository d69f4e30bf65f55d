#pragma once
// `data prepare --extend`: more documents behind those of a finished data set. They are prepared in
// a folder inside it, by the same code as any others, and become further shards of its training
// split; the index, written last, names them. The validation split stays as it is. A file that is
// in the data set already, by its name and its content, is not added again.

#include "data/prepare.h"
#include "data/prepare_plan.h"

namespace octavo::data {

constexpr const char* kExtensionFolder = "extension.part";

// Restartable, and done once: the same inputs again change nothing.
PrepareResult extend(const PrepareOptions& options);

// Takes the files of options.known_list out of the inputs, which are hashed, and says so.
void leave_out_known(const PrepareOptions& options, Inputs& inputs);

}  // namespace octavo::data
