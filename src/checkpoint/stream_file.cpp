#include "checkpoint/stream_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/failure.h"
#include "base/log.h"

// The whole of xxhash in this file: liboctavo_core does not link the library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace octavo::checkpoint {
namespace {

constexpr size_t kBlock = size_t{8} << 20;
constexpr size_t kDiskPage =
    4096;  // O_DIRECT wants addresses, offsets and sizes in multiples of it

struct FreeDeleter {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<std::byte, FreeDeleter>;

Block make_block() {
  Block block(static_cast<std::byte*>(std::aligned_alloc(kDiskPage, kBlock)));
  if (block == nullptr)
    fail(ExitCode::kEnvironment, "checkpoint", "no memory for a block of ", kBlock, " bytes");
  return block;
}

XXH3_state_t* as_xxh(void* state) {
  return static_cast<XXH3_state_t*>(state);
}

}  // namespace

RunningHash::RunningHash() : state_(XXH3_createState()) {
  XXH3_128bits_reset(as_xxh(state_));
}

RunningHash::~RunningHash() {
  XXH3_freeState(as_xxh(state_));
}

void RunningHash::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(as_xxh(state_), bytes.data(), bytes.size());
}

std::string RunningHash::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(as_xxh(state_));
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

// The file, some blocks, and the thread that writes the full ones. The thread starts with the first
// full block: small files need none.
class StreamFile::Disk {
 public:
  explicit Disk(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail_errno("create", errno);
    blocks_[0] = make_block();
  }
  ~Disk() {
    stop();
    if (fd_ >= 0) ::close(fd_);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  std::byte* first_block() { return blocks_[0].get(); }

  // Takes a full block and gives an empty one, once there is one.
  std::byte* exchange(std::byte* full) {
    if (!thread_.joinable()) {
      for (size_t i = 1; i < blocks_.size(); ++i) {
        blocks_[i] = make_block();
        empty_.push_back(blocks_[i].get());
      }
      use_direct(true);
      thread_ = std::thread([this] { run(); });
    }
    std::unique_lock lock(mutex_);
    full_.push_back(full);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !empty_.empty(); });
    if (error_ != 0) fail_errno("write", error_);
    std::byte* empty = empty_.back();
    empty_.pop_back();
    return empty;
  }

  // The last part, of any size; then all of the file is durable.
  void finish(const std::byte* tail, size_t size) {
    stop();
    if (error_ != 0) fail_errno("write", error_);
    use_direct(false);
    if (const int error = put(tail, size); error != 0) fail_errno("write", error);
    if (::fsync(fd_) != 0) fail_errno("fsync", errno);
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) fail_errno("close", errno);
  }

 private:
  [[noreturn]] void fail_errno(const char* action, int error) const {
    fail_as(failure_of_errno(error), "checkpoint", "cannot ", action, " ", path_.string(), ": ",
            std::strerror(error));
  }

  void use_direct(bool wanted) {
    const int flags = ::fcntl(fd_, F_GETFL);
    const int changed = wanted ? flags | O_DIRECT : flags & ~O_DIRECT;
    direct_ = wanted && ::fcntl(fd_, F_SETFL, changed) == 0;
    if (!wanted) ::fcntl(fd_, F_SETFL, changed);
    if (wanted && !direct_) say_buffered();
  }

  void say_buffered() const {
    log_info(str("checkpoint: the file system of ", path_.parent_path().string(),
                 " takes no direct writes; ", path_.filename().string(),
                 " goes through the page cache"));
  }

  // 0 or an errno.
  int put(const std::byte* bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
      const ssize_t written = ::write(fd_, bytes + done, size - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EINVAL && direct_) {
        use_direct(false);
        say_buffered();
        continue;
      }
      if (written < 0) return errno;
      done += static_cast<size_t>(written);
      // What follows a short write is no longer aligned.
      if (direct_ && done % kDiskPage != 0) use_direct(false);
    }
    return 0;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !full_.empty() || stopping_; });
      if (full_.empty()) return;
      std::byte* block = full_.front();
      full_.pop_front();
      const bool failed = error_ != 0;
      lock.unlock();
      const int error = failed ? 0 : put(block, kBlock);
      lock.lock();
      empty_.push_back(block);
      if (error != 0) error_ = error;
      changed_.notify_all();
    }
  }

  void stop() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  fs::path path_;
  int fd_;
  std::array<Block, 4> blocks_;
  bool direct_ = false;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::byte*> full_;  // to be written, in order
  std::vector<std::byte*> empty_;
  bool stopping_ = false;
  int error_ = 0;
};

StreamFile::StreamFile(const fs::path& path)
    : disk_(std::make_unique<Disk>(path)), block_(disk_->first_block()) {}

StreamFile::~StreamFile() = default;

void StreamFile::hand_over() {
  block_ = disk_->exchange(block_);
  filled_ = 0;
}

void StreamFile::write(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), kBlock - filled_);
    std::memcpy(block_ + filled_, bytes.data(), part);
    hash_.add({block_ + filled_, part});
    filled_ += part;
    bytes = bytes.subspan(part);
    if (filled_ == kBlock) hand_over();
  }
}

void StreamFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

std::string StreamFile::close() {
  disk_->finish(block_, filled_);
  return hash_.digest();
}

}  // namespace octavo::checkpoint
