#include "hub/download.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "hub/answers.h"
#include "hub/digest.h"

namespace octavo::hub {
namespace {

constexpr int kRetries = 3;  // without progress
constexpr uint64_t kProgress = uint64_t{1} << 20;
constexpr double kMegabyte = 1e6;

std::string_view api_folder(Kind kind) {
  return kind == Kind::kModel ? "/api/models/" : "/api/datasets/";
}

// Waits 1, 2, 4 s.
void wait_before_retry(int retry) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1 << (retry - 1));
  while (std::chrono::steady_clock::now() < end && !stop_requested())
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

void say_retry(const std::string& what, const HttpResponse& answer, int retry) {
  log_warn(str("[hub] ", what, ": ", describe(answer), "; try ", retry + 1, " of ", kRetries + 1));
}

// The growing file of a blob.
class Partial {
 public:
  explicit Partial(fs::path path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) io("open");
    size_ = fs::file_size(path_);
  }
  ~Partial() { ::close(fd_); }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  uint64_t size() const { return size_; }
  const fs::path& path() const { return path_; }

  void write_at(uint64_t offset, std::string_view bytes) {
    if (offset != size_) cut(offset);
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) io("write");
      size_ += static_cast<uint64_t>(put);
      bytes.remove_prefix(static_cast<size_t>(put));
    }
  }
  void cut(uint64_t size) {
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) io("truncate");
    size_ = size;
  }

 private:
  [[noreturn]] void io(const char* action) const {
    fail(ExitCode::kEnvironment, "hub", "cannot ", action, " ", path_.string(), ": ",
         std::strerror(errno));
  }
  fs::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

class Fetcher {
 public:
  Fetcher(Http& http, const RepoCache& cache, const std::string& commit,
          const std::vector<RemoteFile>& files)
      : http_(http), cache_(cache), commit_(commit) {
    uint64_t total = 0;
    for (const RemoteFile& file : files) {
      if (cache_.has(commit_, file.name)) continue;
      missing_.push_back(file);
      total += file.size;  // sizes are below 2^50 and files below 2^18: no overflow
    }
    total_ = total;
  }

  void run() {
    if (missing_.empty()) return;
    fs::create_directories(cache_.folder() / "blobs");
    check_space();
    log_info(str("[hub] downloading ", missing_.size(), " files of ", cache_.repo().id, " (",
                 format_bytes(static_cast<double>(total_)), ") from ", http_.endpoint(), " into ",
                 cache_.folder().string()));
    Progress bar("downloading " + cache_.repo().id, static_cast<double>(total_) / kMegabyte, "MB");
    bar_ = &bar;
    for (const RemoteFile& file : missing_) fetch(file);
    bar.finish();
  }

 private:
  void check_space() const {
    uint64_t needed = 0;
    for (const RemoteFile& file : missing_) {
      std::error_code none;
      if (fs::exists(cache_.blob(file.hash), none)) continue;
      const uint64_t there = fs::file_size(cache_.blob(file.hash + ".incomplete"), none);
      needed += none ? file.size : file.size - std::min(there, file.size);
    }
    const uint64_t free = fs::space(cache_.folder()).available;
    if (needed > free)
      fail(ExitCode::kEnvironment, "hub", cache_.repo().id, ": wanted ",
           format_bytes(static_cast<double>(needed)), " of space in ", cache_.root().string(),
           ", found ", format_bytes(static_cast<double>(free)),
           "; make room, or set HF_HUB_CACHE to a folder on another disk");
  }

  void fetch(const RemoteFile& file) {
    const BlobLock lock(cache_.lock(file.hash));
    const fs::path blob = cache_.blob(file.hash);
    std::error_code none;
    const bool there = fs::is_regular_file(blob, none) && fs::file_size(blob, none) == file.size;
    if (!there) {
      // A partial file that was damaged long ago must not make the download fail for ever.
      if (!fetch_and_verify(file)) fetch_and_verify(file);
      fs::rename(cache_.blob(file.hash + ".incomplete"), blob);
      fsync_path(blob.parent_path());
    }
    cache_.link(file.hash, commit_, file.name);
    done_ += file.size;
    show(0, file);
  }

