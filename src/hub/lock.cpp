#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "hub/download.h"

namespace octavo::hub {
namespace {

constexpr std::chrono::milliseconds kPoll{100};

// Whoever held the lock may have removed the file: then a lock on it excludes nobody.
bool still_named(int fd, const fs::path& path) {
  struct stat held {
  }, named{};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

BlobLock::BlobLock(const fs::path& path) {
  fs::create_directories(path.parent_path());
  bool said = false;
  for (;;) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0)
      fail(ExitCode::kEnvironment, "hub", "cannot open the lock ", path.string(), ": ",
           std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      if (still_named(fd_, path)) return;
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      log_warn(str("[hub] ", path.string(), ": this file system has no locks (",
                   std::strerror(errno), "); start one download at a time"));
      return;
    } else if (!said) {
      log_info("[hub] another process is downloading this file; waiting for it");
      said = true;
    }
    ::close(std::exchange(fd_, -1));
    if (stop_requested())
      fail(ExitCode::kStopped, "hub", "stopped by ", stop_reason(), " while waiting");
    std::this_thread::sleep_for(kPoll);
  }
}

BlobLock::~BlobLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace octavo::hub
