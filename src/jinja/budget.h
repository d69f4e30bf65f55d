#pragma once
// What a template may use up. Templates come with models, so they are as untrusted as their
// weights.

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace octavo::jinja {

struct Limits {
  uint64_t steps = 10'000'000;  // expressions and statements evaluated, items looked at
  uint64_t made_bytes = uint64_t{256} << 20;  // of all strings and lists made, kept or not
  uint64_t output_bytes = uint64_t{64} << 20;
  int depth = 500;  // of evaluation: nested expressions, blocks and macros
};

// A template's own mistake, and what of Jinja is not done here.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  fail(ExitCode::kDamaged, "jinja", parts...);
}

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  void step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.steps)
      refuse("wanted a template of at most ", limits_.steps, " steps, found one that goes on");
  }
  // Before `bytes` are made: nothing is allocated that the limit does not allow.
  void make(uint64_t bytes) {
    if (bytes > limits_.made_bytes || made_ > limits_.made_bytes - bytes)
      refuse("wanted a template that makes at most ", limits_.made_bytes,
             " bytes of text and lists, found one that makes more");
    made_ += bytes;
    step(1 + bytes / 256);
  }
  void make_items(uint64_t count) {
    constexpr uint64_t kItemBytes = 32;
    if (count > limits_.made_bytes) make(count);
    make(count * kItemBytes);
  }
  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  uint64_t steps_ = 0, made_ = 0;
};

}  // namespace octavo::jinja
