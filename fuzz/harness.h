#pragma once
// What the targets share. A parser may refuse an input in one way only: an octavo::Error of wrong
// use or damage whose message is there and short enough to be read. Every other exception, every
// crash, leak, second of work and 256 MB is a finding.

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "scratch.h"

namespace octavo::fuzz {

[[noreturn]] inline void finding(std::string_view what) {
  std::fprintf(stderr, "finding: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

inline void check(bool condition, std::string_view what) {
  if (!condition) finding(what);
}

// Returns why the input was refused; "" when it was taken.
template <typename Body>
std::string refusal_of(Body&& body) {
  constexpr size_t kReadable = 20'000;
  try {
    body();
    return "";
  } catch (const Error& error) {
    const std::string message = error.what();
    check(error.code() == ExitCode::kUsage || error.code() == ExitCode::kDamaged,
          "refused with the exit code of a bad machine: " + message);
    check(!message.empty(), "refused without a reason");
    check(message.size() < kReadable, "a message that nobody can read: " + message.substr(0, 300));
    return message;
  } catch (const std::exception& error) {
    finding(std::string("an exception that is no octavo::Error: ") + error.what());
  }
}

// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("octavo-fuzz", 0)) {
    check(fd_ >= 0, "no memfd on this machine");
    path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const fs::path& write(std::string_view content) {
    const auto size = static_cast<ssize_t>(content.size());
    check(::ftruncate(fd_, size) == 0 && ::pwrite(fd_, content.data(), content.size(), 0) == size,
          "the memory file could not be written");
    return path_;
  }

 private:
  int fd_;
  fs::path path_;
};

// A folder that is gone when the process ends as it should.
class ScratchFolder : public Scratch {
 public:
  fs::path write(const char* name, std::string_view content) const {
    fs::path path = *this / name;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 &&
              ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
          "the scratch file could not be written");
    ::close(fd);
    return path;
  }
};

inline double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A second for an input, of the thread's own time. The clock of the wall is cheaper to ask, but
// says little on a machine with other work: what is late by it runs once more.
template <typename Body>
void in_time(Body&& body) {
  constexpr double kMost = 1.0;
  const double begin = seconds_of(CLOCK_MONOTONIC);
  body();
  if (seconds_of(CLOCK_MONOTONIC) - begin < kMost) return;
  const double mine = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  body();
  if (seconds_of(CLOCK_THREAD_CPUTIME_ID) - mine >= kMost) finding("timeout: more than a second");
}

// Inputs of several parts: what stands before and behind the first line of ==== signs.
inline std::pair<std::string_view, std::string_view> two_parts(std::string_view input) {
  constexpr std::string_view kBetween = "\n====\n";
  const size_t at = input.find(kBetween);
  if (at == input.npos) return {input, {}};
  return {input.substr(0, at), input.substr(at + kBetween.size())};
}

}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Warnings of a million refused files would fill the disk.
#define OCTAVO_FUZZ_TARGET(input)                                                           \
  extern "C" int LLVMFuzzerInitialize(int*, char***) {                                      \
    octavo::set_log_level(octavo::LogLevel::kError);                                        \
    return 0;                                                                               \
  }                                                                                         \
  static void one_input(std::string_view input);                                            \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {                 \
    octavo::fuzz::in_time([&] { one_input({reinterpret_cast<const char*>(data), size}); }); \
    return 0;                                                                               \
  }                                                                                         \
  static void one_input(std::string_view input)
