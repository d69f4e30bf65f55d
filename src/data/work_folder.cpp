#include "data/work_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/process.h"

namespace octavo::data {
namespace {

constexpr auto kBeat = std::chrono::seconds(5);
constexpr size_t kResultHashDigits = 32, kMaxCardBytes = 4096, kMaxResultBytes = size_t{64} << 20;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string pid_space() {
  const auto [boot, space] = process_space();
  return boot.empty() || space.empty() ? "" : boot + " " + space;
}

// A file beside the others that appears whole; false when there is one already.
bool link_new(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return true;
  const int error = errno;
  // Over NFS an answer can be lost and asked for again.
  struct stat first {
  }, second{};
  if (::stat(from.c_str(), &first) == 0 && ::stat(to.c_str(), &second) == 0 &&
      first.st_ino == second.st_ino && first.st_dev == second.st_dev)
    return true;
  if (error == EEXIST) return false;
  fail(ExitCode::kEnvironment, "data", "cannot link ", to.string(), ": ", std::strerror(error),
       "; a shared preparation needs an output folder on a file system with hard links");
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

}  // namespace

void remove_shared_folder(const fs::path& folder) {
  std::error_code none;
  for (int attempt = 0; attempt < 5 && fs::exists(folder, none); ++attempt)
    fs::remove_all(folder, none);
}

WorkFolder::WorkFolder(const fs::path& output, double takeover_seconds)
    : folder_(output / kWorkFolderName), takeover_seconds_(takeover_seconds) {
  std::random_device random;
  id_ = str(host_name(), "-", ::getpid(), "-", random() % 1'000'000);
  for (char& c : id_)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  for (const char* part : {"workers", "claims", "done"}) fs::create_directories(folder_ / part);
  fs::create_directories(scratch());
  const Json card = {{"id", id_},
                     {"host", host_name()},
                     {"pid", ::getpid()},
                     {"pid_space", pid_space()},
                     {"start", process_start(::getpid())}};
  const fs::path draft = scratch() / "card";
  octavo::write_file_atomic(draft, card.dump());
  link_new(draft, folder_ / "workers" / id_);
  heart_ = std::thread([this] { beat(); });
}

WorkFolder::~WorkFolder() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  heart_.join();
  std::error_code none;  // the folder may be gone, which is as good
  for (const fs::path& claim : held_) fs::remove(claim, none);
  fs::remove_all(scratch(), none);
  fs::remove(folder_ / "workers" / id_, none);
}

void WorkFolder::beat() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, kBeat, [this] { return stop_; }))
    ::utimensat(AT_FDCWD, (folder_ / "workers" / id_).c_str(), nullptr, 0);
}

// Of the process that wrote the card. False once and for all.
bool WorkFolder::lives(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));  // open asks the server, stat may not
  struct stat status {};
  if (!file.open() || ::fstat(file.get(), &status) != 0) return false;
  std::string text(kMaxCardBytes, '\0');
  text.resize(
      static_cast<size_t>(std::max<ssize_t>(0, ::read(file.get(), text.data(), text.size()))));
  const std::string source = path.string();
  const Json card = parse_json(text, source, {.max_bytes = kMaxCardBytes, .max_depth = 2});
  const std::string owner = json_string(card, "id", source);
  if (owner == id_) return true;
  bool alive = true;
  const std::string space = pid_space();
  if (!space.empty() && json_string(card, "pid_space", source) == space) {
    alive = process_lives(static_cast<pid_t>(json_int(card, "pid", source)),
                          json_string(card, "start", source));
  } else {
    const int64_t modified = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
    const auto [sign, first] = signs_.try_emplace(owner, LifeSign{modified, seconds_now()});
    if (sign->second.modified_ns != modified) sign->second = {modified, seconds_now()};
    alive = seconds_now() - sign->second.since < takeover_seconds_;
  }
  if (alive) return true;
  std::error_code none;
  if (fs::remove(join_inside(folder_ / "workers", owner), none))
    log_warn(str("data: process ", json_int(card, "pid", source), " on ",
                 printable(json_string(card, "host", source)),
                 " ended before its work: others take it over"));
  fs::remove_all(join_inside(folder_, "tmp-" + owner), none);
  return false;
}

bool WorkFolder::was_replaced() const {
  return fs::exists(folder_) && !fs::exists(folder_ / "workers" / id_);
}

bool WorkFolder::claim(const std::string& item) {
  const fs::path done = folder_ / "done" / item;
  if (fs::exists(done)) return false;
  if (was_replaced())
    fail(ExitCode::kEnvironment, "data", "this process gave no sign of life for ",
         takeover_seconds_, " s, and others took over its work in ", folder_.string(),
         "; run the same command to help again");
  for (uint64_t owners = 0;;) {
    const fs::path claim = folder_ / "claims" / str(item, ".", owners);
    if (link_new(folder_ / "workers" / id_, claim)) {
      held_.insert(claim);
      // It may have been finished and given back in between, or a while ago: an NFS client
      // remembers that a name was not there until the folder is opened.
      const Fd asks_again(::open(done.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!fs::exists(done)) return true;
      held_.erase(claim);
      fs::remove(claim);
      return false;
    }
    if (lives(claim)) return false;
    if (fs::exists(claim)) ++owners;  // else it was given back
  }
}

bool WorkFolder::publish_once(const std::string& item, const Json& result) {
  const std::string payload = result.dump(-1, ' ', false, Json::error_handler_t::replace);
  const fs::path draft = scratch() / ("done-" + item);
  octavo::write_file_atomic(draft, hash_text(payload) + " " + payload + "\n");
  const bool first = link_new(draft, folder_ / "done" / item);
  fsync_path(folder_ / "done");
  fs::remove(draft);
  return first;
}

void WorkFolder::publish(const std::string& item, const Json& result) {
  if (!publish_once(item, result))
    log_warn(str("data: ", item, " was done twice: another process was faster"));
  const std::string prefix = item + ".";
  std::erase_if(held_, [&](const fs::path& claim) {
    return claim.filename().string().starts_with(prefix) && fs::remove(claim);
  });
}

std::optional<Json> WorkFolder::result(const std::string& item) const {
  const fs::path path = folder_ / "done" / item;
  if (!fs::exists(path)) return std::nullopt;
  const std::string text = octavo::read_file(path, kMaxResultBytes);
  const std::string_view line(text);
  if (line.size() < kResultHashDigits + 2 || line.back() != '\n' ||
      line.substr(0, kResultHashDigits) !=
          hash_text(line.substr(kResultHashDigits + 1, line.size() - kResultHashDigits - 2)))
    fail(ExitCode::kDamaged, "data", path.string(), " does not match its hash; delete ",
         folder_.string(), " and prepare the data again");
  return parse_json(line.substr(kResultHashDigits + 1), path.string());
}

std::set<std::string> WorkFolder::done() const {
  return names_in(folder_ / "done");
}

size_t WorkFolder::others() {
  size_t count = 0;
  for (const std::string& name : names_in(folder_ / "workers"))
    if (name != id_ && lives(folder_ / "workers" / name)) ++count;
  return count;
}

void WorkFolder::remove(const fs::path& output) {
  std::error_code none;
  // Under another name first: nobody adds a file to what is being removed.
  std::random_device random;
  const std::string aside = str(kWorkFolderName, ".tmp-");
  fs::rename(output / kWorkFolderName, output / str(aside, ::getpid(), "-", random()), none);
  // A process that was killed while it removed one left it there.
  for (const std::string& name : names_in(output))
    if (name.starts_with(aside)) remove_shared_folder(output / name);
  fsync_path(output);
}

}  // namespace octavo::data
