#include "monitor/record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace octavo::monitor {

RecordFile::RecordFile(std::string what, fs::path path)
    : what_(std::move(what)), path_(std::move(path)) {}

bool RecordFile::failed(const std::string& why) {
  if (failures_++ == 0)
    log_warn(str(what_, " cannot be written to ", path_.string(), " (", why,
                 "); training continues without, and receipt.json says how many are missing"));
  return false;
}

bool RecordFile::open() {
  std::error_code error;
  fs::create_directories(path_.parent_path(), error);
  if (error) return failed(error.message());
  fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd_.open()) return failed(std::strerror(errno));
  const off_t end = ::lseek(fd_.get(), 0, SEEK_END);
  size_ = end > 0 ? static_cast<uint64_t>(end) : 0;
  return true;
}

bool RecordFile::append(std::string_view bytes) {
  if (!fd_.open() && !open()) return false;
  if (dirty_ && ::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0)
    return failed(std::strerror(errno));
  dirty_ = false;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::write(fd_.get(), bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const std::string why = wrote < 0 ? std::strerror(errno) : "nothing was taken";
      dirty_ = done > 0 && ::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0;
      return failed(why);
    }
    done += static_cast<size_t>(wrote);
  }
  size_ += bytes.size();
  return true;
}

}  // namespace octavo::monitor
