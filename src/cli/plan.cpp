// octavo plan: memory, time and money of a run on GPUs that are not here.

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "cli/verbs.h"
#include "plan/report.h"

namespace octavo::cli {

int plan(const Verb& verb, Args args) {
  const config::Settings settings = config::parse(args, verb.arguments).settings;
  if (settings.dry_run) return dry_run(verb, args, settings);
  const plan::Forecast forecast = plan::forecast(settings);
  const std::string picture = settings.output.empty() ? "plan.svg" : settings.output;
  write_file_atomic(picture, plan::picture_of(forecast));
  if (settings.json) {
    nlohmann::ordered_json out = plan::json_of(forecast);
    out["picture"] = picture;
    std::cout << out.dump(2) << "\n";
  } else {
    std::cout << plan::text_of(forecast) << "picture: " << picture << "\n";
  }
  return 0;
}

}  // namespace octavo::cli
