#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/failure.h"
#include "base/printable.h"

namespace octavo {
namespace {

[[noreturn]] void fail_io(std::string_view action, const fs::path& path) {
  const int problem = errno;
  fail_as(failure_of_errno(problem), "base", "cannot ", action, " ", path.string(), ": ",
          std::strerror(problem));
}

std::string hex(const XXH128_hash_t& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

class Descriptor {
 public:
  // O_NONBLOCK: opening a pipe put in a file's place must fail, not wait for its writer.
  Descriptor(const fs::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666)) {
    if (fd_ < 0) fail_io("open", path);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

size_t regular_file_size(int fd, const fs::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_io("examine", path);
  if (!S_ISREG(status.st_mode))
    fail(ExitCode::kUsage, "base", "wanted a regular file, found something else at ",
         path.string());
  return static_cast<size_t>(status.st_size);
}

}  // namespace

std::string hash_bytes(std::span<const std::byte> bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string hash_text(std::string_view text) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

std::string hash_file(const fs::path& path, const std::function<void()>& each_part) {
  const Descriptor file(path, O_RDONLY);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> buffer(size_t{4} << 20);
  for (;;) {
    if (each_part) each_part();
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path);
    if (got == 0) break;
    XXH3_128bits_update(state.get(), buffer.data(), static_cast<size_t>(got));
  }
  return hex(XXH3_128bits_digest(state.get()));
}

std::string read_file(const fs::path& path, size_t max_bytes) {
  const Descriptor file(path, O_RDONLY);
  const size_t size = regular_file_size(file.get(), path);
  if (size > max_bytes)
    fail(ExitCode::kDamaged, "base", "wanted at most ", max_bytes, " bytes in ", path.string(),
         ", found ", size);
  std::string content(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), content.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

void fsync_path(const fs::path& path) {
  const Descriptor file(path, O_RDONLY);
  if (::fsync(file.get()) != 0) fail_io("fsync", path);
}

void write_file_atomic(const fs::path& path, std::string_view content) {
  const fs::path temporary = path.string() + ".tmp-" + std::to_string(::getpid());
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  FileWriter writer(temporary, path);
  writer.write(content);
  writer.close();
  // Opened before the name can be seen: whoever waits for this file may rename its folder then.
  const Descriptor folder(parent, O_RDONLY);
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail_io("rename to", path);
  if (::fsync(folder.get()) != 0) fail_io("fsync", parent);
}

FileWriter::FileWriter(const fs::path& path, const fs::path& named)
    : path_(named.empty() ? path : named),
      fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail_io("create", path_);
  hash_state_ = XXH3_createState();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(hash_state_));
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
  XXH3_freeState(static_cast<XXH3_state_t*>(hash_state_));
}

void FileWriter::write(std::span<const std::byte> bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(hash_state_), bytes.data(), bytes.size());
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_io("write", path_);
    done += static_cast<size_t>(put);
  }
  size_ += bytes.size();
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void FileWriter::pad_to(size_t multiple) {
  static constexpr std::byte kZeros[4096] = {};
  size_t missing = (multiple - size_ % multiple) % multiple;
  while (missing > 0) {
    const size_t part = std::min(missing, sizeof kZeros);
    write(std::span(kZeros, part));
    missing -= part;
  }
}

std::string FileWriter::close() {
  if (::fsync(fd_) != 0) fail_io("fsync", path_);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail_io("close", path_);
  return hex(XXH3_128bits_digest(static_cast<XXH3_state_t*>(hash_state_)));
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const Descriptor file(path, O_RDONLY);
  size_ = regular_file_size(file.get(), path);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail_io("map", path);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  // Advice: when the kernel does not take it, the pages stay, and nothing is wrong.
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

fs::path join_inside(const fs::path& folder, std::string_view name) {
  const auto refuse = [&](const char* why) {
    fail(ExitCode::kDamaged, "base", "file name '", printable(name), "' refused: ", why,
         "; wanted a name inside ", folder.string());
  };
  if (name.empty()) refuse("it is empty");
  if (name.size() > 1024) refuse("it is longer than 1024 bytes");
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) refuse("it has a control character");
  const fs::path relative{std::string(name)};
  if (relative.is_absolute()) refuse("it is absolute");
  for (const auto& part : relative)
    if (part == "..") refuse("it leaves the folder");
  return folder / relative;
}

}  // namespace octavo
