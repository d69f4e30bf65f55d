// A save by many ranks; save_job.h says how they meet.
#include <ATen/ATen.h>

#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/folders.h"
#include "checkpoint/part_list.h"
#include "checkpoint/save_job.h"

namespace octavo::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

// Sleeps a little longer each time: short saves end soon, and long ones are not in a hurry.
class PollBackoff {
 public:
  explicit PollBackoff(const SaveJob& job)
      : job_(job), end_(Clock::now() + std::chrono::duration<double>(job.timeout)) {}
  bool is_over() const { return Clock::now() >= end_; }
  void sleep() {
    if (job_.check) job_.check();
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 2, std::chrono::milliseconds(500));
  }

 private:
  const SaveJob& job_;
  std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
  std::chrono::milliseconds nap_{1};
};

std::string save_id(const SaveJob& job) {
  return str(job.part.token, "-", job.number);
}

// Names of the folders of this run's saves end in token and number; those of this save and later
// ones are in use.
bool is_in_use(const SaveJob& job, std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || !name.substr(0, dash).ends_with("-" + job.part.token))
    return false;
  const std::string number(name.substr(dash + 1));
  return !number.empty() && number.size() < 10 &&
         number.find_first_not_of("0123456789") == std::string::npos &&
         std::stoi(number) >= job.number;
}

void check_part(const Part& part) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  if (part.token.empty() || part.token.size() > 40 ||
      part.token.find_first_not_of(kAllowed) != std::string::npos)
    fail(ExitCode::kUsage, "checkpoint",
         "wanted a token of 1 to 40 letters, digits and _ that the ranks agreed on, found ",
         quote_name(part.token));
}

std::map<std::string, ListedPiece> pieces_of(const SaveJob& job, const std::string& group) {
  std::map<std::string, ListedPiece> pieces;
  const auto slices = job.state.slices.find(group);
  for (const auto& [name, tensor] : job.own.at(group)) {
    ListedPiece piece{tensor.scalar_type(), tensor.sizes().vec(), 0, row_count(tensor.sizes())};
    if (slices != job.state.slices.end())
      if (const auto slice = slices->second.find(name); slice != slices->second.end()) {
        piece.shape = slice->second.full_shape;
        piece.first_row = slice->second.first_row;
      }
    pieces[name] = std::move(piece);
  }
  return pieces;
}

// The files, then the list.
void write_part(const SaveJob& job, const fs::path& folder) {
  const Part& part = job.part;
  PartList list{job.state.step, save_id(job), part.rank, part.ranks, {}};
  for (const auto& group : job.own)
    list.files.push_back(
        {write_group(job, folder, group.first, part_file_name(group.first, part.rank, part.ranks)),
         pieces_of(job, group.first)});
  const std::string text = part_text(list);
  parse_part(text, "list to be written");  // refuse now what could not be loaded later
  write_file_atomic(
      folder / part_name(static_cast<size_t>(part.rank), static_cast<size_t>(part.ranks)), text);
  job.stage("list");
}

void remove_own_files(const SaveJob& job, const fs::path& folder) {
  std::error_code ignored;  // the first rank may be removing them
  for (const auto& group : job.own)
    fs::remove(folder / part_file_name(group.first, job.part.rank, job.part.ranks), ignored);
}

// Tells the first rank not to wait for this one.
void leave_failure(const SaveJob& job, const fs::path& folder, const std::string& reason) {
  const Part& part = job.part;
  remove_own_files(job, folder);
  try {
    write_file_atomic(
        folder / part_failure_name(static_cast<size_t>(part.rank), static_cast<size_t>(part.ranks)),
        reason.substr(0, 2000));
  } catch (const std::exception& error) {
    log_warn(str("checkpoint: the first rank could not be told that this part of step ",
                 job.state.step, " failed (", error.what(), "); it will wait for its timeout"));
  }
}

std::string some_ranks(const std::vector<std::string>& ranks) {
  constexpr size_t kShown = 8;
  std::vector<std::string> shown(
      ranks.begin(), ranks.begin() + static_cast<int64_t>(std::min(kShown, ranks.size())));
  return join(shown, ", ") +
         (ranks.size() > kShown ? str(" and ", ranks.size() - kShown, " more") : "");
}

void wait_for_lists(const SaveJob& job, const fs::path& folder) {
  const auto ranks = static_cast<size_t>(job.part.ranks);
  for (PollBackoff backoff(job);; backoff.sleep()) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
      names.insert(entry.path().filename().string());
    std::vector<std::string> missing;
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (names.contains(part_failure_name(rank, ranks)))
        fail(ExitCode::kEnvironment, "checkpoint", "rank ", rank, " could not write its part: ",
             quote_name(read_file(folder / part_failure_name(rank, ranks), 4096)));
      if (!names.contains(part_name(rank, ranks))) missing.push_back(str(rank));
    }
    if (missing.empty()) return;
    if (backoff.is_over())
      fail(
          ExitCode::kEnvironment, "checkpoint", "waited ", job.timeout, " s for the part of rank ",
          some_ranks(missing), " of ", ranks, " in ", job.directory.string(),
          "; check that checkpoint_dir is on a disk that all nodes share, and that these ranks are "
          "alive");
  }
}

