#include "base/openmp_waiting.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

namespace octavo {
namespace {

// Longer than it takes to wake a thread, shorter than a time slice of the kernel's (1 to 4 ms).
constexpr std::chrono::microseconds kSpinning{50};
constexpr const char* kSpinCount = "GOMP_SPINCOUNT";
constexpr size_t kMostOfValue = 40;  // characters

bool spins_briefly = false;  // libgomp was loaded with our number

// Nanoseconds of one turn: libgomp loads a word, compares and pauses. The fastest of some rounds,
// since another program may take the CPU in any of them.
double nanoseconds_of_turn() {
  constexpr int kRounds = 5, kTurns = 1000;
  std::atomic<int> word{0};
  double fastest = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kTurns && word.load(std::memory_order_relaxed) == 0; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#else
      std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    fastest = std::min(fastest, taken.count() / kTurns);
  }
  return fastest;
}

// By LD_PRELOAD, say: then it has read its environment already.
bool is_libgomp_loaded() {
  void* library = ::dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  ::dlclose(library);  // counts the uses of it; it stays
  return true;
}

}  // namespace

long spin_count() {
  constexpr double kLeast = 100, kMost = 300000;  // the most is libgomp's own number
  const double nanoseconds = std::chrono::duration<double, std::nano>(kSpinning).count();
  return static_cast<long>(
      std::clamp(nanoseconds / std::max(nanoseconds_of_turn(), 1e-3), kLeast, kMost));
}

std::string waiting_variable() {
  for (const char* name : {kSpinCount, "OMP_WAIT_POLICY"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      return str(name, "=", printable(value, kMostOfValue));
  return "";
}

BriefSpinning::BriefSpinning()
    : was_set_(waiting_variable().empty() && !is_libgomp_loaded() &&
               ::setenv(kSpinCount, std::to_string(spin_count()).c_str(), 1) == 0) {
  spins_briefly = was_set_;
}

BriefSpinning::~BriefSpinning() {
  if (was_set_) ::unsetenv(kSpinCount);
}

std::string waiting_words() {
  if (spins_briefly) return str("a waiting thread sleeps after ", kSpinning.count(), " µs");
  const std::string variable = waiting_variable();
  return str("threads wait as ", variable.empty() ? "libgomp's defaults say" : variable + " says");
}

void start_again_with_brief_spinning(char** argv) {
  if (!waiting_variable().empty()) return;
  ::setenv(kSpinCount, std::to_string(spin_count()).c_str(), 1);
  ::execv("/proc/self/exe", argv);
  fail(ExitCode::kEnvironment, "base", "wanted to start again with ", kSpinCount,
       ", found: ", std::strerror(errno));
}

}  // namespace octavo
