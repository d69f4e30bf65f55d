// octavo plan: memory, time and money of a run on GPUs that are not here.

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "plan/report.h"

namespace octavo::cli {

int plan(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  const config::Settings& settings = parsed.settings;
  if (settings.dry_run) return dry_run(verb, args, settings);
  for (const std::string& note : parsed.notes) log_info(note);
  const plan::Forecast forecast = plan::forecast(settings);
  const bool draw = !settings.output.empty();
  if (draw) write_file_atomic(settings.output, plan::picture_of(forecast));
  if (settings.json) {
    nlohmann::ordered_json out = plan::json_of(forecast);
    if (draw) out["picture"] = settings.output;
    std::cout << out.dump(2) << "\n";
  } else {
    std::cout << plan::text_of(forecast)
              << (draw ? "picture: " + settings.output : "as a picture: add --output plan.svg")
              << "\n";
  }
  return 0;
}

}  // namespace octavo::cli
