#pragma once
// `data prepare --extend`: more documents behind those of a finished data set. They are prepared in
// a folder inside it, by the same code as any others, and become further shards of its training
// split; the index, written last, names them. The validation split stays as it is.

#include "data/prepare.h"

namespace octavo::data {

constexpr const char* kExtensionFolder = "extension.part";

// Restartable, and done once: the same inputs again change nothing.
PrepareResult extend(const PrepareOptions& options);

}  // namespace octavo::data
