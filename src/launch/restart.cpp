#include "launch/restart.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/failure.h"
#include "base/host.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/secrets.h"
#include "config/key_makers.h"
#include "fp8/execution.h"
#include "object_store/address.h"

namespace octavo::launch {

namespace {

// The run that saved this checkpoint; "" when its manifest does not say.
std::string saved_by(const fs::path& step_folder) {
  std::error_code error;
  if (!fs::is_regular_file(step_folder / "manifest.json", error)) return "";
  try {
    const Json manifest = read_json(step_folder / "manifest.json");
    return manifest.at("extra").value("run_name", "");
  } catch (const std::exception&) {
    return "";  // train says what is wrong with it
  }
}

// s3://bucket/prefix/RUN or s3://bucket/prefix/RUN/step-00000250: checkpoint_upload has it so.
std::string run_of_address(const std::string& address) {
  const fs::path path = object_store::path_of(address);
  const bool is_step = path.filename().string().starts_with("step-");
  return (is_step ? path.parent_path() : path).filename().string();
}

}  // namespace

std::string restart_cause(const Outcome& outcome) {
  constexpr size_t kMost = 600;  // it is kept in the run's files
  return printable(without_secrets(octavo::str(row_of(outcome.kind).name, ": ", outcome.what)),
                   kMost);
}

fs::path checkpoint_root(const config::Settings& settings) {
  if (!settings.checkpoint_dir.empty()) return settings.checkpoint_dir;
  return fp8::wants_fp8(settings) ? "checkpoints_fp8" : "checkpoints";
}

std::string new_run_name(const config::Settings& settings, const std::string& precision) {
  const std::string when = utc_text("%Y%m%d-%H%M%S", std::time(nullptr));
  return str(fs::path(settings.model_name).filename().string(), "-", precision, "-", when);
}

void want_run_name(const config::Settings& s) {
  if (s.run_name.empty() && s.resume.empty())
    fail(ExitCode::kUsage, "launch",
         "auto_resume, which a JobSet has too: wanted run_name, found none, and without it the run "
         "to continue is not known; give --run_name NAME to train, after --");
}

std::string name_of_run(const config::Settings& s) {
  if (!s.run_name.empty()) return s.run_name;
  const fs::path root = checkpoint_root(s);
  std::error_code error;
  if (object_store::is_s3_address(s.resume)) return run_of_address(s.resume);
  std::string name;
  if (!s.resume.empty()) {
    const bool by_link = s.resume == "latest" || s.resume == "best";
    const fs::path named = by_link ? root / "latest" : fs::path(s.resume);
    if (!by_link && !named.has_parent_path() && !checkpoints_in(root / named).empty())
      return s.resume;
    name = saved_by(fs::exists(named, error) ? named : root / named);
    if (name.empty() && fs::exists(named / "latest", error)) name = saved_by(named / "latest");
  }
  const bool in_fp8 = fp8::wants_fp8(s);
  return name.empty() ? new_run_name(s, in_fp8 ? "fp8" : std::string(name_of(s.mixed_precision)))
                      : name;
}

Checkpoints checkpoints_of(const fs::path& root, const std::string& run) {
  Checkpoints found = checkpoints_in(root / run);
  if (!found.empty()) return found;
  found = checkpoints_in(root);
  std::erase_if(found, [&](const auto& item) {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(item.first));
    return saved_by(root / name) != run;
  });
  return found;
}

Checkpoints checkpoints_in(const fs::path& folder) {
  constexpr std::string_view kPrefix = "step-";
  Checkpoints found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto step = config::parse_number<int64_t>(std::string_view(name).substr(kPrefix.size()));
    if (!step || *step < 0) continue;
    std::error_code unfinished;  // no manifest: it was being written
    const auto written = fs::last_write_time(it->path() / "manifest.json", unfinished);
    if (!unfinished) found.insert_or_assign(*step, written);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail_as(failure_of_errno(error.value()), "launch", "wanted to look for checkpoints in ",
            folder.string(), ", found: ", error.message());
  return found;
}

std::optional<int64_t> newest_step(const Checkpoints& now, const Checkpoints& before) {
  for (auto it = now.rbegin(); it != now.rend(); ++it) {
    const auto old = before.find(it->first);
    if (old == before.end() || old->second != it->second) return it->first;
  }
  return std::nullopt;
}

std::vector<std::string> resuming(const std::vector<std::string>& command) {
  std::vector<std::string> result;
  for (size_t at = 0; at < command.size(); ++at) {
    if (command[at] == "--resume")
      ++at;  // and its value
    else if (command[at] == "--overwrite" || command[at].starts_with("--overwrite="))
      continue;  // it was done
    else if (!command[at].starts_with("--resume="))
      result.push_back(command[at]);
  }
  result.insert(result.end(), {"--resume", "latest"});
  return result;
}

namespace {

constexpr double kFirstWait = 2, kMostWait = 120;  // seconds, of restarts that gained nothing

std::string in_seconds(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace

RestartPolicy::RestartPolicy(int64_t most, std::chrono::duration<double> window, uint64_t seed)
    : most_(most), window_(window), random_(seed) {}

std::chrono::milliseconds RestartPolicy::wait_of(const EndRow& row) {
  if (row.kind == EndKind::kLostNode && !waits_for_nodes_) return std::chrono::milliseconds(0);
  double seconds = static_cast<double>(row.first_wait.count());
  for (int64_t more = 0; more < in_a_row_ && seconds < kMostWait; ++more)
    seconds = std::max(kFirstWait, 2 * seconds);
  const double jitter = std::uniform_real_distribution<double>(0.75, 1.25)(random_);
  return std::chrono::milliseconds(
      static_cast<int64_t>(1000 * std::min(seconds, kMostWait) * jitter));
}

RestartPolicy::Decision RestartPolicy::decide(const Outcome& outcome, std::optional<int64_t> step,
                                              Clock::time_point now) {
  const EndRow& row = row_of(outcome.kind);
  Decision decision;
  if (most_ == 0) {
    decision.reason = "max_restarts is 0";
    return decision;
  }
  if (!outcome.curable) {
    decision.reason = str("a restart does not help (", row.name,
                          "; at fault: ", name_of(row.at_fault), "): ", row.tried);
    return decision;
  }
  while (!recent_.empty() && now - recent_.front() > window_) recent_.pop_front();
  const int64_t reached = step.value_or(-1);
  if (restarts_ == 0 || reached > last_step_) in_a_row_ = 0;
  const std::string newest = step ? str("step ", *step) : "none";
  if (static_cast<int64_t>(recent_.size()) >= most_) {
    decision.reason = str("all ", most_, " restarts of the last ", window_.count() / 60,
                          " minutes are used (max_restarts, restart_window)");
    return decision;
  }
  if (in_a_row_ >= most_) {
    decision.reason = str("no checkpoint was gained over ", in_a_row_,
                          " restarts in a row (newest: ", newest, ")");
    return decision;
  }
  decision.restart = true;
  decision.wait = wait_of(row);
  recent_.push_back(now);
  ++restarts_;
  ++in_a_row_;
  last_step_ = std::max(last_step_, reached);
  decision.reason = str("restart ", recent_.size(), " of ", most_, ", ",
                        step ? "from " + newest : "from the start (no checkpoint yet)");
  if (decision.wait > std::chrono::milliseconds(0))
    decision.reason += str(", in ", in_seconds(decision.wait));
  return decision;
}

}  // namespace octavo::launch
