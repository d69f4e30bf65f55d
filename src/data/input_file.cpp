#include "data/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "data/s3_input.h"

namespace octavo::data {
namespace {

class LocalInput : public InputFile {
 public:
  explicit LocalInput(const Source& source)
      : name_(source.path.string()),
        bytes_(source.bytes),
        fd_(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (fd_ < 0 || ::fstat(fd_, &status) != 0) {
      const int error = errno;
      if (fd_ >= 0) ::close(fd_);
      fail(ExitCode::kEnvironment, "data", "cannot open ", name_, ": ", std::strerror(error),
           "; check its rights");
    }
    const int64_t modified = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
    if (static_cast<uint64_t>(status.st_size) != bytes_ || modified != source.modified_ns) {
      ::close(fd_);
      fail(ExitCode::kUsage, "data", name_, " changed while it was being prepared: wanted ", bytes_,
           " bytes, found ", status.st_size,
           static_cast<uint64_t>(status.st_size) == bytes_ ? " of another date" : "",
           "; run the command again");
    }
  }
  ~LocalInput() override { ::close(fd_); }
  LocalInput(const LocalInput&) = delete;
  LocalInput& operator=(const LocalInput&) = delete;

  std::string read(uint64_t offset, uint64_t bytes) const override {
    std::string text(std::min(bytes, bytes_ - std::min(offset, bytes_)), '\0');
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t got =
          ::pread(fd_, text.data() + done, text.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        fail(ExitCode::kEnvironment, "data", "cannot read ", name_, " at byte ", offset + done,
             ": ", got < 0 ? std::strerror(errno) : "it ends there",
             "; run the command again when the file is whole");
      done += static_cast<size_t>(got);
    }
    return text;
  }

 private:
  std::string name_;
  uint64_t bytes_;
  int fd_;
};

}  // namespace

std::unique_ptr<InputFile> open_input(const Source& source) {
  if (is_s3_address(source.path.string())) return open_s3(source);
  return std::make_unique<LocalInput>(source);
}

void check_unchanged(const Source& source) {
  open_input(source);
}

}  // namespace octavo::data
