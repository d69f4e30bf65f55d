#pragma once
// Signs of life of this process, for the watch over hangs (train/guards/hang_watch.h). Whoever
// works writes them with relaxed stores, one thread looks at them now and then: no lock, no clock
// and no system call, so that a sign may stand in every layer.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace octavo::heartbeat {

// A short text that may be read while it is written. Then a reader may see a part of each of two
// texts; one that hangs writes no more.
template <size_t kWords>
class Text {
 public:
  void set(std::string_view text) {
    char bytes[8 * kWords] = {};
    std::memcpy(bytes, text.data(), std::min(text.size(), sizeof bytes));
    for (size_t i = 0; i < kWords; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + 8 * i, sizeof word);
      words_[i].store(word, std::memory_order_relaxed);
    }
  }
  std::string get() const {
    char bytes[8 * kWords + 1] = {};
    for (size_t i = 0; i < kWords; ++i) {
      const uint64_t word = words_[i].load(std::memory_order_relaxed);
      std::memcpy(bytes + 8 * i, &word, sizeof word);
    }
    return bytes;
  }

 private:
  std::atomic<uint64_t> words_[kWords] = {};
};

// What the main thread waits for, where it is known.
enum class Wait : uint8_t { kNothing, kRanks, kLoader, kDevice };

struct Beats {
  std::atomic<uint64_t> main{0};             // whatever the training did next
  std::atomic<uint64_t> loader{0};           // samples that were read
  std::atomic<int32_t> worker{0};            // the thread of the last sign: the main one, or
                                             // autograd's of a GPU
  std::atomic<int32_t> loader_thread{0};     // whose batch the main thread asked for
  std::atomic<Wait> wait{Wait::kNothing};    // of the main thread
  std::atomic<const char*> exempt{nullptr};  // why nothing is expected of it now; null: it is
  std::atomic<int64_t> step{0};              // in progress
  std::atomic<int64_t> notices{0};           // lines of the watch that ended nothing
  std::atomic<bool> inside{false};           // of the stretch; else it has ended
  Text<6> stretch;                           // "forward", "block 3"
  // How often a collective was begun or waited for, which is in the same order on every rank; the
  // last one, and the ranks of its group: first, first + stride, …
  std::atomic<int64_t> collectives{0};
  Text<20> collective;
  std::atomic<int32_t> group_first{0}, group_stride{1}, group_size{1}, group_rank{0};
};

Beats& beats();        // of this process
int32_t own_thread();  // its number in the kernel

// A stretch with a name begins or ends, on any thread that works for the training.
void begin(std::string_view name, int64_t number = -1) noexcept;
void end() noexcept;

// While it lives, the main thread waits.
class Waiting {
 public:
  explicit Waiting(Wait what) : before_(beats().wait.load(std::memory_order_relaxed)) { set(what); }
  ~Waiting() { set(before_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  static void set(Wait what);
  const Wait before_;
};

// While it lives, the main thread may take any time. `why`: a literal, which is said.
class Exempt {
 public:
  explicit Exempt(const char* why) : before_(beats().exempt.load(std::memory_order_relaxed)) {
    set(why);
  }
  ~Exempt() { set(before_); }
  Exempt(const Exempt&) = delete;
  Exempt& operator=(const Exempt&) = delete;

 private:
  static void set(const char* why);
  const char* const before_;
};

}  // namespace octavo::heartbeat
