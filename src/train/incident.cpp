#include "train/incident.h"

#include <cmath>

#include "base/error.h"

namespace octavo::train {

std::string Incident::text() const {
  std::string text = what;
  if (!place.empty()) text += "; first seen in " + place;
  if (!ranks.empty()) {
    text += ranks.size() == 1 ? " on rank" : " on ranks";
    for (const int rank : ranks) text += octavo::str(' ', rank);
  }
  if (!cause.empty()) text += octavo::str("; cause: ", cause, " (", evidence, ")");
  return text;
}

Json Incident::json() const {
  // JSON has no NaN.
  const Json number = std::isfinite(loss) ? Json(loss) : Json(octavo::str(loss));
  return {{"kind", kind},         {"step", step},
          {"loss", number},       {"what", what},
          {"place", place},       {"ranks", ranks},
          {"cause", cause},       {"action", action},
          {"evidence", evidence}, {"samples", {first_sample, end_sample}}};
}

}  // namespace octavo::train
