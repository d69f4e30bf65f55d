// Loaded before the program: a thread of a rank stops for ever when a file says which.
// OCTAVO_HANG_FAULT names a folder; a file <rank> in it holds one word, is renamed to <rank>.taken
// (a rank that is started again does not hang again), and that thread does not move again:
//   main, loader   where a signal finds it
//   collective     the threads that move bytes between ranks, behind epoll_wait
//   device         whoever waits for the (fake) CUDA device, which never becomes ready

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace {

namespace fs = std::filesystem;

std::atomic<bool> collectives_hang{false}, device_hangs{false};

[[noreturn]] void stop_for_ever() {
  for (;;) ::pause();
}

int stopping_signal() {
  return SIGRTMIN + 10;
}

std::string word_in(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

void stop_thread_named(const std::string& name) {
  for (const auto& task : fs::directory_iterator("/proc/self/task"))
    if (word_in(task.path() / "comm") == name)
      ::syscall(SYS_tgkill, ::getpid(), std::stoi(task.path().filename()), stopping_signal());
}

void take(const std::string& fault) {
  if (fault == "main") ::syscall(SYS_tgkill, ::getpid(), ::getpid(), stopping_signal());
  if (fault == "loader") stop_thread_named("octavo-loader");
  if (fault == "collective") collectives_hang = true;
  if (fault == "device") device_hangs = true;
}

void look_for_fault(const fs::path& path) {
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
    if (::access(path.c_str(), R_OK) != 0) continue;
    const std::string fault = word_in(path);
    fs::rename(path, path.string() + ".taken");
    take(fault);
  }
}

template <typename Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void begin() {
  const char* const folder = std::getenv("OCTAVO_HANG_FAULT");
  const char* const rank = std::getenv("OCTAVO_RANK");
  if (folder == nullptr || rank == nullptr) return;
  struct sigaction action {};
  action.sa_handler = [](int) { stop_for_ever(); };
  ::sigaction(stopping_signal(), &action, nullptr);
  std::thread(look_for_fault, fs::path(folder) / rank).detach();
}

using DeviceCall = int (*)(void*);
constexpr int kNotReady = 600;  // cudaErrorNotReady

int asked(const char* name, void* handle) {
  static_assert(sizeof(void*) == 8);
  return device_hangs ? kNotReady : next_of<DeviceCall>(name)(handle);
}

}  // namespace

extern "C" {

int epoll_wait(int descriptor, epoll_event* events, int most, int timeout) {
  static const auto real = next_of<decltype(&epoll_wait)>("epoll_wait");
  const int found = real(descriptor, events, most, timeout);
  if (collectives_hang) stop_for_ever();
  return found;
}

int cudaStreamSynchronize(void* stream) {
  if (device_hangs) stop_for_ever();
  return asked("cudaStreamSynchronize", stream);
}
int cudaStreamQuery(void* stream) {
  return asked("cudaStreamQuery", stream);
}
int cudaEventQuery(void* event) {
  return asked("cudaEventQuery", event);
}

}  // extern "C"
