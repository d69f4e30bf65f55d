#include "train/state/run_folders.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "launch/restart.h"
#include "train/device.h"
#include "train/guards/output_check.h"

namespace octavo::train {
namespace {

// What a run of some name left behind.
struct ExistingRun {
  bool history = false, finished = false;  // a step in metrics.jsonl; the last one
  int64_t steps = 0;                       // as the receipt says
  std::string run_id;
  std::vector<fs::path> checkpoints;
  bool nothing() const { return !history && checkpoints.empty(); }
};

ExistingRun find_existing(const config::Settings& s) {
  ExistingRun existing;
  const fs::path folder = run_folder(s);
  std::error_code none;
  existing.history = fs::file_size(folder / "metrics.jsonl", none) > 0 && !none;
  if (fs::is_directory(checkpoint_folder(s), none))
    existing.checkpoints = checkpoint::step_paths(checkpoint_folder(s));
  if (!fs::is_regular_file(folder / "receipt.json", none)) return existing;
  try {
    const Json receipt = read_json(folder / "receipt.json");
    existing.finished = receipt.value("status", "") == "done";
    existing.steps = receipt.value("steps", int64_t{0});
    existing.run_id = receipt.value("run_id", "");
  } catch (const std::exception& error) {
    log_warn(str((folder / "receipt.json").string(), " cannot be read (", error.what(),
                 "); the run in this folder counts as unfinished"));
  }
  return existing;
}

std::string described(const config::Settings& s, const ExistingRun& existing) {
  std::string text;
  if (existing.history)
    text = str(run_folder(s).string(), ", ",
               existing.finished ? "a finished run" : "an unfinished run",
               existing.steps > 0 ? str(" of ", existing.steps, " steps") : "");
  if (!existing.checkpoints.empty())
    text +=
        str(text.empty() ? "" : ", and ", existing.checkpoints.size(), " checkpoints up to ",
            existing.checkpoints.back().filename().string(), " in ", checkpoint_folder(s).string());
  return text;
}

// A launcher or scheduler starts the same run again, or may do so.
bool may_be_a_restart(const dist::World& world) {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' && std::string_view(value) != "0";
  };
  return world.rank_info().generation > 0 || set("SLURM_RESTART_COUNT") ||
         set(launch::kBeginsAnewVariable);
}

// Whether the folders may be written to although something is in them.
bool may_replace(const config::Settings& s, const ExistingRun& existing, const dist::World& world) {
  if (existing.nothing()) return true;
  if (s.overwrite) return true;
  if (existing.finished || !existing.checkpoints.empty() || !may_be_a_restart(world)) return false;
  log_info(str(described(s, existing), ": it had not saved yet when it ended; started again, it ",
               "begins anew"));
  return true;
}

constexpr const char* kOverwriteText =
    "or --overwrite to replace it (its history and its checkpoints are removed)";

void refuse_new(const config::Settings& s, const ExistingRun& existing) {
  fail(ExitCode::kUsage, "train", "wanted a new run ", s.run_name, ", found ",
       described(s, existing), "; give ",
       existing.checkpoints.empty() ? "" : "--resume latest to continue it, ",
       "--run_name OTHER for a run beside it, ", kOverwriteText);
}

void refuse_fork(const config::Settings& s, const ExistingRun& existing,
                 const checkpoint::Owner& owner) {
  fail(ExitCode::kUsage, "train", "wanted to resume from ", owner.path.string(), " (run ",
       owner.run, ") as run ", s.run_name, ", found ", described(s, existing),
       "; give --run_name OTHER, ",
       owner.run.empty() ? "" : str("--run_name ", owner.run, " to continue that run, "),
       existing.checkpoints.empty() ? "" : str("--resume latest to continue ", s.run_name, ", "),
       kOverwriteText);
}

void refuse_history(const config::Settings& s, const checkpoint::Owner& owner) {
  fail(
      ExitCode::kUsage, "train", "wanted the history of the run that saved ", owner.path.string(),
      " in ", run_folder(s).string(), ", found that of another run of the same name; give ",
      "--run_name OTHER to resume from the checkpoint under another name, or move the folder away");
}

void refuse_mixture(const config::Settings& s, const fs::path& saved,
                    const checkpoint::Owner& owner) {
  fail(ExitCode::kUsage, "train", "wanted ", checkpoint_folder(s).string(),
       " for the run that saved ", owner.path.string(), ", found ", saved.filename().string(),
       " of another run of the same name in it; give --run_name OTHER, or move the folder away");
}

// Older runs have no id.
bool are_two(const std::string& id, const std::string& other) {
  return !id.empty() && !other.empty() && id != other;
}

std::string new_id() {
  std::random_device random;
  char text[40];
  std::snprintf(text, sizeof text, "%08x%08x%08x", random(), random(), random());
  return text;
}

// <model>-<precision>-<date-time>, and a number when there is a run of that name.
std::string new_name(config::Settings s) {
  const auto decision = decide_fp8(s);
  const bool in_fp8 = decision && decision->runs != fp8::Runs::kBf16;
  const std::string name =
      launch::new_run_name(s, in_fp8                                          ? "fp8"
                              : s.mixed_precision == config::Precision::kFp32 ? "fp32"
                                                                              : "bf16");
  s.run_name = name;
  for (int i = 2; !find_existing(s).nothing(); ++i) s.run_name = str(name, "-", i);
  return s.run_name;
}

// Ends with the process, also by kill -9. Null where the file system cannot lock folders.
std::shared_ptr<void> locked(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  std::shared_ptr<void> lock(nullptr, [fd](void*) { ::close(fd); });
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK)
    fail(ExitCode::kEnvironment, "train", "wanted ", folder.string(),
         " for this run, found that another process trains in it; wait for its end, or give ",
         "--run_name OTHER");
  return nullptr;
}

