#include "data/part_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace octavo::data {
namespace {

constexpr std::string_view kTemporary = "writing-", kClaimsFolder = "claims";
constexpr uint64_t kFolders = 256, kWays = 4;
constexpr auto kAbandoned = std::chrono::hours(1);
constexpr uint64_t kClaims = 4096;  // files for all parts: two that share one wait for each other
constexpr auto kPatience = std::chrono::seconds(2);

// In front of the content. Of this machine alone: its own byte order will do.
struct Head {
  std::array<char, 8> magic{'O', 'C', 'T', 'P', 'A', 'R', 'T', '1'};
  uint64_t key_low = 0, key_high = 0;  // of the whole key: a place has many
  uint64_t size = 0, hash = 0;         // of the content
  bool operator==(const Head&) const = default;
};

XXH128_hash_t hash_of(std::string_view key) {
  return XXH3_128bits(key.data(), key.size());
}

// A larger part is kept in pieces, each in a place of its own.
std::string piece_key(std::string_view key, uint64_t begin) {
  return begin == 0 ? std::string(key) : str(key, '\0', begin);
}

Head head_of(std::string_view key, std::span<const std::byte> content) {
  const XXH128_hash_t hash = hash_of(key);
  return {.key_low = hash.low64,
          .key_high = hash.high64,
          .size = content.size(),
          .hash = XXH3_64bits(content.data(), content.size())};
}

bool read_all(int fd, void* to, size_t size) {
  auto* next = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::read(fd, next, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, size_t size) {
  const auto* next = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t sent = ::write(fd, next, size);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

// The number of a file "7.large" or "7.small"; nothing for other names.
std::optional<uint64_t> number_of(const std::string& name, std::string_view kind) {
  if (!name.ends_with(kind)) return std::nullopt;
  uint64_t number = 0;
  const char* const end = name.data() + name.size() - kind.size();
  const auto [stop, error] = std::from_chars(name.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

// Whether this process has not cleaned the folder for this limit. Each split of each source opens
// the same one, and to walk through it takes a request for each part on a network's file system.
bool is_to_clean(const fs::path& folder, uint64_t limit) {
  static std::mutex mutex;
  static std::map<std::string, uint64_t> cleaned;
  const std::lock_guard lock(mutex);
  const auto [last, is_first] = cleaned.try_emplace(folder.string(), limit);
  return is_first || std::exchange(last->second, limit) != limit;
}

}  // namespace

PartCache::PartCache(fs::path folder, uint64_t limit)
    : folder_(std::move(folder)),
      large_((limit - limit / 20) / (kLargePart + sizeof(Head))),
      small_(limit / 20 / (kSmallPart + sizeof(Head))) {
  if (small_ == 0) large_ = 0;
  std::error_code error;
  fs::create_directories(folder_ / kClaimsFolder, error);
  if (error) {
    log_warn(str("data_cache: ", folder_.string(), " cannot be made (", error.message(),
                 "): what is read from the object store is not kept"));
    large_ = small_ = 0;
    return;
  }
  if (is_to_clean(folder_, limit)) clean();
}

// What a killed process left, and places that a smaller limit no longer has.
void PartCache::clean() const {
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder_, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    const auto large = number_of(name, ".large"), small = number_of(name, ".small");
    const bool beyond = (large && *large >= large_) || (small && *small >= small_);
    const bool left = name.starts_with(kTemporary) &&
                      fs::file_time_type::clock::now() - it->last_write_time(ignored) > kAbandoned;
    if (beyond || left) fs::remove(it->path(), ignored);
  }
}

std::vector<fs::path> PartCache::places_of(std::string_view key, uint64_t size) const {
  const bool small = size <= kSmallPart;
  const uint64_t places = small ? small_ : large_, ways = std::min(kWays, places);
  std::vector<fs::path> paths;
  if (places == 0) return paths;
  const uint64_t first = hash_of(key).low64 % (places / ways) * ways;
  for (uint64_t place = first; place < first + ways; ++place)
    paths.push_back(folder_ / std::to_string(first % kFolders) /
                    str(place, small ? ".small" : ".large"));
  return paths;
}

std::optional<Bytes> PartCache::find(std::string_view key, uint64_t size) const {
  Bytes content(size);
  for (uint64_t begin = 0; begin < size; begin += kLargePart) {
    const auto piece = content.all().subspan(begin, std::min(kLargePart, size - begin));
    if (!find_piece(piece_key(key, begin), piece)) return std::nullopt;
  }
  return content;
}

bool PartCache::find_piece(std::string_view key, std::span<std::byte> content) const {
  const Head wanted = head_of(key, {});
  for (const fs::path& path : places_of(key, content.size())) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    Head head;
    if (!fd.open() || !read_all(fd.get(), &head, sizeof head) || head.size != content.size() ||
        head.key_low != wanted.key_low || head.key_high != wanted.key_high)
      continue;
    if (read_all(fd.get(), content.data(), content.size()) && head == head_of(key, content))
      return true;
  }
  return false;
}

Fd PartCache::claim(std::string_view key) const {
  if (large_ == 0) return Fd();
  const fs::path path = folder_ / kClaimsFolder / std::to_string(hash_of(key).low64 % kClaims);
  Fd fd(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (fd.open() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    const bool waits = errno == EWOULDBLOCK || errno == EINTR;
    if (!waits || std::chrono::steady_clock::now() > until) return Fd();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return fd;
}

// The one that is free, or else that was written first.
fs::path PartCache::place_for(const std::vector<fs::path>& places) {
  const fs::path* oldest = &places.front();
  auto written = fs::file_time_type::max();
  for (const fs::path& place : places) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(place, error);
    if (error) return place;
    if (time >= written) continue;
    written = time;
    oldest = &place;
  }
  return *oldest;
}

void PartCache::keep(std::string_view key, std::span<const std::byte> content) const {
  for (uint64_t begin = 0; begin < content.size(); begin += kLargePart)
    keep_piece(piece_key(key, begin),
               content.subspan(begin, std::min(kLargePart, content.size() - begin)));
}

void PartCache::keep_piece(std::string_view key, std::span<const std::byte> content) const {
  const std::vector<fs::path> places = places_of(key, content.size());
  if (places.empty()) return;
  const fs::path path = place_for(places);
  static std::atomic<uint64_t> number{0};
  const fs::path temporary = folder_ / str(kTemporary, ::getpid(), "-", number++);
  const Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const Head head = head_of(key, content);
  std::error_code error;
  if (fd.open()) fs::create_directory(path.parent_path(), error);
  if (fd.open() && write_all(fd.get(), &head, sizeof head) &&
      write_all(fd.get(), content.data(), content.size()) &&
      ::rename(temporary.c_str(), path.c_str()) == 0)
    return;
  log_warn_once(str("data_cache: ", folder_.string(), " cannot be written (", std::strerror(errno),
                    "): parts that are read from the object store are not kept"));
  fs::remove(temporary, error);
}

}  // namespace octavo::data
