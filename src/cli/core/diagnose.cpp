#include "diagnose/diagnose.h"

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "diagnose/report.h"
#include "train/state/switched_precision.h"

namespace octavo::cli {
namespace {

// The default model with random weights is of interest to nobody, and takes minutes on a CPU.
void require_model(const config::Parsed& parsed) {
  if (parsed.config_file.empty() && !parsed.given("checkpoint") && !parsed.given("model_name"))
    fail(ExitCode::kUsage, "cli",
         "diagnose: wanted a model, found none; name CONFIG.yaml, a checkpoint (--checkpoint "
         "latest) or a model (--model_name gpt2: random weights, minutes on a CPU)");
}

// A checkpoint without a config brings its own; flags go on top of it.
config::Settings settings_for(const config::Parsed& parsed) {
  if (!parsed.given("checkpoint") || !parsed.config_file.empty()) return parsed.settings;
  config::Settings where = parsed.settings;
  where.checkpoint_dir = train::root_of_checkpoint(where);
  const config::Parsed saved = diagnose::settings_of(where, where.checkpoint);
  log_info("the settings are the checkpoint's own, and the flags");
  config::Settings settings =
      config::with_flags(saved, parsed, config::kDiagnoseArguments).settings;
  settings.checkpoint_dir = where.checkpoint_dir;  // where it was found
  return settings;
}

}  // namespace

int diagnose(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kDiagnoseArguments);
  require_model(parsed);
  const config::Settings settings = settings_for(parsed);
  const diagnose::Diagnosis found = diagnose::diagnose(
      settings, parsed.given("checkpoint") ? parsed.settings.checkpoint : std::string());
  const std::string json = diagnose::json_of(found).dump(2) + "\n";
  if (!parsed.settings.output.empty()) write_file_atomic(parsed.settings.output, json);
  std::fputs(parsed.settings.json ? json.c_str() : diagnose::text_of(found).c_str(), stdout);
  return static_cast<int>(found.sick_layers().empty() ? ExitCode::kOk : ExitCode::kGuard);
}

}  // namespace octavo::cli
