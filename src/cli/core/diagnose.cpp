#include "diagnose/diagnose.h"

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "diagnose/captured.h"
#include "diagnose/report.h"
#include "fp8/execution.h"
#include "train/device.h"
#include "train/state/switched_precision.h"

namespace octavo::cli {
namespace {

bool names_model(const config::Parsed& parsed) {
  return !parsed.config_file.empty() || parsed.given("checkpoint") || parsed.given("model_name");
}

// The default model with random weights is of interest to nobody, and takes minutes on a CPU.
void require_model(const config::Parsed& parsed) {
  if (names_model(parsed)) return;
  const std::string& capture = parsed.settings.capture;
  fail(ExitCode::kUsage, "cli", "diagnose: wanted a model, found none",
       capture.empty() ? "" : ", and no folder " + capture + " that octavo.capture wrote",
       "; name CONFIG.yaml, a checkpoint (--checkpoint latest), a model (--model_name gpt2: random "
       "weights, minutes on a CPU) or a PyTorch model's capture (--capture FOLDER)");
}

// --capture names a folder that is read, or a file that is written.
bool reads_capture(const config::Parsed& parsed) {
  const std::string& capture = parsed.settings.capture;
  if (capture.empty() || !fs::is_directory(capture)) return false;
  if (names_model(parsed))
    fail(ExitCode::kUsage, "cli",
         "diagnose: wanted --capture with a folder alone, or a model and a ",
         "file to write, found a model and the folder ", capture, "; leave out one of them");
  return true;
}

void put_out(const config::Settings& settings, const std::string& text, const Json& json) {
  const std::string written = json.dump(2) + "\n";
  if (!settings.output.empty()) write_file_atomic(settings.output, written);
  std::fputs(settings.json ? written.c_str() : text.c_str(), stdout);
}

int look_at_capture(const config::Settings& settings) {
  train::prepare_process(settings);
  fp8::Request request = fp8::request_of(settings);
  request.execution = config::Fp8Execution::kRehearse;
  const fp8::Decision decision = fp8::decide(request, {});
  for (const std::string& warning : decision.warnings) log_warn(warning);
  const auto found = diagnose::diagnose_capture(settings.capture, decision.options);
  put_out(settings, diagnose::text_of(found), diagnose::json_of(found));
  return static_cast<int>(diagnose::is_sick(found) ? ExitCode::kGuard : ExitCode::kOk);
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
  settings.run_name = where.run_name;              // whose `latest` is meant: as it was found
  return settings;
}

}  // namespace

int diagnose(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kDiagnoseArguments);
  if (reads_capture(parsed)) return look_at_capture(parsed.settings);
  require_model(parsed);
  const config::Settings settings = settings_for(parsed);
  const diagnose::Diagnosis found = diagnose::diagnose(
      settings, parsed.given("checkpoint") ? parsed.settings.checkpoint : std::string());
  put_out(parsed.settings, diagnose::text_of(found), diagnose::json_of(found));
  return static_cast<int>(found.sick_layers().empty() ? ExitCode::kOk : ExitCode::kGuard);
}

}  // namespace octavo::cli
