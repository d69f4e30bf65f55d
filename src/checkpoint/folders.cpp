#include "checkpoint/folders.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/failure.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"

namespace octavo::checkpoint {

namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kAside = ".old-", kTemporary = ".tmp-", kDoomed = ".del-",
                           kNewLink = ".link-";

void rename_or_fail(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  const int problem = errno;
  fail_as(failure_of_errno(problem), "checkpoint", "cannot rename ", from.string(), " to ",
          to.string(), ": ", std::strerror(problem),
          "; check the folder's rights and what is in the way");
}

// ".old-step-00000250-123" -> 250
std::optional<int64_t> parse_aside(std::string_view name) {
  if (!name.starts_with(kAside)) return std::nullopt;
  name.remove_prefix(kAside.size());
  return parse_step_folder(name.substr(0, name.rfind('-')));
}

bool is_leftover(std::string_view name) {
  for (std::string_view prefix : {kTemporary, kAside, kDoomed})
    if (name.starts_with(prefix) && name.substr(prefix.size()).starts_with(kStepPrefix))
      return true;
  return name.starts_with(std::string(kNewLink) + kLatestLink + "-") ||
         name.starts_with(std::string(kNewLink) + kBestLink + "-");
}

bool is_real_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

bool name_taken(const fs::path& path) {
  return fs::exists(fs::symlink_status(path));
}

}  // namespace

std::string step_folder_name(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

std::optional<int64_t> parse_step_folder(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  std::string_view digits = name.substr(kStepPrefix.size());
  int64_t step = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  // One name per step: "step-250" beside "step-00000250" would be two.
  if (step_folder_name(step) != name) return std::nullopt;
  return step;
}

std::vector<StepFolder> step_folders(const fs::path& directory) {
  std::vector<StepFolder> folders;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (auto step = parse_step_folder(name); step && is_real_folder(it->path()))
      folders.push_back({*step, it->path()});
    else if (auto aside = parse_aside(name); aside && is_real_folder(it->path()))
      if (!name_taken(directory / step_folder_name(*aside)))
        folders.push_back({*aside, it->path()});
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail(ExitCode::kEnvironment, "checkpoint", "cannot read ", directory.string(), ": ",
         error.message());
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) {
    return std::tie(a.step, a.path) < std::tie(b.step, b.path);
  });
  return folders;
}

std::string newest_run(const fs::path& root) {
  std::error_code error;
  const fs::path target = fs::read_symlink(root / kLatestLink, error);
  if (error || target.filename() != kLatestLink) return "";
  const std::string run = target.parent_path().string();
  const bool plain = !run.empty() && run != "." && run != ".." && run.find('/') == run.npos;
  if (!plain || !fs::is_directory(root / run, error)) return "";
  return step_folders(root / run).empty() ? "" : run;
}