bool is_inside(const fs::path& step_folder, const fs::path& folder) {
  std::error_code none;
  return fs::equivalent(step_folder.parent_path(), folder, none) && !none;
}

// The first rank's.
RunFolders claim_alone(config::Settings& s, const dist::World& world) {
  if (s.resume.empty()) {
    if (s.run_name.empty()) s.run_name = new_name(s);
    const ExistingRun existing = find_existing(s);
    if (!may_replace(s, existing, world)) refuse_new(s, existing);
    return {new_id(), false, nullptr, {}};
  }
  const auto owner = checkpoint::owner_of(checkpoint_dir(s), s.resume, s.run_name);
  if (s.run_name.empty()) s.run_name = owner.run.empty() ? new_name(s) : owner.run;
  if (owner.path.empty()) return {new_id(), true, nullptr, {}};  // all damaged: resume() says so
  const ExistingRun existing = find_existing(s);
  const bool own = is_inside(owner.path, checkpoint_folder(s)) || owner.run == s.run_name;
  if (!own) {
    if (!may_replace(s, existing, world)) refuse_fork(s, existing, owner);
    log_info(str("run ", s.run_name, " begins at a checkpoint of run ", owner.run,
                 ", which stays as it is"));
    return {new_id(), false, nullptr, {}};
  }
  if (existing.history && are_two(existing.run_id, owner.run_id)) refuse_history(s, owner);
  for (const checkpoint::Summary& saved : checkpoint::list(checkpoint_folder(s)))
    if (are_two(saved.run_id, owner.run_id)) refuse_mixture(s, saved.path, owner);
  if (s.overwrite)
    log_info("overwrite: the run resumes from its own checkpoint, nothing is removed");
  return {owner.run_id.empty() ? new_id() : owner.run_id, true, nullptr, {}};
}

}  // namespace

std::string checkpoint_dir(const config::Settings& settings) {
  return launch::checkpoint_root(settings).string();
}

fs::path run_folder(const config::Settings& settings) {
  return fs::path(settings.runs_dir) / settings.run_name;
}

fs::path checkpoint_folder(const config::Settings& settings) {
  return launch::checkpoint_root(settings) / settings.run_name;
}

RunFolders claim_folders(config::Settings& settings, dist::World& world) {
  RunFolders claim;
  Json agreed;
  if (world.is_first()) try {
      claim = claim_alone(settings, world);
      claim.made = try_output_folders(settings, world.rank());
      claim.lock = locked(run_folder(settings));
      agreed = {{"name", settings.run_name}, {"id", claim.run_id}, {"resumes", claim.resumes}};
    } catch (const Error& error) {
      if (world.size() == 1) throw;
      agreed = {{"error", error.what()}, {"code", static_cast<int>(error.code())}};
    }
  agreed = parse_json(world.from_first(agreed.dump(), "the run's name"), "the first rank's claim");
  if (agreed.contains("error"))
    fail(static_cast<ExitCode>(agreed.at("code").get<int>()), "train",
         "the first rank: ", agreed.at("error").get<std::string>());
  if (world.is_first()) return claim;
  settings.run_name = agreed.at("name").get<std::string>();
  claim.run_id = agreed.at("id").get<std::string>();
  claim.resumes = agreed.at("resumes").get<bool>();
  try_output_folders(settings, world.rank());  // each node has its own view of the disk
  return claim;
}

void remove_overwritten(const config::Settings& s, const RunFolders& claim) {
  if (claim.resumes || !s.overwrite) return;
  const ExistingRun existing = find_existing(s);
  if (existing.nothing()) return;
  log_warn(str("overwrite: removing ", described(s, existing)));
  checkpoint::remove_checkpoints(checkpoint_folder(s));
  std::error_code none;
  fs::remove(checkpoint_folder(s) / "out_of_memory.json", none);
  // By name: a comparison keeps whole runs in the folder of its own.
  const fs::path folder = run_folder(s);
  for (const char* name : {"config.yaml", "receipt.json", "metrics.jsonl", "incidents.jsonl",
                           "restarts.jsonl", "run.html", "samples", "tensorboard", "wandb"})
    fs::remove_all(folder / name);
  std::vector<fs::path> ledgers;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with("data_damage.")) ledgers.push_back(entry);
  for (const fs::path& ledger : ledgers) fs::remove(ledger);
}

}  // namespace octavo::train
