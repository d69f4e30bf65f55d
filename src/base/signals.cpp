#include "base/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

namespace octavo {
namespace {

std::atomic<const char*> reason{nullptr};
std::atomic<int64_t> asked_at{0};  // monotonic ns

int64_t monotonic_ns() {  // safe in a signal handler
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void on_signal(int number) {
  const char* name = number == SIGTERM  ? "SIGTERM"
                     : number == SIGINT ? "SIGINT"
                     : number == SIGHUP ? "SIGHUP"
                                        : "SIGUSR1";
  const bool again = reason.exchange(name) != nullptr;
  if (again && number == SIGINT) _exit(130);
  if (!again) asked_at = monotonic_ns();
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) sigaction(number, &action, nullptr);
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

bool stop_requested() {
  return reason.load() != nullptr;
}

const char* stop_reason() {
  const char* name = reason.load();
  return name != nullptr ? name : "";
}

void request_stop(const char* why) {
  asked_at = monotonic_ns();
  reason.store(why);
}

double seconds_since_stop_request() {
  return stop_requested() ? 1e-9 * static_cast<double>(monotonic_ns() - asked_at) : 0;
}

}  // namespace octavo
