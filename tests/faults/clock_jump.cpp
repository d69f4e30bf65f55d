// Loaded before a program: the clock of the day jumps when the file that OCTAVO_CLOCK_SHIFT names
// says so; the monotonic clock stays. Waits until a time of the day are counted, and ended or
// prolonged as by a real jump.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

struct Shared {
  std::atomic<int64_t> shift_seconds, waits;
};

Shared* shared() {
  static Shared* const mapped = [] {
    static Shared none{};
    const char* path = std::getenv("OCTAVO_CLOCK_SHIFT");
    const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return &none;
    void* found = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return found == MAP_FAILED ? &none : static_cast<Shared*>(found);
  }();
  return mapped;
}

template <typename Function>
Function* next(const char* name, const char* version = nullptr) {
  return reinterpret_cast<Function*>(version == nullptr ? dlsym(RTLD_NEXT, name)
                                                        : dlvsym(RTLD_NEXT, name, version));
}

bool is_of_the_day(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

// Waits until `deadline` by a clock that may jump meanwhile: `wait` is asked for short waits by the
// true clock, again and again.
template <typename Wait>
int wait_for_time_of_day(const timespec* deadline, const Wait& wait) {
  constexpr int64_t kSlice = 20'000'000, kSecond = 1'000'000'000;
  ++shared()->waits;
  const auto nanoseconds = [](const timespec& t) { return t.tv_sec * kSecond + t.tv_nsec; };
  for (;;) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t left = nanoseconds(*deadline) - nanoseconds(now);
    const int64_t until =
        nanoseconds(now) - shared()->shift_seconds * kSecond + std::clamp(left, int64_t{0}, kSlice);
    const timespec slice{until / kSecond, until % kSecond};
    const int result = wait(&slice);
    if (result != ETIMEDOUT || left <= kSlice) return result;
  }
}

// A condition may be made to wait by the monotonic clock, whose seconds are few.
bool counts_days(const timespec* deadline) {
  constexpr time_t kYear2001 = 1'000'000'000;
  return deadline->tv_sec > kYear2001;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) {
  static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && is_of_the_day(clock)) now->tv_sec += shared()->shift_seconds;
  return result;
}

int gettimeofday(timeval* __restrict now, void* __restrict /*zone*/) {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  *now = {precise.tv_sec, precise.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* now) {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}

int timespec_get(timespec* now, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* deadline) {
  using Wait = int(pthread_cond_t*, pthread_mutex_t*, const timespec*);
  static auto* const real = next<Wait>("pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!counts_days(deadline)) return real(condition, mutex, deadline);
  return wait_for_time_of_day(deadline,
                              [&](const timespec* slice) { return real(condition, mutex, slice); });
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  using Wait = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static auto* const real = next<Wait>("pthread_cond_clockwait");
  if (!is_of_the_day(clock)) return real(condition, mutex, clock, deadline);
  return wait_for_time_of_day(
      deadline, [&](const timespec* slice) { return real(condition, mutex, clock, slice); });
}

int sem_timedwait(sem_t* semaphore, const timespec* deadline) {
  static auto* const real = next<int(sem_t*, const timespec*)>("sem_timedwait");
  return wait_for_time_of_day(
             deadline,
             [&](const timespec* slice) { return real(semaphore, slice) == 0 ? 0 : errno; }) == 0
             ? 0
             : -1;
}

}  // extern "C"
