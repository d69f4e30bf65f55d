#include "compare/runs.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/library.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/watched_child.h"
#include "config/key_makers.h"
#include "fp8/execution.h"
#include "launch/restart.h"
#include "monitor/metric_file.h"

namespace octavo::compare {
namespace {

constexpr auto kChildTick = std::chrono::milliseconds(250);
using Values = std::map<std::string, std::string>;  // by key name

// What the comparison itself decides.
constexpr std::string_view kOwnKeys[] = {"run_name", "runs_dir", "checkpoint_dir", "resume",
                                         "seed"};

// The flags of the command line that train reads.
Values forwarded(const config::Parsed& parsed) {
  Values values;
  for (const auto& [name, origin] : parsed.origins) {
    const config::Key* key = config::find_key(name);
    if (origin.kind == config::Origin::Kind::kFlag && (key->readers & config::reader::kTrain))
      values[name] = join(key->load(parsed.settings), ",");
  }
  return values;
}

Values side_values(const std::vector<std::string>& words, const char* side) {
  Values values;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const config::Key* key = config::find_key(word.substr(0, equals));
    if (equals == word.npos || key == nullptr)
      fail(ExitCode::kUsage, "compare", "--", side,
           ": wanted key=value with a key of train, found '", word, "'",
           key == nullptr ? str("; nearest: ", config::nearest_key(word.substr(0, equals))) : "");
    if (!(key->readers & config::reader::kTrain) || std::ranges::count(kOwnKeys, key->name) > 0)
      fail(ExitCode::kUsage, "compare", "--", side, ": ", key->name,
           " is not a setting in which the sides may differ");
    values[key->name] = word.substr(equals + 1);
  }
  return values;
}

// BF16, whatever the file says.
const std::vector<std::string> kBf16 = {"mixed_precision=bf16", "use_fp8=false"};

// What a side says about its precision beats the command's flags, whatever their names.
void drop_overruled(Values& values, const Values& side) {
  const auto says = [&](const char* key, std::string_view value) {
    const auto found = side.find(key);
    return found != side.end() && found->second == value;
  };
  const bool plain = side.contains("mixed_precision") || side.contains("use_fp8");
  const bool is_fp8 = says("mixed_precision", "fp8") || says("use_fp8", "true");
  if (plain)
    for (const char* key : {"mixed_precision", "use_fp8"}) values.erase(key);
  if ((plain && !is_fp8) || side.contains("fp8_recipe") || side.contains("fp8_scenario"))
    for (const char* key : {"fp8_recipe", "fp8_scenario"}) values.erase(key);
}

std::vector<std::string> arguments_of(const config::Parsed& parsed, Values values,
                                      const Values& side) {
  drop_overruled(values, side);
  for (const auto& [name, value] : side) values[name] = value;
  std::vector<std::string> arguments = {parsed.config_file};
  for (const auto& [name, value] : values) arguments.push_back(str("--", name, "=", value));
  return arguments;
}

// The command of a run, to notice that another command uses the same folder.
std::string command_of(const RunPlan& plan, const PlannedRun& run) {
  return join(run.arguments, "\n") + "\nconfig " + plan.config_hash + "\n";
}

fs::path command_file(const RunPlan& plan, const PlannedRun& run) {
  return plan.folder / (run.name + ".command");
}

std::string status_of(const fs::path& run) {
  std::error_code error;
  if (!fs::exists(run / "receipt.json", error)) return "";
  return json_string(read_json(run / "receipt.json"), "status", run.string() + "/receipt.json");
}

bool made_before(const RunPlan& plan, const PlannedRun& run) {
  std::error_code error;
  for (const fs::path& other : {plan.folder, run.folder})
    if (fs::exists(other / "metrics.jsonl", error) &&
        (other == plan.folder || !fs::exists(command_file(plan, run), error)))
      fail(ExitCode::kUsage, "compare", "wanted ", plan.folder.string(),
           " for this comparison, found a run that it did not make in ", other.string(),
           "; give another --run_name");
  if (!fs::exists(command_file(plan, run), error)) return false;
  if (read_file(command_file(plan, run), size_t{1} << 20) != command_of(plan, run))
    fail(ExitCode::kUsage, "compare", "wanted ", plan.folder.string(),
         " for this comparison, found runs of other settings in it; give another --run_name, or "
         "remove the folder");
  const std::string status = status_of(run.folder);
  return status == "done" || status.starts_with("ended by a guard");
}

std::vector<std::string> command_of(const PlannedRun& run) {
  std::vector<std::string> arguments = run.arguments;
  if (!launch::checkpoints_of(run.folder / "checkpoints", run.name).empty())
    arguments = launch::resuming(arguments);
  std::vector<std::string> command = {own_program().string(), "train"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

RunPlan plan_runs(const config::Parsed& parsed) {
  const config::Settings& s = parsed.settings;
  RunPlan plan;
  // The file's run_name is that of the run it trains, whose folder is not the comparison's.
  const bool named = parsed.origin_of("run_name").kind == config::Origin::Kind::kFlag;
  const std::string name =
      named ? s.run_name : "compare-" + fs::path(parsed.config_file).stem().string();
  plan.folder = join_inside(s.runs_dir, name);
  plan.steps = s.max_steps;
  const std::string text = read_file(parsed.config_file, size_t{1} << 20);
  plan.config_hash = hash_bytes(std::as_bytes(std::span(text)));
  const std::vector<std::string> fp8 = {"mixed_precision=fp8"};
  const Values first = side_values(s.side_a.empty() ? kBf16 : s.side_a, "side_a");
  const Values second =
      side_values(s.side_b.empty() && !fp8::wants_fp8(s) ? fp8 : s.side_b, "side_b");
  for (int64_t i = 0; i < s.seeds; ++i)
    // In turns, so that a machine that becomes slower does so for both sides.
    for (const bool side_b : {i % 2 == 1, i % 2 == 0}) {
      PlannedRun run;
      run.name = str(side_b ? "b-" : "a-", s.seed + i);
      run.folder = plan.folder / run.name;
      Values values = forwarded(parsed);
      values["seed"] = std::to_string(s.seed + i);
      values["runs_dir"] = plan.folder.string();
      values["run_name"] = run.name;
      values["checkpoint_dir"] = (run.folder / "checkpoints").string();
      values.erase("resume");
      run.arguments = arguments_of(parsed, values, side_b ? second : first);
      config::parse(run.arguments, config::kTrainArguments);  // refuses before anything is trained
      plan.runs.push_back(std::move(run));
    }
  return plan;
}

int run_child(const std::vector<std::string>& command, const fs::path& log, SignalWatch& signals,
              const std::function<void(const std::string&)>& tick) {
  fs::create_directories(log.parent_path());
  // A run of this comparison that was killed before its first checkpoint begins anew.
  WatchedChild child(command, {{launch::kBeginsAnewVariable, "1"}}, "",
                     std::make_shared<LogFile>(log));
  WatchedChild* const watched[] = {&child};
  int asked = 0;  // by SIGINT or SIGTERM; Slurm sends SIGUSR1 before its SIGTERM
  bool told_to_stop = false;
  while (child.update()) {
    wait_for_news(signals, watched, kChildTick);
    while (const std::optional<int> number = signals.take()) {
      if (*number == SIGCHLD) continue;
      told_to_stop = true;
      const bool at_once = *number != SIGUSR1 && ++asked > 1;
      log_info(str(strsignal(*number), at_once ? ": asked twice, the run is ended at once"
                                               : ": the run in progress saves and stops; SIGINT "
                                                 "or SIGTERM twice ends it at once"));
      at_once ? child.end_now() : child.signal(*number);
    }
    tick(child.last_line());
  }
  if (child.by_signal() != 0 && told_to_stop)
    fail(ExitCode::kStopped, "compare", "ended on request; the same command resumes from here");
  if (child.by_signal() != 0)
    fail(ExitCode::kEnvironment, "compare", command[1], " ended with ", child.end_text(), ": ",
         child.last_line(), "; see ", log.string());
  if (child.code() != 0 && child.code() != static_cast<int>(ExitCode::kGuard))
    fail(static_cast<ExitCode>(child.code()), "compare",
         child.code() == static_cast<int>(ExitCode::kStopped)
             ? std::string("stopped on request; the same command resumes from here")
             : str(command[1], " ended with ", child.end_text(), ": ", child.last_line(), "; see ",
                   log.string()));
  return child.code();
}

void make_runs(const RunPlan& plan) {
  std::vector<const PlannedRun*> open;
  for (const PlannedRun& run : plan.runs)
    if (!made_before(plan, run)) open.push_back(&run);
  log_info(str(plan.folder.string(), ": ", plan.runs.size(), " runs, ",
               plan.runs.size() - open.size(), " of them made before"));
  if (open.empty()) return;
  fs::create_directories(plan.folder);
  SignalWatch signals;
  const bool steps = plan.steps > 0;
  const double each = steps ? static_cast<double>(plan.steps) : 1;
  Progress progress("compare", each * static_cast<double>(open.size()), steps ? "steps" : "runs");
  for (size_t i = 0; i < open.size(); ++i) {
    const PlannedRun& run = *open[i];
    write_file_atomic(command_file(plan, run), command_of(plan, run));
    monitor::MetricFile metrics(run.folder / "metrics.jsonl", "train/loss");
    const std::string note = str("run ", i + 1, " of ", open.size(), ", ", run.name);
    const auto tick = [&](const std::string&) {
      if (steps) metrics.update();
      const double done = steps ? std::min(each, static_cast<double>(metrics.values().size())) : 0;
      progress.set(each * static_cast<double>(i) + done, note);
    };
    const int code = run_child(command_of(run), run.folder / "train.log", signals, tick);
    progress.clear();
    if (code != 0) log_warn(str(run.name, " was ended by a guard; see ", run.folder.string()));
  }
  progress.finish();
}

std::vector<std::pair<fs::path, fs::path>> pairs_in(const fs::path& folder) {
  std::map<int64_t, std::pair<fs::path, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto seed = name.size() > 2
                          ? config::parse_number<int64_t>(std::string_view(name).substr(2))
                          : std::nullopt;
    if (!seed || !entry->is_directory()) continue;
    if (name.starts_with("a-")) found[*seed].first = entry->path();
    if (name.starts_with("b-")) found[*seed].second = entry->path();
  }
  std::vector<std::pair<fs::path, fs::path>> pairs;
  for (auto& [seed, pair] : found) {
    if (pair.first.empty() || pair.second.empty())
      log_warn(str(folder.string(), ": seed ", seed, " has one side only and is left out"));
    else
      pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace octavo::compare
