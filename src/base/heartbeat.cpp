#include "base/heartbeat.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>

namespace octavo::heartbeat {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// One that is lost between two threads does not matter: the number has moved on.
void count(std::atomic<uint64_t>& beats) {
  beats.store(beats.load(kRelaxed) + 1, kRelaxed);
}

}  // namespace

Beats& beats() {
  static auto* const only = new Beats;  // read until the process ends
  return *only;
}

int32_t own_thread() {
  thread_local const auto number = static_cast<int32_t>(::syscall(SYS_gettid));
  return number;
}

void begin(std::string_view name, int64_t number) noexcept {
  Beats& all = beats();
  if (number < 0) {
    all.stretch.set(name);
  } else {
    char text[48];
    const size_t length = std::min<size_t>(name.size(), 24);
    std::memcpy(text, name.data(), length);
    text[length] = ' ';
    const auto [end, error] = std::to_chars(text + length + 1, text + sizeof text, number);
    all.stretch.set({text, static_cast<size_t>(end - text)});
  }
  all.inside.store(true, kRelaxed);
  all.worker.store(own_thread(), kRelaxed);
  count(all.main);
}

void end() noexcept {
  Beats& all = beats();
  all.inside.store(false, kRelaxed);
  all.worker.store(own_thread(), kRelaxed);
  count(all.main);
}

void Waiting::set(Wait what) {
  beats().wait.store(what, kRelaxed);
  count(beats().main);
}

void Exempt::set(const char* why) {
  beats().exempt.store(why, kRelaxed);
  count(beats().main);
}

}  // namespace octavo::heartbeat
