#include "sweep/store.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "sweep/agent_name.h"

namespace octavo::sweep {
namespace {

constexpr int kPatienceMs = 30'000;
constexpr int64_t kApplication = 0x6f637376;  // "ocsv"
constexpr int64_t kVersion = 1;
constexpr TrialState kStates[] = {TrialState::kWaiting, TrialState::kRunning, TrialState::kFinished,
                                  TrialState::kStoppedEarly, TrialState::kFailed};
constexpr const char* kColumns =
    "SELECT number, parameter_values, draws, state, attempts, agent, run_name, reason, metric, "
    "iterations, heartbeat, started, ended FROM trials ";

constexpr const char* kSchema = R"sql(
CREATE TABLE sweep (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
  number INTEGER PRIMARY KEY,
  parameter_values TEXT NOT NULL,  -- JSON: one text for each parameter
  draws TEXT NOT NULL,             -- JSON: one number for each parameter
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  agent TEXT NOT NULL DEFAULT '',
  run_name TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  metric REAL,
  iterations INTEGER NOT NULL DEFAULT 0,
  heartbeat REAL NOT NULL DEFAULT 0,
  started REAL NOT NULL DEFAULT 0,
  ended REAL NOT NULL DEFAULT 0);
CREATE TABLE marks (
  trial INTEGER NOT NULL, band INTEGER NOT NULL, value REAL NOT NULL,
  PRIMARY KEY (trial, band)) WITHOUT ROWID;
)sql";

TrialState state_of(const std::string& name, const fs::path& path) {
  for (const TrialState state : kStates)
    if (name_of(state) == name) return state;
  fail(ExitCode::kDamaged, "sweep", path.string(), ": unknown state '", name.substr(0, 40), "'");
}

// Is there a sweep in the file, an empty file, or something else?
bool holds_sweep(Database& database) {
  Statement application(database, "PRAGMA application_id");
  const int64_t found = application.next() ? application.integer(0) : 0;
  Statement version(database, "PRAGMA user_version");
  const int64_t number = version.next() ? version.integer(0) : 0;
  Statement tables(database, "SELECT count(*) FROM sqlite_schema");
  const bool empty = tables.next() && tables.integer(0) == 0;
  if (found == kApplication && number == kVersion) return true;
  if (found == 0 && empty) return false;
  fail(ExitCode::kDamaged, "sweep", database.path().string(),
       ": wanted a sweep's database of version ", kVersion, ", found ",
       found == kApplication ? str("version ", number) : "another program's file");
}

SweepPlan stored_plan(Database& database) {
  const std::string source = database.path().string();
  Statement row(database, "SELECT value FROM sweep WHERE name = 'plan'");
  if (!row.next()) fail(ExitCode::kDamaged, "sweep", source, ": wanted a plan, found none");
  return parse_plan(row.text(0), source);
}

}  // namespace

