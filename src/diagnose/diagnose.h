#pragma once
// octavo diagnose: which GEMMs run in FP8, how healthy they are, what another recipe would have
// given on the same tensors, and what to change.

#include "config/parse.h"
#include "diagnose/diagnosis.h"

namespace octavo::diagnose {

// Puts the run together as train does, runs two passes from which delayed takes its factors, and
// looks at the third. `checkpoint`: whose weights and scales ("latest", "best", a path); "": those
// that the settings start with. Nothing is trained and nothing of the run is written, but the
// capture file when settings.capture names one. Without a data set tokens are random.
Diagnosis diagnose(config::Settings settings, const std::string& checkpoint);

// The settings that a checkpoint was trained with.
config::Parsed settings_of(const config::Settings& where, const std::string& checkpoint);

}  // namespace octavo::diagnose
