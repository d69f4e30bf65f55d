// octavo plan: memory, time and money of a run on GPUs that are not here.

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "migrate/import.h"
#include "plan/report.h"

namespace octavo::cli {
namespace {

struct PlanInput {
  config::Parsed parsed;
  plan::OtherProgram other;
  std::optional<migrate::Import> import;  // of another program's files
};

// Train's own rules (a warm-up longer than the run) do not matter to a forecast.
bool can_be_forecast(const migrate::Import& import) {
  return std::ranges::none_of(import.findings, [](const migrate::Finding& finding) {
    return finding.verdict == migrate::Finding::Verdict::kRefused && finding.id != "contradiction";
  });
}

// The files of another program (torchtitan, Megatron, …), with the flags on top; octavo's own
// configuration when there are none.
PlanInput read_plan(const Verb& verb, Args args) {
  if (std::ranges::none_of(args, migrate::is_foreign))
    return {.parsed = config::parse(args, verb.arguments), .other = {}, .import = {}};
  constexpr size_t kMostFiles = 8;
  const config::Arguments flags_only{verb.arguments.verb, verb.arguments.reader, kMostFiles, false};
  const config::Parsed flags = config::parse(args, flags_only);
  if (std::ranges::none_of(flags.positionals, migrate::is_foreign))  // the value of a flag
    return {.parsed = config::parse(args, verb.arguments), .other = {}, .import = {}};
  if (flags.settings.dry_run)
    fail(ExitCode::kUsage, "cli", "plan --dry_run: wanted octavo's own CONFIG.yaml, found ",
         flags.positionals.front(), "; write one first: octavo config import FILE --output …");
  PlanInput input;
  input.import = migrate::import_files(flags.positionals,
                                       flags.given("num_gpus") ? flags.settings.num_gpus : 0);
  const migrate::Import& import = *input.import;
  if (!can_be_forecast(import)) {
    std::cout << migrate::import_text(import);
    fail(ExitCode::kUsage, "config", "no forecast: see REFUSED in the report, and what to do");
  }
  input.parsed =
      with_flags(config::parse_text(migrate::import_yaml(import), "imported.yaml", verb.arguments),
                 flags, verb.arguments);
  config::Settings& settings = input.parsed.settings;
  if (!input.parsed.given("model_name"))
    fail(ExitCode::kUsage, "cli",
         "plan: no file says which model is trained; add --model_name NAME");
  if (!flags.given("num_gpus") && import.parallel.gpus > 0)
    settings.num_gpus = import.parallel.gpus;
  input.other.stack = import.stack;
  input.other.name = import.program;
  input.other.selective_recompute =
      import.recomputes_parts && !flags.given("gradient_checkpointing");
  if (input.parsed.given("max_steps")) input.other.steps = settings.max_steps;
  if (import.model && !flags.given("model_name")) {
    plan::Shape shape = plan::shape_of(import.model->config, import.model->name);
    shape.gated = import.model->gated;
    shape.refusal = import.model->refusal;
    input.other.shape = std::move(shape);
  }
  return input;
}

}  // namespace

int plan(const Verb& verb, Args args) {
  const PlanInput input = read_plan(verb, args);
  const config::Settings& settings = input.parsed.settings;
  if (settings.dry_run) return dry_run(verb, args, settings);
  for (const std::string& note : input.parsed.notes) log_info(note);
  const plan::Forecast forecast = plan::forecast(settings, input.other);
  const bool draw = !settings.output.empty();
  if (draw) write_file_atomic(settings.output, plan::picture_of(forecast));
  if (settings.json) {
    nlohmann::ordered_json out = plan::json_of(forecast);
    if (draw) out["picture"] = settings.output;
    if (input.import)
      out["import"] = nlohmann::ordered_json::parse(migrate::import_json(*input.import));
    std::cout << out.dump(2) << "\n";
  } else {
    std::cout << (input.import ? migrate::import_summary(*input.import) : "")
              << plan::text_of(forecast)
              << (draw ? "picture: " + settings.output : "as a picture: add --output plan.svg")
              << "\n";
  }
  return 0;
}

}  // namespace octavo::cli
