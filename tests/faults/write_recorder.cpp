// Loaded before a program (LD_PRELOAD), writes down what it does to the files below
// OCTAVO_RECORD_ROOT, in order, into OCTAVO_RECORD_LOG: what replay.py makes crashes of.
// With OCTAVO_RECORD_NO_EXCHANGE the file system seems unable to exchange two names.
//
// A record: u32 length of the rest, u8 kind, u32 length of the first text, the text, the same of a
// second, then data. Texts are paths relative to the root. One lock around each call and its record
// makes the order that of the file system.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

enum class Kind : uint8_t {
  kCreate = 1,
  kWrite,     // data: u64 offset, bytes
  kTruncate,  // data: u64 size
  kSync,
  kRename,
  kExchange,
  kMakeFolder,
  kRemove,
  kRemoveFolder,
  kSymlink,  // first: what it says, second: its name
  kLink,
  kMark,  // first: what the program said
};

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

class Recorder {
 public:
  Recorder() {
    const char* root = std::getenv("OCTAVO_RECORD_ROOT");
    const char* log = std::getenv("OCTAVO_RECORD_LOG");
    if (root == nullptr || log == nullptr) return;
    root_ = std::string(root) + "/";
    static const auto open_real = real<int (*)(const char*, int, ...)>("open");
    log_ = open_real(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }

  // Relative to the root; "" for what is elsewhere. The folder may be below one that is open.
  std::string place(int folder, const char* path) const {
    if (log_ < 0 || path == nullptr) return "";
    std::string whole = path;
    if (path[0] != '/')
      whole = (folder == AT_FDCWD ? std::filesystem::current_path().string() : path_of(folder)) +
              "/" + whole;
    whole = std::filesystem::path(whole).lexically_normal().string();
    if (whole.ends_with('/')) whole.pop_back();
    if (whole + "/" == root_) return ".";
    return whole.starts_with(root_) ? whole.substr(root_.size()) : "";
  }

  static std::string path_of(int fd) {
    char name[4096];
    const ssize_t size =
        ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
    return size <= 0 ? "" : std::string(name, static_cast<size_t>(size));
  }

  void note(Kind kind, const std::string& first, const std::string& second = "",
            const std::string& data = "") const {
    if (log_ < 0 || first.empty()) return;
    std::string record(1, static_cast<char>(kind));
    for (const std::string* text : {&first, &second}) {
      add_number(record, static_cast<uint32_t>(text->size()));
      record += *text;
    }
    record += data;
    std::string length;
    add_number(length, static_cast<uint32_t>(record.size()));
    record = length + record;
    static const auto write_real = real<ssize_t (*)(int, const void*, size_t)>("write");
    if (write_real(log_, record.data(), record.size()) != static_cast<ssize_t>(record.size()))
      std::abort();
  }

  template <typename Number>
  static void add_number(std::string& text, Number number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
  }

  std::recursive_mutex mutex;

 private:
  std::string root_;
  int log_ = -1;
};

Recorder& recorder() {
  static auto* const kept = new Recorder;  // never destroyed: files are closed after main
  return *kept;
}

// The call and its record as one.
#define RECORDING const std::lock_guard lock(recorder().mutex)

int open_and_note(int folder, const char* path, int flags, mode_t mode) {
  RECORDING;
  const std::string place = recorder().place(folder, path);
  static const auto openat_real = real<int (*)(int, const char*, int, ...)>("openat");
  struct stat status {};
  const bool existed = !place.empty() && ::fstatat(folder, path, &status, 0) == 0;
  const int fd = openat_real(folder, path, flags, mode);
  if (fd < 0 || place.empty()) return fd;
  if (!existed && (flags & O_CREAT) != 0) recorder().note(Kind::kCreate, place);
  if (existed && (flags & O_TRUNC) != 0)
    recorder().note(Kind::kTruncate, place, "", std::string(8, '\0'));
  return fd;
}

void note_write(int fd, uint64_t offset, const void* bytes, ssize_t written) {
  if (written <= 0) return;
  const std::string place = recorder().place(AT_FDCWD, Recorder::path_of(fd).c_str());
  if (place.empty()) return;
  std::string data;
  Recorder::add_number(data, offset);
  data.append(static_cast<const char*>(bytes), static_cast<size_t>(written));
  recorder().note(Kind::kWrite, place, "", data);
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

int sync_and_note(const char* name, int fd) {
  RECORDING;
  const int result = real<int (*)(int)>(name)(fd);
  if (result == 0)
    recorder().note(Kind::kSync, recorder().place(AT_FDCWD, Recorder::path_of(fd).c_str()));
  return result;
}

int rename_and_note(int from_folder, const char* from, int to_folder, const char* to,
                    unsigned flags) {
  RECORDING;
  static const auto rename_real =
      real<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  static const bool exchanges = std::getenv("OCTAVO_RECORD_NO_EXCHANGE") == nullptr;
  if ((flags & RENAME_EXCHANGE) != 0 && !exchanges) {
    errno = EINVAL;
    return -1;
  }
  const int result = rename_real(from_folder, from, to_folder, to, flags);
  if (result == 0)
    recorder().note((flags & RENAME_EXCHANGE) != 0 ? Kind::kExchange : Kind::kRename,
                    recorder().place(from_folder, from), recorder().place(to_folder, to));
  return result;
}

int remove_and_note(int folder, const char* path, int flags) {
  RECORDING;
  const std::string place = recorder().place(folder, path);
  static const auto unlinkat_real = real<int (*)(int, const char*, int)>("unlinkat");
  const int result = unlinkat_real(folder, path, flags);
  if (result == 0)
    recorder().note((flags & AT_REMOVEDIR) != 0 ? Kind::kRemoveFolder : Kind::kRemove, place);
  return result;
}

}  // namespace

extern "C" {

#define OCTAVO_EXPORT __attribute__((visibility("default")))

// What the program has to say: found by its name.
OCTAVO_EXPORT void octavo_record_mark(const char* text) {
  RECORDING;
  recorder().note(Kind::kMark, text);
}

#define OPEN_LIKE(name)                                      \
  OCTAVO_EXPORT int name(const char* path, int flags, ...) { \
    va_list arguments;                                       \
    va_start(arguments, flags);                              \
    const mode_t mode = mode_of(flags, arguments);           \
    va_end(arguments);                                       \
    return open_and_note(AT_FDCWD, path, flags, mode);       \
  }
OPEN_LIKE(open)
OPEN_LIKE(open64)

#define OPENAT_LIKE(name)                                                \
  OCTAVO_EXPORT int name(int folder, const char* path, int flags, ...) { \
    va_list arguments;                                                   \
    va_start(arguments, flags);                                          \
    const mode_t mode = mode_of(flags, arguments);                       \
    va_end(arguments);                                                   \
    return open_and_note(folder, path, flags, mode);                     \
  }
OPENAT_LIKE(openat)
OPENAT_LIKE(openat64)

OCTAVO_EXPORT int creat(const char* path, mode_t mode) {
  return open_and_note(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

OCTAVO_EXPORT ssize_t write(int fd, const void* bytes, size_t size) {
  RECORDING;
  static const auto write_real = real<ssize_t (*)(int, const void*, size_t)>("write");
  const off_t before = ::lseek(fd, 0, SEEK_CUR);
  const ssize_t written = write_real(fd, bytes, size);
  if (before >= 0) note_write(fd, static_cast<uint64_t>(before), bytes, written);
  return written;
}

OCTAVO_EXPORT ssize_t writev(int fd, const struct iovec* parts, int count) {
  RECORDING;  // one after the other: the same bytes, and each of them recorded
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t written = write(fd, parts[i].iov_base, parts[i].iov_len);
    if (written < 0) return all > 0 ? all : written;
    all += written;
    if (static_cast<size_t>(written) < parts[i].iov_len) break;
  }
  return all;
}

#define PWRITE_LIKE(name)                                                                        \
  OCTAVO_EXPORT ssize_t name(int fd, const void* bytes, size_t size, off_t offset) {             \
    RECORDING;                                                                                   \
    static const auto write_real = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite"); \
    const ssize_t written = write_real(fd, bytes, size, offset);                                 \
    note_write(fd, static_cast<uint64_t>(offset), bytes, written);                               \
    return written;                                                                              \
  }
PWRITE_LIKE(pwrite)
PWRITE_LIKE(pwrite64)

#define TRUNCATE_LIKE(name)                                                                       \
  OCTAVO_EXPORT int name(int fd, off_t size) noexcept {                                           \
    RECORDING;                                                                                    \
    static const auto truncate_real = real<int (*)(int, off_t)>("ftruncate");                     \
    const int result = truncate_real(fd, size);                                                   \
    std::string data;                                                                             \
    Recorder::add_number(data, static_cast<uint64_t>(size));                                      \
    if (result == 0)                                                                              \
      recorder().note(Kind::kTruncate, recorder().place(AT_FDCWD, Recorder::path_of(fd).c_str()), \
                      "", data);                                                                  \
    return result;                                                                                \
  }
TRUNCATE_LIKE(ftruncate)
TRUNCATE_LIKE(ftruncate64)

OCTAVO_EXPORT int fsync(int fd) {
  return sync_and_note("fsync", fd);
}
OCTAVO_EXPORT int fdatasync(int fd) {
  return sync_and_note("fdatasync", fd);
}

OCTAVO_EXPORT int rename(const char* from, const char* to) noexcept {
  return rename_and_note(AT_FDCWD, from, AT_FDCWD, to, 0);
}
OCTAVO_EXPORT int renameat(int from_folder, const char* from, int to_folder,
                           const char* to) noexcept {
  return rename_and_note(from_folder, from, to_folder, to, 0);
}
OCTAVO_EXPORT int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                            unsigned flags) noexcept {
  return rename_and_note(from_folder, from, to_folder, to, flags);
}

OCTAVO_EXPORT int mkdir(const char* path, mode_t mode) noexcept {
  RECORDING;
  static const auto mkdir_real = real<int (*)(const char*, mode_t)>("mkdir");
  const int result = mkdir_real(path, mode);
  if (result == 0) recorder().note(Kind::kMakeFolder, recorder().place(AT_FDCWD, path));
  return result;
}

OCTAVO_EXPORT int unlink(const char* path) noexcept {
  return remove_and_note(AT_FDCWD, path, 0);
}
OCTAVO_EXPORT int rmdir(const char* path) noexcept {
  return remove_and_note(AT_FDCWD, path, AT_REMOVEDIR);
}
OCTAVO_EXPORT int unlinkat(int folder, const char* path, int flags) noexcept {
  return remove_and_note(folder, path, flags);
}
OCTAVO_EXPORT int remove(const char* path) noexcept {
  struct stat status {};
  const bool folder = ::lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return remove_and_note(AT_FDCWD, path, folder ? AT_REMOVEDIR : 0);
}

OCTAVO_EXPORT int symlink(const char* what, const char* path) noexcept {
  RECORDING;
  static const auto symlink_real = real<int (*)(const char*, const char*)>("symlink");
  const int result = symlink_real(what, path);
  const std::string place = recorder().place(AT_FDCWD, path);
  if (result == 0 && !place.empty()) recorder().note(Kind::kSymlink, what, place);
  return result;
}

OCTAVO_EXPORT int link(const char* from, const char* to) noexcept {
  RECORDING;
  static const auto link_real = real<int (*)(const char*, const char*)>("link");
  const int result = link_real(from, to);
  if (result == 0)
    recorder().note(Kind::kLink, recorder().place(AT_FDCWD, from), recorder().place(AT_FDCWD, to));
  return result;
}

}  // extern "C"