std::vector<std::string> runs_in(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code unreadable;  // whoever asks for that run is told
    if (name.starts_with('.') || name == kLatestLink || name == kBestLink) continue;
    if (parse_step_folder(name) || !it->is_directory(unreadable)) continue;
    const fs::directory_iterator opened(it->path(), unreadable);
    if (!unreadable && !step_folders(it->path()).empty()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> read_link(const fs::path& directory, const char* link) {
  std::error_code error;
  fs::path target = fs::read_symlink(directory / link, error);
  if (error) return std::nullopt;
  std::string name = target.string();
  if (parse_step_folder(name)) return name;
  // A folder of runs that has older checkpoints, too: theirs is gone.
  if (target.has_parent_path() && !newest_run(directory).empty()) return std::nullopt;
  log_warn(str("checkpoint link ", (directory / link).string(),
               " does not name a step folder beside it; it is ignored"));
  return std::nullopt;
}

fs::path temporary_path(const fs::path& directory, std::string_view prefix, std::string_view name) {
  return directory / str(prefix, name, "-", ::getpid());
}

void make_directory(const fs::path& directory) {
  std::vector<fs::path> missing;  // the innermost first
  const fs::path whole = fs::absolute(directory).lexically_normal();
  for (fs::path path = whole; !path.empty() && !fs::exists(path); path = path.parent_path())
    missing.push_back(path);
  fs::create_directories(whole);
  for (auto path = missing.rbegin(); path != missing.rend(); ++path)
    fsync_path(path->parent_path());
}

void point_link(const fs::path& directory, const char* link, const std::string& target) {
  fs::path path = directory / link;
  fs::file_status status = fs::symlink_status(path);
  if (fs::exists(status) && !fs::is_symlink(status))
    fail(ExitCode::kEnvironment, "checkpoint", "wanted ", path.string(),
         " as a link of our own, found something else under that name; move it away");
  fs::path fresh = temporary_path(directory, kNewLink, link);
  fs::remove(fresh);
  fs::create_symlink(target, fresh);
  rename_or_fail(fresh, path);
  fsync_path(directory);
}

void point_newest_run(const fs::path& run_folder) {
  const fs::path folder = fs::absolute(run_folder).lexically_normal();
  const std::string target = folder.filename().string() + "/" + kLatestLink;
  const fs::path root = folder.parent_path();
  std::error_code none;
  if (fs::read_symlink(root / kLatestLink, none) == target) return;
  try {
    point_link(root, kLatestLink, target);
  } catch (const std::exception& error) {
    log_warn(str("checkpoint: ", (root / kLatestLink).string(),
                 " does not name this run now: ", error.what(),
                 "; the checkpoint itself is whole, take it as ", folder.filename().string()));
  }
}

void install_folder(const fs::path& fresh, const fs::path& target, bool allow_exchange) {
  fs::path directory = target.parent_path();
  if (!name_taken(target)) {
    rename_or_fail(fresh, target);
    fsync_path(directory);
    return;
  }
  if (allow_exchange &&
      ::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    fsync_path(directory);
    remove_folder(fresh);  // the old one by now
    return;
  }
  fs::path aside = temporary_path(directory, kAside, target.filename().string());
  fs::remove_all(aside);
  rename_or_fail(target, aside);
  rename_or_fail(fresh, target);
  fsync_path(directory);
  remove_folder(aside);
}

void remove_folder(const fs::path& folder) {
  std::string name = folder.filename().string();
  for (std::string_view prefix : {kTemporary, kAside, kDoomed})
    if (name.starts_with(prefix)) name = name.substr(prefix.size());
  fs::path doomed = temporary_path(folder.parent_path(), kDoomed, name);
  if (doomed != folder) {
    fs::remove_all(doomed);
    rename_or_fail(folder, doomed);
    // Otherwise a power cut may leave files missing under the old name: folders reach the disk in
    // any order.
    fsync_path(folder.parent_path());
  }
  fs::remove_all(doomed);
}

void clean_leftovers(const fs::path& directory,
                     const std::function<bool(std::string_view)>& alive) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (is_leftover(name) && !(alive && alive(name))) leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) {
    std::string name = path.filename().string();
    auto step = parse_aside(name);
    fs::path home = step ? directory / step_folder_name(*step) : fs::path();
    if (step && !name_taken(home)) {
      log_warn(str("checkpoint: a save was killed while replacing ", home.string(),
                   "; the earlier one is put back"));
      rename_or_fail(path, home);
      continue;
    }
    log_info(str("checkpoint: removing ", name, ", left by a save that was killed"));
    fs::remove_all(path);
  }
}

void remove_checkpoints(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  with_io_errors("remove the checkpoints in " + folder.string(), [&] {
    DirectoryLock lock(folder);
    clean_leftovers(folder);
    for (const char* link : {kLatestLink, kBestLink})
      if (fs::is_symlink(fs::symlink_status(folder / link))) fs::remove(folder / link);
    for (const StepFolder& step : step_folders(folder)) remove_folder(step.path);
  });
}

DirectoryLock::DirectoryLock(const fs::path& directory)
    : fd_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) {
    const int problem = errno;
    fail_as(failure_of_errno(problem), "checkpoint", "cannot open the folder ", directory.string(),
            ": ", std::strerror(problem));
  }
  held_ = ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
  if (!held_ && errno == EWOULDBLOCK) {
    log_warn(str("checkpoint: another process is saving into ", directory.string(),
                 "; waiting. Give each run a run_name of its own"));
    int result;
    do result = ::flock(fd_, LOCK_EX);
    while (result != 0 && errno == EINTR);
    held_ = result == 0;
  }
  if (!held_)
    log_warn(str("checkpoint: the file system of ", directory.string(),
                 " cannot lock folders; leftovers of killed saves stay until removed by hand"));
}

DirectoryLock::~DirectoryLock() {
  ::close(fd_);
}

}  // namespace octavo::checkpoint
