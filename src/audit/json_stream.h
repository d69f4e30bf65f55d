#pragma once
// JSON read once from front to back, never held: traces are gigabytes. Strict about structure,
// lenient where profilers are sloppy (NaN and Infinity, stray escapes, raw control characters).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/byte_source.h"

namespace octavo::audit {

// Thrown when the text ends inside of a value: a trace whose process was killed.
struct CutShort {};

class JsonStream {
 public:
  static constexpr size_t kMostDepth = 64;
  static constexpr size_t kMostString = size_t{64} << 10;  // kept of a string; the rest is skipped

  explicit JsonStream(ByteSource& source);

  // The first character of the next value: { [ " or that of a number or literal. 0 at the end of
  // the text, where it may end.
  char peek();
  char peek_or_end();

  // begin_object(); while (next_key(key)) read or skip the value. Arrays in the same way.
  void begin_object() { begin('{'); }
  bool next_key(std::string& key);
  void begin_array() { begin('['); }
  bool next_element();

  void read_string(std::string& out);
  // Thousandths of a number, so that microseconds stay exact as nanoseconds; false when it is no
  // number or beyond 9e15.
  bool read_thousandths(int64_t& out);
  bool read_integer(int64_t& out);
  // The text of the next value without blanks, cut to `most` bytes (then `out` is empty).
  void read_raw(std::string& out, size_t most);
  void skip_value();

  uint64_t offset() const { return before_ + at_; }
  [[noreturn]] void damaged(std::string_view wanted) const;

 private:
  char get() {
    if (at_ == end_ && !refill()) throw CutShort{};
    return buffer_[at_++];
  }
  bool refill();
  char skip_blanks();
  void begin(char open);
  bool next_in(char close);
  void take_string(std::string* out, bool raw);
  void take_escape(std::string* out);
  void take_value(std::string* out);
  bool read_number(std::string& digits);

  ByteSource& source_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  uint64_t before_ = 0;
  size_t depth_ = 0;
  std::array<bool, kMostDepth + 1> is_first_{};
  std::string digits_;
};

}  // namespace octavo::audit