  // False: what was resumed did not have the right hash; it is removed.
  bool fetch_and_verify(const RemoteFile& file) {
    bool resumed = false;
    fs::path path;
    {
      Partial partial(cache_.blob(file.hash + ".incomplete"));
      path = partial.path();
      if (partial.size() > file.size) partial.cut(0);
      resumed = partial.size() > 0;
      if (resumed)
        log_info(
            str("[hub] ", file.name, ": continues at byte ", partial.size(), " of ", file.size));
      receive(file, partial);
    }
    fsync_path(path);
    const std::string found = file.lfs ? sha256_of_file(path) : git_blob_of_file(path);
    if (found == file.hash) return true;
    bar_->clear();
    fs::remove(path);
    if (!resumed)
      fail(
          ExitCode::kDamaged, "hub", cache_.repo().id, ": ", file.name, ": wanted the hash ",
          file.hash, ", found ", found,
          "; the file was removed. Something changed it on the way: try again, or another network");
    log_warn(str("[hub] ", file.name,
                 ": the resumed file has a wrong hash and was removed; it is fetched anew"));
    return false;
  }

  void receive(const RemoteFile& file, Partial& partial) {
    const std::string path =
        str(cache_.repo().kind == Kind::kDataset ? "/datasets/" : "/", cache_.repo().id,
            "/resolve/", commit_, "/", percent_encode(file.name, true));
    const Sink sink = [&](uint64_t offset, std::string_view bytes) -> std::string {
      if (offset + bytes.size() > file.size)
        return str("wanted ", file.size, " bytes, and the server sends more");
      if (offset == 0 && partial.size() > 0) {
        bar_->clear();
        log_warn(str("[hub] ", file.name, ": the server does not resume; it begins anew"));
      }
      partial.write_at(offset, bytes);
      show(partial.size(), file);
      return "";
    };
    for (int retry = 0; partial.size() < file.size;) {
      const uint64_t before = partial.size();
      HttpResponse answer = http_.get(path, before, sink);
      if (partial.size() == file.size) break;
      if (answer.good()) answer.problem = "the connection ended too early";
      bar_->clear();
      if (partial.size() >= before + kProgress) retry = 0;
      if (!answer.may_pass() || ++retry > kRetries) fail_answer(answer, cache_, http_, file.name);
      say_retry(str(file.name, " at byte ", partial.size(), " of ", file.size), answer, retry);
      wait_before_retry(retry);
    }
  }

  void show(uint64_t of_this, const RemoteFile& file) {
    bar_->set(static_cast<double>(done_ + of_this) / kMegabyte, file.name);
  }

  Http& http_;
  const RepoCache& cache_;
  std::string commit_;
  std::vector<RemoteFile> missing_;
  uint64_t total_ = 0, done_ = 0;
  Progress* bar_ = nullptr;
};

}  // namespace

Listing fetch_listing(Http& http, const RepoCache& cache) {
  const Repo& repo = cache.repo();
  const std::string path = str(api_folder(repo.kind), repo.id, "/revision/",
                               percent_encode(repo.revision, false), "?blobs=true");
  for (int retry = 0;;) {
    std::string body;
    const HttpResponse answer =
        http.get(path, 0, [&](uint64_t, std::string_view bytes) -> std::string {
          if (body.size() + bytes.size() > kMaxListingBytes)
            return str("wanted a list of files of at most ", kMaxListingBytes,
                       " bytes, found more");
          body += bytes;
          return "";
        });
    if (answer.good()) return parse_listing(parse_json(body, repo.id + " (hub)"), repo.id);
    // Retries do not make a mistyped path right; a hub that answers may do so better the next time.
    const bool mistyped = !answer.problem.empty() && may_be_path(cache);
    if (!answer.may_pass() || mistyped || ++retry > kRetries) fail_answer(answer, cache, http, "");
    say_retry("the list of files of " + repo.id, answer, retry);
    wait_before_retry(retry);
  }
}

void fetch_files(Http& http, const RepoCache& cache, const std::string& commit,
                 const std::vector<RemoteFile>& files) {
  Fetcher(http, cache, commit, files).run();
}

}  // namespace octavo::hub
