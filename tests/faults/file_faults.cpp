// Loaded before the program: operations on files fail as a file says.
// OCTAVO_FILE_FAULT names that file; while it is there, it holds an errno, "read" or "all", and a
// part of a path: reads of such files, or whatever is done to them, fail with that error.

#undef _FORTIFY_SOURCE  // it would define read itself

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <string>

namespace {

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

using Open = int (*)(const char*, int, ...);
using Read = ssize_t (*)(int, void*, size_t);

// Not by streams: they would come back here.
std::string text_of(const char* path) {
  static const auto open = real<Open>("open");
  static const auto read = real<Read>("read");
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  char text[4096];
  const ssize_t size = read(file, text, sizeof text);
  ::close(file);
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : "";
}

// The error that an operation on `path` has now; 0: none.
int fault_of(const std::string& path, bool is_read) {
  static const char* const control = std::getenv("OCTAVO_FILE_FAULT");
  if (control == nullptr || ::access(control, R_OK) != 0) return 0;
  const std::string text = text_of(control);
  const size_t kind = text.find(' '), part = text.find(' ', kind + 1);
  if (part == std::string::npos) return 0;
  if (text.substr(kind + 1, part - kind - 1) == "read" && !is_read) return 0;
  const std::string wanted = text.substr(part + 1, text.find('\n') - part - 1);
  return path.find(wanted) == std::string::npos ? 0 : std::atoi(text.c_str());
}

std::string path_of(int file) {
  char path[4096];
  const ssize_t size =
      ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "";
}

bool fails(const std::string& path, bool is_read) {
  const int error = fault_of(path, is_read);
  if (error != 0) errno = error;
  return error != 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  static const auto next = real<Open>("open");
  return fails(path, false) ? -1 : next(path, flags, mode);
}

ssize_t read(int file, void* to, size_t bytes) {
  static const auto next = real<Read>("read");
  return fails(path_of(file), true) ? -1 : next(file, to, bytes);
}

ssize_t pread(int file, void* to, size_t bytes, off_t at) {
  static const auto next = real<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return fails(path_of(file), true) ? -1 : next(file, to, bytes, at);
}

ssize_t write(int file, const void* from, size_t bytes) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  return fails(path_of(file), false) ? -1 : next(file, from, bytes);
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return fails(path_of(file), false) ? -1 : next(file, from, bytes, at);
}

int fsync(int file) {
  static const auto next = real<int (*)(int)>("fsync");
  return fails(path_of(file), false) ? -1 : next(file);
}

int mkdir(const char* path, mode_t mode) {
  static const auto next = real<int (*)(const char*, mode_t)>("mkdir");
  return fails(path, false) ? -1 : next(path, mode);
}

int rename(const char* from, const char* to) {
  static const auto next = real<int (*)(const char*, const char*)>("rename");
  return fails(from, false) || fails(to, false) ? -1 : next(from, to);
}
}
