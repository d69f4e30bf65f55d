#include "data/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"

namespace octavo::data {

FolderLock::FolderLock(const fs::path& folder, Kind kind)
    : file_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  bool said = false;
  if (!file_.open())
    fail(ExitCode::kEnvironment, "data", "wanted to open ", folder.string(), ": ",
         std::strerror(errno));
  while (::flock(file_.get(), (kind == kTogether ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    const int error = errno;
    if (kind != kAlone && (error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP)) {
      log_info(str("data: ", folder.string(), " is on a file system without locks: a process ",
                   "without --shared would not wait for this one"));
      return;
    }
    if (error != EWOULDBLOCK && error != EINTR)
      fail(ExitCode::kEnvironment, "data", "wanted ", folder.string(),
           " for this process alone: ", std::strerror(error));
    if (!said) log_info(str("data: another process prepares ", folder.string(), "; waiting"));
    said = true;
    if (stop_requested())
      fail(ExitCode::kStopped, "data", "stopped by ", stop_reason(), " while another process ",
           "prepared ", folder.string(), "; run the same command to continue");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace octavo::data
