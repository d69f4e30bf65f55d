#pragma once
// A run that is resumed, or read, in another precision than it had: its checkpoints are in the
// default folder of the precision that it had.

#include <optional>
#include <string>

#include "config/settings.h"

namespace octavo::train {

// What `resume` means: the settings' own, or, for latest and best of a run whose checkpoints are in
// the other default folder, the path of that checkpoint. `file_is_fp8`: what the file alone says.
std::string resume_of(const config::Settings& settings, std::optional<bool> file_is_fp8);

// checkpoint_dir for a verb that reads `checkpoint`, of the run that the settings name, if they do.
// Where none is given: the default folder of these settings, or the other one when only that has
// such a checkpoint, and a line says so.
std::string root_of_checkpoint(const config::Settings& settings);

}  // namespace octavo::train
