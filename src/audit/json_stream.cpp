#include "audit/json_stream.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace octavo::audit {
namespace {

bool is_number_part(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

JsonStream::JsonStream(ByteSource& source) : source_(source), buffer_(source.piece()) {}

bool JsonStream::refill() {
  before_ += end_;
  at_ = 0;
  end_ = source_.read(buffer_.data(), buffer_.size());
  return end_ > 0;
}

void JsonStream::damaged(std::string_view wanted) const {
  const char found = at_ < end_ ? buffer_[at_] : ' ';
  fail(ExitCode::kDamaged, "audit", source_.path().string(), ": wanted ", wanted, " at byte ",
       offset(), ", found '", printable(std::string_view(&found, 1)),
       "'; this is no trace of a profiler, or it is damaged");
}

char JsonStream::skip_blanks() {
  for (;;) {
    if (at_ == end_ && !refill()) throw CutShort{};
    const char c = buffer_[at_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    ++at_;
  }
}

char JsonStream::peek() {
  return skip_blanks();
}

char JsonStream::peek_or_end() {
  try {
    return skip_blanks();
  } catch (const CutShort&) {
    return 0;
  }
}

void JsonStream::begin(char open) {
  if (skip_blanks() != open) damaged(open == '{' ? "an object" : "an array");
  ++at_;
  if (++depth_ > kMostDepth) damaged("at most 64 levels of nesting");
  is_first_.at(depth_) = true;
}

// Whether another entry follows; the comma or the closing bracket is taken.
bool JsonStream::next_in(char close) {
  char c = skip_blanks();
  if (c == close) {
    ++at_;
    --depth_;
    return false;
  }
  if (!is_first_.at(depth_)) {
    if (c != ',') damaged("a comma or the end of the list");
    ++at_;
    c = skip_blanks();
    if (c == close) {  // a comma before the end: written by profilers that were killed
      ++at_;
      --depth_;
      return false;
    }
  }
  is_first_.at(depth_) = false;
  return true;
}

bool JsonStream::next_key(std::string& key) {
  if (!next_in('}')) return false;
  if (skip_blanks() != '"') damaged("a key");
  take_string(&key, false);
  if (skip_blanks() != ':') damaged("a colon");
  ++at_;
  return true;
}

bool JsonStream::next_element() {
  return next_in(']');
}

void JsonStream::take_escape(std::string* out) {
  const char c = get();
  if (c != 'u') {
    constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
    const size_t which = kFrom.find(c);
    if (out != nullptr) *out += which == kFrom.npos ? c : kTo[which];
    return;
  }
  unsigned code = 0;
  for (int i = 0; i < 4; ++i) {
    const char digit = get();
    const unsigned value = digit >= '0' && digit <= '9'   ? static_cast<unsigned>(digit - '0')
                           : digit >= 'a' && digit <= 'f' ? static_cast<unsigned>(digit - 'a' + 10)
                           : digit >= 'A' && digit <= 'F' ? static_cast<unsigned>(digit - 'A' + 10)
                                                          : 16;
    if (value == 16) damaged("four hexadecimal digits behind \\u");
    code = code * 16 + value;
  }
  if (out != nullptr)
    append_utf8(code, *out);  // surrogate pairs stay halves: names of kernels have none
}

// Behind the opening quote, up to behind the closing one. `raw` keeps the quotes.
void JsonStream::take_string(std::string* out, bool raw) {
  ++at_;
  if (out != nullptr && !raw) out->clear();
  if (out != nullptr && raw) *out += '"';
  for (;;) {
    if (at_ == end_ && !refill()) throw CutShort{};
    const char* const from = buffer_.data() + at_;
    const size_t left = end_ - at_;
    const auto* quote = static_cast<const char*>(std::memchr(from, '"', left));
    size_t run = quote == nullptr ? left : static_cast<size_t>(quote - from);
    const auto* escape = static_cast<const char*>(std::memchr(from, '\\', run));
    if (escape != nullptr) run = static_cast<size_t>(escape - from);
    if (out != nullptr && out->size() < kMostString)
      out->append(from, std::min(run, kMostString - out->size()));
    at_ += run;
    if (escape != nullptr) {
      ++at_;
      take_escape(out != nullptr && out->size() < kMostString ? out : nullptr);
    } else if (quote != nullptr) {
      ++at_;
      break;
    }
  }
  if (out != nullptr && raw) *out += '"';
}

void JsonStream::read_string(std::string& out) {
  if (skip_blanks() != '"') damaged("a string");
  take_string(&out, false);
}

// The characters of a number; false, and past it, when the value is something else.
bool JsonStream::read_number(std::string& digits) {
  digits.clear();
  if (!is_number_part(skip_blanks())) {
    skip_value();
    return false;
  }
  for (;;) {
    if (at_ == end_ && !refill()) throw CutShort{};
    const char c = buffer_[at_];
    if (!is_number_part(c) && !is_letter(c)) break;
    if (digits.size() < 64) digits += c;
    ++at_;
  }
  return true;
}

bool JsonStream::read_thousandths(int64_t& out) {
  if (!read_number(digits_)) return false;
  constexpr size_t kMostDigits = 16;
  const size_t point = std::min(digits_.find('.'), digits_.size());
  const bool is_plain = digits_.find_first_not_of("0123456789.") == digits_.npos;
  if (!is_plain || point > kMostDigits) {
    const double value = std::strtod(digits_.c_str(), nullptr) * 1000;
    if (!std::isfinite(value) || std::abs(value) > 9e18) return false;
    out = static_cast<int64_t>(value);
    return true;
  }
  int64_t whole = 0;
  for (size_t i = 0; i < point; ++i) whole = whole * 10 + (digits_[i] - '0');
  if (whole > 9'000'000'000'000'000) return false;
  for (size_t i = point + 1; i < point + 4; ++i)
    whole = whole * 10 + (i < digits_.size() && digits_[i] != '.' ? digits_[i] - '0' : 0);
  out = whole;
  return true;
}

bool JsonStream::read_integer(int64_t& out) {
  if (peek() == '"') {  // some writers quote ids
    read_string(digits_);
  } else if (!read_number(digits_)) {
    return false;
  }
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(digits_.c_str(), &end, 10);
  if (errno != 0 || end == digits_.c_str()) return false;
  out = value;
  return true;
}

// One value of any kind; `out` takes its text without blanks.
void JsonStream::take_value(std::string* out) {
  const auto keep = [&](char c) {
    if (out != nullptr && out->size() < kMostString) *out += c;
  };
  std::array<char, kMostDepth> closers{};
  size_t open = 0;
  do {
    const char c = skip_blanks();
    if (c == '"') {
      take_string(out, true);
    } else if (c == '{' || c == '[') {
      if (depth_ + open >= kMostDepth) damaged("at most 64 levels of nesting");
      closers.at(open++) = c == '{' ? '}' : ']';
      keep(c);
      ++at_;
    } else if (c == '}' || c == ']') {
      if (open == 0 || closers.at(open - 1) != c) damaged("brackets in pairs");
      --open;
      keep(c);
      ++at_;
    } else if (open > 0 && (c == ',' || c == ':')) {
      keep(c);
      ++at_;
    } else if (is_number_part(c) || is_letter(c)) {
      for (;;) {
        if (at_ == end_ && !refill()) throw CutShort{};
        if (!is_number_part(buffer_[at_]) && !is_letter(buffer_[at_])) break;
        keep(buffer_[at_++]);
      }
    } else {
      damaged("a value");
    }
  } while (open > 0);
}

void JsonStream::read_raw(std::string& out, size_t most) {
  out.clear();
  take_value(&out);
  if (out.size() > most) out.clear();
}

void JsonStream::skip_value() {
  take_value(nullptr);
}

}  // namespace octavo::audit