Manifest gather_lists(const SaveJob& job, const fs::path& folder) {
  Manifest manifest = begin_manifest(job);
  manifest.save_id = save_id(job);
  std::vector<PartList> lists;
  for (int rank = 0; rank < job.part.ranks; ++rank) {
    if (job.check) job.check();
    const fs::path path =
        folder / part_name(static_cast<size_t>(rank), static_cast<size_t>(job.part.ranks));
    const std::string text = read_file(path, JsonLimits{}.max_bytes);
    PartList list = parse_part(text, path.string());
    if (list.rank != rank || list.ranks != job.part.ranks || list.step != job.state.step ||
        list.save_id != manifest.save_id)
      fail(ExitCode::kEnvironment, "checkpoint", path.string(), ": wanted the list of rank ", rank,
           " for step ", job.state.step, ", found rank ", list.rank, " and step ", list.step);
    for (const ListedFile& listed : list.files)
      if (const auto problem = size_problem(folder, listed.file.name, listed.file.size);
          !problem.empty())
        fail(ExitCode::kEnvironment, "checkpoint", "part of rank ", rank, ": ", problem);
    add_part(list, text, manifest);
    lists.push_back(std::move(list));
  }
  manifest.index = make_index(lists);
  return manifest;
}

// Tells the other ranks, also those that have yet to come, and gives the space back. The next save
// removes the folder.
void give_up(const SaveJob& job, const fs::path& folder, const std::string& reason) {
  const fs::path note = folder / part_failure_name(0, static_cast<size_t>(job.part.ranks));
  const auto tell = [&] { write_file_atomic(note, reason.substr(0, 2000)); };
  try {
    fs::create_directory(folder);
    bool announced = true;  // first, so that ranks whose files vanish know why
    try {
      tell();
    } catch (const Error&) {
      announced = false;  // a full disk has room for it once the files are gone
    }
    for (const auto& entry : fs::directory_iterator(folder)) {
      std::error_code ignored;  // a rank may be removing its files itself
      if (entry.path() != note) fs::remove(entry.path(), ignored);
    }
    if (!announced) tell();
  } catch (const std::exception& error) {  // the first failure is the one to tell
    log_warn(str("checkpoint: the other ranks could not be told that step ", job.state.step,
                 " is not saved (", error.what(), "); they will wait for their timeout"));
  }
}

fs::path save_as_first(const SaveJob& job, const fs::path& folder) {
  std::optional<DirectoryLock> lock;
  fs::path target;
  try {
    lock.emplace(job.directory);
    if (lock->held())
      clean_leftovers(job.directory, [&](std::string_view name) { return is_in_use(job, name); });
    check_space(job);
    fs::create_directory(folder);
    job.stage("folder");
    write_part(job, folder);
    wait_for_lists(job, folder);
    job.stage("lists");
    write_manifest(gather_lists(job, folder), folder);
    job.stage("manifest");
    target = install(job, folder);
  } catch (const std::exception& error) {
    give_up(job, folder, error.what());
    throw;
  }
  move_links(job);
  return target;
}

bool has_manifest_of(const fs::path& target, const std::string& id) {
  try {
    return read_manifest(target).save_id == id;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    return false;
  }
}

void check_first_rank(const SaveJob& job, const fs::path& folder) {
  const fs::path note = folder / part_failure_name(0, static_cast<size_t>(job.part.ranks));
  if (!fs::exists(note)) return;
  remove_own_files(job, folder);  // it took away those that were there when it gave up
  fail(ExitCode::kEnvironment, "checkpoint", "the first rank gave up saving step ", job.state.step,
       ": ", quote_name(read_file(note, 4096)));
}

bool is_listed(const fs::path& directory, const fs::path& name) {
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().filename() == name) return true;
  return false;
}

// Whether a folder has lost its name. A network file system may answer for a single name from a
// cache that is half a minute old; a folder that is opened is asked for anew, which costs more.
bool is_gone(const fs::path& folder, bool may_list) {
  std::error_code none;
  if (fs::exists(folder, none) && !may_list) return false;
  return !is_listed(folder.parent_path(), folder.filename());
}

// Once the temporary folder is gone: the first rank gave its name to what it saved. Some file
// systems (FUSE) list a folder as it is, and yet lead to the checkpoint that was replaced for a
// second.
bool has_its_name(const SaveJob& job, const fs::path& target) {
  constexpr int kLooks = 20;
  for (int look = 0;; ++look) {
    if (has_manifest_of(target, save_id(job))) return true;
    if (look == kLooks || !is_listed(job.directory, target.filename())) return false;
    job.stage("look");
    if (job.check) job.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Until the first rank has given the folder its name, or has given up.
fs::path wait_for_name(const SaveJob& job, const fs::path& folder) {
  constexpr int kPollsPerList = 4;
  const fs::path target = job.directory / step_folder_name(job.state.step);
  int polls = 0;
  for (PollBackoff backoff(job); !is_gone(folder, ++polls % kPollsPerList == 0); backoff.sleep()) {
    check_first_rank(job, folder);
    if (backoff.is_over())
      fail(ExitCode::kEnvironment, "checkpoint", "waited ", job.timeout,
           " s for the first rank to finish ", target.string(), "; see its log");
  }
  // Whoever sees the old name gone sees the new one: both are in the folder that was just read.
  if (has_its_name(job, target)) return target;
  fail(ExitCode::kEnvironment, "checkpoint", "the first rank gave up saving ", target.string(),
       "; see its log");
}

fs::path save_as_other(const SaveJob& job, const fs::path& folder) {
  try {
    fs::create_directory(folder);
    job.stage("folder");
    check_first_rank(job, folder);
    write_part(job, folder);
  } catch (const std::exception& error) {
    check_first_rank(job, folder);
    leave_failure(job, folder, error.what());
    throw;
  }
  return wait_for_name(job, folder);
}

}  // namespace

fs::path save_as_rank(const SaveJob& job) {
  check_part(job.part);
  const fs::path folder =
      job.directory / str(".tmp-", step_folder_name(job.state.step), "-", save_id(job));
  return job.part.rank == 0 ? save_as_first(job, folder) : save_as_other(job, folder);
}

}  // namespace octavo::checkpoint
