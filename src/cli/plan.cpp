// octavo plan: memory, time and money of a run on GPUs that are not here.

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iostream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/plan_from.h"
#include "cli/verbs.h"
#include "migrate/import.h"
#include "plan/fp8_layers.h"
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

bool is_flag(const config::Parsed& parsed, const std::string& name) {
  const auto found = parsed.origins.find(name);
  return found != parsed.origins.end() && found->second.kind == config::Origin::Kind::kFlag;
}

// octavo's own configuration. Hours and money are of the steps that a flag asks for; those of a
// file are the run's own, and a forecast is of a billion tokens unless told.
PlanInput read_own(const Verb& verb, Args args) {
  PlanInput input{.parsed = config::parse(args, verb.arguments), .other = {}, .import = {}};
  const bool steps = is_flag(input.parsed, "max_steps");
  if (steps && is_flag(input.parsed, "token_budget"))
    fail(ExitCode::kUsage, "cli",
         "plan: wanted --max_steps or --token_budget, which both say how long the run is; found "
         "both");
  if (!steps) return input;
  config::Settings& settings = input.parsed.settings;
  input.other.steps = settings.max_steps;
  if (settings.token_budget > 0)
    input.parsed.notes.push_back("run length: flag --max_steps overrides the file's token_budget");
  settings.token_budget = 0;
  return input;
}

// The files of another program (torchtitan, Megatron, …), with the flags on top; octavo's own
// configuration when there are none.
PlanInput read_plan(const Verb& verb, Args args) {
  if (std::ranges::none_of(args, migrate::is_foreign)) return read_own(verb, args);
  constexpr size_t kMostFiles = 8;
  const config::Arguments flags_only{verb.arguments.verb, verb.arguments.reader, kMostFiles, false};
  const config::Parsed flags = config::parse(args, flags_only);
  if (std::ranges::none_of(flags.positionals, migrate::is_foreign))  // the value of a flag
    return read_own(verb, args);
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

// Quoted where a shell would take it apart.
std::string shell_word(const std::string& word) {
  const bool plain = std::ranges::all_of(word, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::strchr("-_./=:,+", c) != nullptr;
  });
  if (plain && !word.empty()) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The run of the forecast as a command: the flags that were given, and what must change for it to
// fit.
std::string train_command(const config::Parsed& parsed, const plan::Forecast& f) {
  const config::Settings& s = f.settings;
  const config::Settings& run = f.fits() ? s : f.advice.settings;
  std::set<std::string> names = plan::changed_keys(s, run);
  for (const auto& [name, origin] : parsed.origins)
    if (is_flag(parsed, name)) names.insert(name);
  std::string command = "octavo ";
  if (s.num_gpus > 1) {
    int64_t each = 8;  // as many on every node, and no rank more
    while (s.num_gpus % each != 0) --each;
    const int64_t nodes = s.num_gpus / each;
    command += str("launch --nproc ", each, nodes > 1 ? str(" --nnodes ", nodes) : "", " -- ");
  }
  command += "train";
  if (!parsed.config_file.empty()) command += " " + shell_word(parsed.config_file);
  for (const std::string& word : plan::train_flags(run, names)) command += " " + shell_word(word);
  if (s.dataset.empty()) command += " --dataset DATA";
  return command;
}

std::string last_lines(const PlanInput& input, const plan::Forecast& f, bool draw, bool details) {
  std::string out;
  if (!input.import && f.shape.refusal.empty())
    out += str("train: ", train_command(input.parsed, f), "\n");
  const std::string& picture = input.parsed.settings.output;
  if (draw) return out + "picture: " + picture + "\n";
  return out + (details ? "as a picture: add --output plan.svg\n"
                        : "more: --details has the tables, --output plan.svg draws them\n");
}

}  // namespace

int plan(const Verb& verb, Args args) {
  const GivenFlags given = take_own_flags(verb.own.flags, args);
  const PlanInput input = read_plan(verb, given.other_args);
  const config::Settings& settings = input.parsed.settings;
  if (settings.dry_run) return dry_run(verb, given, input.parsed);
  for (const std::string& note : input.parsed.notes) log_info(note);
  const std::optional<std::string> from = given.value("from");
  const plan::Forecast forecast = plan::forecast(
      settings, input.other,
      from ? measured_in(*from, settings, input.parsed.given("gpu")) : plan::Measured{});
  if (forecast.wants_fp8)
    if (const std::string problem = plan::fp8_skip_problem(forecast.shape, settings.fp8_skip);
        !problem.empty())
      fail(ExitCode::kUsage, "plan", problem);
  const bool details = given.has("details");
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
              << (details ? plan::text_of(forecast) : plan::answer_of(forecast))
              << last_lines(input, forecast, draw, details);
  }
  return 0;
}

}  // namespace octavo::cli
