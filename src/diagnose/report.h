#pragma once

#include <string>

#include "base/json.h"
#include "diagnose/diagnosis.h"

namespace octavo::diagnose {

// Everything that matters, worst first: the JSON has all of it.
std::string text_of(const Diagnosis& found);
Json json_of(const Diagnosis& found);
Json json_of(const LayerStats& layer);

}  // namespace octavo::diagnose
