#pragma once
// octavo diagnose --capture FOLDER: what every recipe does to the layers of a PyTorch model that
// octavo.capture saved one step of.

#include <string>
#include <vector>

#include "base/json.h"
#include "diagnose/capture_filters.h"
#include "diagnose/capture_manifest.h"

namespace octavo::diagnose {

struct CapturedDiagnosis {
  std::string folder;
  CaptureManifest manifest;
  fp8::Options chosen;             // the recipe that the filters are for
  std::vector<LayerStats> layers;  // as in the manifest
};

// Every layer in BF16, as the GEMMs would get it. delayed has no earlier steps here: its scale
// comes from these tensors, as current's does.
CapturedDiagnosis diagnose_capture(const fs::path& folder, const fp8::Options& chosen);

std::string text_of(const CapturedDiagnosis& found);
Json json_of(const CapturedDiagnosis& found);
// Whether a layer is beyond the limits by the chosen recipe.
bool is_sick(const CapturedDiagnosis& found);

}  // namespace octavo::diagnose
