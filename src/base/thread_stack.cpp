#include "base/thread_stack.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace octavo {
namespace {

constexpr int kMostFrames = 48;
constexpr int kOwnFrames = 2;  // the handler's, and the kernel's way back from it

// What the handler writes. One stack at a time.
void* frames[kMostFrames];
std::atomic<int> found{0};
std::atomic<int64_t> wanted{0}, answered{0};  // numbers of questions

int stack_signal() {
  return SIGRTMIN + 6;
}

void on_signal(int /*number*/, siginfo_t* info, void* /*context*/) {
  if (info->si_pid != ::getpid()) return;  // somebody else's
  const int before = errno;
  const int64_t question = wanted;
  found = ::backtrace(frames, kMostFrames);
  answered = question;
  errno = before;
}

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "state S, in futex_wait_queue", as far as the kernel tells.
std::string place_in_kernel(int32_t thread) {
  const std::string folder = str("/proc/self/task/", thread, "/");
  const std::string stat = line_of(folder + "stat");
  const size_t name_end = stat.rfind(") ");
  std::string text =
      name_end == std::string::npos ? "state unknown" : str("state ", stat.substr(name_end + 2, 1));
  const std::string where = line_of(folder + "wchan");
  if (!where.empty() && where != "0") text += str(", in the kernel's ", where);
  return text;
}

// "liboctavo_core.so(_ZN6octavo…+0x1f) [0x7f…]" with the name as it is written in C++.
std::string readable(const char* symbol) {
  std::string text = symbol;
  const size_t slash =
      text.find('(') == std::string::npos ? std::string::npos : text.rfind('/', text.find('('));
  if (slash != std::string::npos) text.erase(0, slash + 1);
  if (const size_t address = text.rfind(" ["); address != std::string::npos) text.erase(address);
  const size_t begin = text.find('(') + 1, end = text.find('+', begin);
  if (begin == 0 || end == std::string::npos || end == begin) return text;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(text.substr(begin, end - begin).c_str(), nullptr, nullptr, &status),
      std::free);
  if (status != 0) return text;
  constexpr size_t kLongest = 200;
  return str(text.substr(0, begin), std::string(name.get()).substr(0, kLongest), text.substr(end));
}

}  // namespace

void prepare_thread_stacks() {
  void* first[1];
  ::backtrace(first, 1);  // loads the unwinder
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(stack_signal(), &action, nullptr) != 0)
    fail(ExitCode::kEnvironment, "base", "wanted a handler for signal ", stack_signal(),
         ", found: ", std::strerror(errno));
}

std::string stack_of_thread(int32_t thread, std::chrono::milliseconds patience) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const std::string place = place_in_kernel(thread);
  const int64_t question = ++wanted;
  if (::syscall(SYS_tgkill, ::getpid(), thread, stack_signal()) != 0)
    return str("  no stack: ", std::strerror(errno), "\n");
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (answered != question) {
    if (std::chrono::steady_clock::now() > deadline)
      return str("  no stack: the thread does not answer (", place, ")\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const int count = found;
  const std::unique_ptr<char*, void (*)(void*)> symbols(::backtrace_symbols(frames, count),
                                                        std::free);
  std::string text = str("  ", place, "\n");
  for (int i = std::min(kOwnFrames, count); i < count; ++i)
    text += symbols == nullptr ? str("  ", frames[i], "\n")
                               : str("  ", readable(symbols.get()[i]), "\n");
  return text;
}

}  // namespace octavo
