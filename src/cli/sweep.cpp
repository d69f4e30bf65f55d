// octavo sweep create|run|agent|status|report: many trials of one configuration, as a W&B sweep
// file says.

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/library.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "launch/scripts.h"
#include "sweep/agent.h"
#include "sweep/report.h"
#include "sweep/run_agents.h"
#include "sweep/trial_command.h"

namespace octavo::cli {
namespace {

// What a trial said last may be cut inside a character.
std::string shown_json(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// SWEEP.yaml [CONFIG.yaml] [--key value]… [-- flags of every trial]
struct SweepWork {
  config::Settings settings;
  fs::path database;
};

SweepWork created(const Verb& verb, Args args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  const auto own = static_cast<size_t>(dashes - args.begin());
  const config::Parsed parsed = config::parse(args.subspan(0, own), verb.arguments);
  if (parsed.positionals.empty())
    fail(ExitCode::kUsage, "cli", verb.name, ": wanted SWEEP.yaml [CONFIG.yaml], found no file");
  const Args flags = args.subspan(std::min(args.size(), own + 1));
  const std::string& file = parsed.positionals.front();
  const std::string configuration = parsed.positionals.size() > 1 ? parsed.positionals[1] : "";
  SweepWork work{parsed.settings, parsed.settings.database};
  if (work.database.empty()) work.database = fs::path(file).replace_extension(".db");
  std::vector<std::string> notes;
  const sweep::SweepPlan plan =
      sweep::make_plan(parsed.settings, file, configuration, {flags.begin(), flags.end()}, notes);
  for (const std::string& note : notes) log_info(note);
  const bool is_new = sweep::Store::create(work.database, plan);
  if (sweep::on_network_file_system(work.database))
    log_info(work.database.string() +
             ": on a network file system; it has a rollback journal instead of a write-ahead log");
  sweep::Store store(work.database);
  const std::string trials =
      store.total() > 0 ? str(store.total(), " trials") : std::string("any number of trials");
  log_info(str(work.database.string(), is_new ? ": made, " : ": continues, ", trials, ", ",
               sweep::name_of(store.definition().method), ", ", store.definition().metric,
               is_new ? "" : str("; ", store.counts().ended(), " have ended")));
  return work;
}

fs::path database_in(const config::Parsed& parsed, const Verb& verb) {
  if (parsed.positionals.size() != 1)
    fail(ExitCode::kUsage, "cli", verb.name, ": wanted the sweep's database, found ",
         parsed.positionals.empty() ? "no file" : "several files", "; name it: octavo ", verb.name,
         " sweep.db");
  return parsed.positionals.front();
}

sweep::AgentOptions agent_options(const config::Settings& settings) {
  return {.program = own_program().string(),
          .trials = settings.trials,
          .timeout = settings.agent_timeout,
          .nproc = settings.nproc};
}

std::string write_report(const sweep::Report& report, const fs::path& database,
                         const std::string& output) {
  const std::string path =
      output.empty() ? fs::path(database).replace_extension(".html").string() : output;
  write_file_atomic(path, sweep::report_html(report));
  return path;
}

}  // namespace

int sweep_create(const Verb& verb, Args args) {
  const SweepWork work = created(verb, args);
  std::cout << "start as many agents as there are places for them, here or on other machines:\n"
            << "  octavo sweep agent " << launch::shell_quoted(work.database.string()) << "\n";
  return 0;
}

int sweep_agent(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  return sweep::run_agent(database_in(parsed, verb), agent_options(parsed.settings));
}

int sweep_run(const Verb& verb, Args args) {
  const SweepWork work = created(verb, args);
  const int code =
      sweep::run_agents(work.database, work.settings.agents, agent_options(work.settings));
  sweep::Store store(work.database);
  const sweep::Report report = sweep::report_of(store);
  std::cout << sweep::report_text(report)
            << "report: " << write_report(report, work.database, work.settings.output) << "\n";
  return code;
}

int sweep_status(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  sweep::Store store(database_in(parsed, verb));
  const sweep::Report report = sweep::report_of(store);
  if (parsed.settings.json)
    std::cout << shown_json(sweep::report_json(report)) << "\n";
  else
    std::cout << sweep::status_text(report);
  return 0;
}

int sweep_report(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  const fs::path database = database_in(parsed, verb);
  sweep::Store store(database);
  const sweep::Report report = sweep::report_of(store);
  const std::string path = write_report(report, database, parsed.settings.output);
  if (parsed.settings.json) {
    nlohmann::ordered_json json = sweep::report_json(report);
    json["report"] = path;
    std::cout << shown_json(json) << "\n";
  } else {
    std::cout << sweep::report_text(report) << "report: " << path << "\n";
  }
  return 0;
}

}  // namespace octavo::cli
