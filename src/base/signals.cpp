#include "base/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace octavo {
namespace {

std::atomic<const char*> reason{nullptr};

void on_signal(int number) {
  const char* name = number == SIGTERM  ? "SIGTERM"
                     : number == SIGINT ? "SIGINT"
                     : number == SIGHUP ? "SIGHUP"
                                        : "SIGUSR1";
  if (reason.exchange(name) != nullptr && number == SIGINT) _exit(130);
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
  reason.store(why);
}

}  // namespace octavo
