#include "data/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/dataset_index.h"

namespace octavo::data {
namespace {

constexpr size_t kMaxJournalBytes = size_t{1} << 30;
constexpr size_t kHashDigits = 32;

FinishedShard parse_entry(const Json& json, const std::string& source) {
  const Json& next = json_field(json, "next", Json::value_t::object, source);
  const auto number = [&](const char* name) {
    return static_cast<uint64_t>(json_int(next, name, source));
  };
  return {
      .split = json_string(json, "split", source),
      .shard = shard_from_json(json_field(json, "shard", Json::value_t::object, source), source),
      .next = {.file = number("file"), .offset = number("offset"), .line = number("line")},
      .skip = number("skip"),
      .tally = json.contains("tally") ? json["tally"] : Json()};
}

}  // namespace

Journal::Journal(const fs::path& folder, const std::string& plan)
    : folder_(folder), path_(folder / kJournalName) {
  const uint64_t kept = fs::exists(path_) ? load(plan) : 0;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(kept)) != 0)
    fail(ExitCode::kEnvironment, "data", "cannot write ", path_.string(), ": ",
         std::strerror(errno), "; check the folder's rights");
  if (kept == 0) write_line(Json{{"plan", plan}}.dump());
  fsync_path(folder_);
}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
}

uint64_t Journal::load(const std::string& plan) {
  const std::string text = octavo::read_file(path_, kMaxJournalBytes);
  uint64_t kept = 0;
  for (size_t end; (end = text.find('\n', kept)) != std::string::npos; kept = end + 1) {
    const std::string_view line(text.data() + kept, end - kept);
    if (line.size() < kHashDigits + 1) break;
    const std::string_view payload = line.substr(kHashDigits + 1);
    if (line.substr(0, kHashDigits) != hash_text(payload)) break;
    const Json json = parse_json(payload, path_.string());
    if (kept == 0) {
      if (json_string(json, "plan", path_.string()) == plan) continue;
      log_warn(str("data: ", folder_.string(), " holds an interrupted preparation of other inputs ",
                   "or options: starting over"));
      return 0;
    }
    FinishedShard entry = parse_entry(json, path_.string());
    if (!shard_is_intact(folder_, entry.shard)) {
      log_warn(str("data: ", entry.shard.name,
                   " is not as it was finished: made again, with all after it"));
      break;
    }
    finished_.push_back(std::move(entry));
  }
  return kept;
}

void Journal::append(const FinishedShard& entry) {
  Json json = {{"split", entry.split},
               {"shard", shard_to_json(entry.shard)},
               {"next",
                {{"file", entry.next.file},
                 {"offset", entry.next.offset},
                 {"line", entry.next.line},
                 {"skip", entry.skip}}}};
  if (!tally_.is_null()) json["tally"] = tally_;
  write_line(json.dump());
  finished_.push_back(entry);
}

void Journal::write_line(const std::string& payload) {
  const std::string line = hash_text(payload) + " " + payload + "\n";
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t put = ::write(fd_, line.data() + done, line.size() - done);
    if (put < 0 && errno != EINTR) break;
    if (put > 0) done += static_cast<size_t>(put);
  }
  if (done < line.size() || ::fdatasync(fd_) != 0)
    fail(ExitCode::kEnvironment, "data", "cannot write ", path_.string(), ": ",
         std::strerror(errno), "; free some space and run the same command to continue");
}

void Journal::remove(const fs::path& folder) {
  if (fs::remove(folder / kJournalName)) fsync_path(folder);
}

}  // namespace octavo::data
