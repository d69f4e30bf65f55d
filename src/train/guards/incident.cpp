#include "train/guards/incident.h"

#include <cmath>

#include "base/error.h"

namespace octavo::train {

namespace {

// In the order of the enumerators.
constexpr const char* kKinds[] = {"not finite", "spike", "rollback", "replicas differ"};
constexpr const char* kCauses[] = {"", "hardware", "fp8", "model or data"};

const char* name_of(IncidentKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}
const char* name_of(Cause cause) {
  return kCauses[static_cast<size_t>(cause)];
}

}  // namespace

std::string Incident::text() const {
  std::string text = what;
  if (!place.empty()) text += "; first seen in " + place;
  if (!ranks.empty()) {
    text += ranks.size() == 1 ? " on rank" : " on ranks";
    for (const int rank : ranks) text += octavo::str(' ', rank);
  }
  if (cause != Cause::kUnknown)
    text += octavo::str("; cause: ", name_of(cause), " (", evidence, ")");
  return text;
}

Json Incident::json() const {
  // JSON has no NaN.
  const Json number = std::isfinite(loss) ? Json(loss) : Json(octavo::str(loss));
  return {{"kind", name_of(kind)},   {"step", step},
          {"loss", number},          {"what", what},
          {"place", place},          {"ranks", ranks},
          {"cause", name_of(cause)}, {"action", action},
          {"evidence", evidence},    {"samples", {first_sample, end_sample}}};
}

}  // namespace octavo::train