std::string_view name_of(TrialState state) {
  switch (state) {
    case TrialState::kWaiting:
      return "waiting";
    case TrialState::kRunning:
      return "running";
    case TrialState::kFinished:
      return "finished";
    case TrialState::kStoppedEarly:
      return "stopped early";
    case TrialState::kFailed:
      break;
  }
  return "failed";
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

fs::path run_folder(const SweepPlan& plan, const Trial& trial) {
  return fs::path(plan.folder) / plan.runs_dir / trial.run_name;
}

bool Store::create(const fs::path& path, const SweepPlan& plan) {
  Database database(path, true, kPatienceMs);
  if (!holds_sweep(database) && !on_network_file_system(path))
    Statement(database, "PRAGMA journal_mode = WAL").run();
  Transaction transaction(database);
  const bool is_new = !holds_sweep(database);
  if (is_new) {
    database.run(str(kSchema, "PRAGMA application_id = ", kApplication,
                     "; PRAGMA user_version = ", kVersion));
    Statement(database, "INSERT INTO sweep VALUES ('plan', ?), ('hash', ?)")
        .bind(std::string_view(plan_text(plan)))
        .bind(std::string_view(hash_of(plan)))
        .run();
  } else {
    Statement hash(database, "SELECT value FROM sweep WHERE name = 'hash'");
    if (!hash.next() || hash.text(0) != hash_of(plan))
      fail(ExitCode::kUsage, "sweep", path.string(),
           ": wanted the database of this sweep to continue, found that of another (its file, "
           "configuration, flags, run_cap or seed is not the same); give another --database");
    SweepPlan kept = stored_plan(database);
    kept.attempts = plan.attempts;  // may be changed on the way
    Statement(database, "UPDATE sweep SET value = ? WHERE name = 'plan'")
        .bind(std::string_view(plan_text(kept)))
        .run();
  }
  transaction.commit();
  return is_new;
}

Store::Store(const fs::path& path) : database_(path, false, kPatienceMs) {
  if (!holds_sweep(database_))
    fail(ExitCode::kDamaged, "sweep", path.string(),
         ": wanted a sweep's database, found an empty file");
  plan_ = stored_plan(database_);
  definition_ = parse_definition(plan_.yaml, plan_.source);
  if (plan_.run_cap > 0) definition_.run_cap = plan_.run_cap;
  total_ = trial_count(definition_);
}

std::vector<Trial> Store::trials_where(const std::string& condition) {
  std::vector<Trial> result;
  const std::string source = database_.path().string();
  Statement rows(database_, kColumns + condition);
  while (rows.next()) {
    Trial trial{.number = rows.integer(0)};
    const Json values = parse_json(rows.text(1), source), draws = parse_json(rows.text(2), source);
    const size_t count = definition_.parameters.size();
    if (!values.is_array() || !draws.is_array() || values.size() != count || draws.size() != count)
      fail(ExitCode::kDamaged, "sweep", source, ": trial ", trial.number, ": wanted ", count,
           " values, found others");
    for (size_t i = 0; i < count; ++i) {
      if (!values[i].is_string() || !draws[i].is_number())
        fail(ExitCode::kDamaged, "sweep", source, ": trial ", trial.number, " has no values");
      trial.values.push_back(values[i].get<std::string>());
      trial.draws.push_back(draws[i].get<double>());
    }
    trial.state = state_of(rows.text(3), database_.path());
    trial.attempts = rows.integer(4);
    trial.agent = rows.text(5);
    trial.run_name = rows.text(6);
    trial.reason = rows.text(7);
    trial.metric = rows.optional_real(8);
    trial.iterations = rows.integer(9);
    trial.heartbeat = rows.real(10);
    trial.started = rows.real(11);
    trial.ended = rows.real(12);
    join_inside(plan_.folder, trial.run_name);  // never a way out of the folder of runs
    result.push_back(std::move(trial));
  }
  return result;
}

Counts Store::counts() {
  Counts counts;
  Statement rows(database_, "SELECT state, count(*) FROM trials GROUP BY state");
  while (rows.next()) {
    int64_t* const by_state[] = {&counts.waiting, &counts.running, &counts.finished,
                                 &counts.stopped_early, &counts.failed};
    *by_state[static_cast<size_t>(state_of(rows.text(0), database_.path()))] = rows.integer(1);
  }
  return counts;
}

void Store::free_lost_trials(double timeout, std::vector<std::string>& news) {
  for (const Trial& trial : trials_where("WHERE state = 'running'")) {
    const AgentState state = state_of_agent(trial.agent);
    const double silent = now_seconds() - trial.heartbeat;
    if (state == AgentState::kAlive || (state == AgentState::kUnknown && silent < timeout))
      continue;
    const bool again = trial.attempts < plan_.attempts;
    const std::string reason =
        str("its agent (", shown_agent(trial.agent), ") ",
            state == AgentState::kGone ? "is gone"
                                       : str("was silent for ", static_cast<int64_t>(silent), " s"),
            ", attempt ", trial.attempts, " of ", plan_.attempts);
    Statement(database_,
              "UPDATE trials SET state = ?, reason = ?, ended = ? WHERE number = ? AND state = "
              "'running'")
        .bind(name_of(again ? TrialState::kWaiting : TrialState::kFailed))
        .bind(std::string_view(reason))
        .bind(again ? 0.0 : now_seconds())
        .bind(trial.number)
        .run();
    news.push_back(str("trial ", trial.number, ": ", reason,
                       again ? "; it is taken up again" : "; it has failed"));
  }
}

bool Store::reached_target() {
  if (!definition_.target) return false;
  Statement best(database_, str("SELECT ", definition_.maximize ? "max" : "min",
                                "(metric) FROM trials WHERE state = 'finished'"));
  const std::optional<double> value = best.next() ? best.optional_real(0) : std::nullopt;
  return value && !is_better(definition_, *definition_.target, *value);
}

std::optional<int64_t> Store::next_number(std::vector<std::string>& news) {
  Statement waiting(database_, "SELECT min(number) FROM trials WHERE state = 'waiting'");
  if (waiting.next() && waiting.integer(0) > 0) return waiting.integer(0);
  Statement last(database_, "SELECT coalesce(max(number), 0) FROM trials");
  const int64_t number = last.next() ? last.integer(0) + 1 : 1;
  if ((total_ > 0 && number > total_) || reached_target()) return std::nullopt;
  if (number > kMostTrials) {
    news.push_back(str("no trial is begun: a sweep keeps at most ", kMostTrials,
                       ", and there are as many; make another sweep"));
    return std::nullopt;
  }
  insert(number);
  return number;
}

void Store::insert(int64_t number) {
  std::vector<SeenTrial> seen;
  if (definition_.method == Method::kBayes)
    for (const Trial& trial : trials()) {
      // Others keep what their last attempt wrote: the middle of a run, or its last value before it
      // diverged.
      const bool counts =
          trial.state == TrialState::kFinished && trial.metric && std::isfinite(*trial.metric);
      if (trial.state == TrialState::kWaiting) continue;
      seen.push_back({trial.draws, std::nullopt});
      if (counts) seen.back().value = definition_.maximize ? -*trial.metric : *trial.metric;
    }
  const Proposal proposal = propose(definition_, static_cast<uint64_t>(plan_.seed), number, seen);
  Statement(database_,
            "INSERT INTO trials (number, parameter_values, draws, state, run_name) VALUES (?, ?, "
            "?, 'waiting', ?)")
      .bind(number)
      .bind(std::string_view(Json(proposal.values).dump()))
      .bind(std::string_view(Json(proposal.draws).dump()))
      .bind(std::string_view(run_name_of(definition_.name, plan_.id, number)))
      .run();
}

TrialOffer Store::claim(const std::string& agent, double timeout) {
  TrialOffer result;
  Transaction transaction(database_);
  free_lost_trials(timeout, result.news);
  if (const std::optional<int64_t> number = next_number(result.news)) {
    Statement(database_,
              "UPDATE trials SET state = 'running', agent = ?, attempts = attempts + 1, heartbeat "
              "= ?, started = CASE started WHEN 0 THEN ? ELSE started END, ended = 0, reason = '' "
              "WHERE number = ?")
        .bind(std::string_view(agent))
        .bind(now_seconds())
        .bind(now_seconds())
        .bind(*number)
        .run();
    result.trial = std::move(trials_where(str("WHERE number = ", *number)).at(0));
  }
  result.counts = counts();
  transaction.commit();
  return result;
}

bool Store::renew(const Trial& trial) {
  Statement(database_,
            "UPDATE trials SET heartbeat = ? WHERE number = ? AND attempts = ? AND agent = ? AND "
            "state = 'running'")
      .bind(now_seconds())
      .bind(trial.number)
      .bind(trial.attempts)
      .bind(std::string_view(trial.agent))
      .run();
  return database_.changes() == 1;
}

bool Store::finish(const Trial& trial, const Ending& ending) {
  Statement(database_,
            "UPDATE trials SET state = ?, reason = ?, metric = ?, iterations = ?, ended = ?, "
            "attempts = attempts - ? WHERE number = ? AND attempts = ? AND agent = ? AND state = "
            "'running'")
      .bind(name_of(ending.state))
      .bind(std::string_view(ending.reason))
      .bind(ending.metric)
      .bind(ending.iterations)
      .bind(ending.state == TrialState::kWaiting ? 0.0 : now_seconds())
      .bind(static_cast<int64_t>(ending.forgiven))
      .bind(trial.number)
      .bind(trial.attempts)
      .bind(std::string_view(trial.agent))
      .run();
  return database_.changes() == 1;
}

std::vector<double> Store::mark(const Trial& trial, int64_t band, double value) {
  Transaction transaction(database_);
  Statement(database_, "INSERT OR REPLACE INTO marks VALUES (?, ?, ?)")
      .bind(trial.number)
      .bind(band)
      .bind(value)
      .run();
  std::vector<double> values;
  Statement rows(database_, "SELECT value FROM marks WHERE band = ?");
  rows.bind(band);
  while (rows.next()) values.push_back(rows.real(0));
  transaction.commit();
  return values;
}

}  // namespace octavo::sweep
