#include "python_env/version.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "python_env/ascii.h"

namespace octavo::python_env {
namespace {

constexpr size_t kLongestVersion = 256;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_separator(char c) {
  return c == '.' || c == '-' || c == '_';
}
bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_digit);
}

// The text of a version, taken from its front piece by piece.
class VersionReader {
 public:
  explicit VersionReader(std::string_view rest) : rest_(rest) {}

  bool at_end() const { return rest_.empty(); }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<uint64_t> take_number() {
    const size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + digits, value);
    if (digits == 0 || error != std::errc{}) return std::nullopt;
    rest_.remove_prefix(digits);
    return value;
  }
  // [-_.]?(word)[-_.]?N?: the number, 0 when it is left out.
  std::optional<uint64_t> take_tagged(std::string_view word) {
    const std::string_view before = rest_;
    skip_separator();
    if (!take_word(word)) {
      rest_ = before;
      return std::nullopt;
    }
    skip_separator();
    if (const auto number = take_number()) return number;
    if (!rest_.empty() && is_digit(rest_.front())) {  // a number that is too large
      overflow_ = true;
      return std::nullopt;
    }
    return 0;
  }
  bool overflowed() const { return overflow_; }
  std::string_view rest() const { return rest_; }
  void set_rest(std::string_view rest) { rest_ = rest; }

 private:
  void skip_separator() {
    if (!rest_.empty() && is_separator(rest_.front())) rest_.remove_prefix(1);
  }
  std::string_view rest_;
  bool overflow_ = false;
};

bool read_release(VersionReader& reader, Version& version) {
  auto number = reader.take_number();
  if (!number) return false;
  if (reader.take('!')) {
    version.epoch = *number;
    if (!(number = reader.take_number())) return false;
  }
  version.release.push_back(*number);
  while (true) {
    const std::string_view before = reader.rest();
    if (!reader.take('.')) return true;
    if (!(number = reader.take_number())) {
      reader.set_rest(before);  // ".post1", ".dev0", or nothing that belongs here
      return true;
    }
    version.release.push_back(*number);
  }
}

void read_pre(VersionReader& reader, Version& version) {
  // A word before those that it begins with.
  constexpr std::pair<std::string_view, Version::Stage> kWords[] = {
      {"alpha", Version::Stage::kAlpha},       {"a", Version::Stage::kAlpha},
      {"beta", Version::Stage::kBeta},         {"b", Version::Stage::kBeta},
      {"preview", Version::Stage::kCandidate}, {"pre", Version::Stage::kCandidate},
      {"rc", Version::Stage::kCandidate},      {"c", Version::Stage::kCandidate}};
  for (const auto& [word, stage] : kWords)
    if (const auto number = reader.take_tagged(word)) {
      version.pre = {stage, *number};
      return;
    }
}

void read_post(VersionReader& reader, Version& version) {
  const std::string_view before = reader.rest();
  if (reader.take('-')) {  // 1.0-1
    version.post = reader.take_number();
    if (version.post) return;
    reader.set_rest(before);
  }
  for (const std::string_view word : {"post", "rev", "r"})
    if ((version.post = reader.take_tagged(word))) return;
}

bool read_local(std::string_view text, Version& version) {
  std::string part;
  const auto finish = [&] {
    if (part.empty()) return false;
    if (is_number(part)) part.erase(0, std::min(part.find_first_not_of('0'), part.size() - 1));
    version.local.push_back(part);
    part.clear();
    return true;
  };
  for (const char c : text) {
    if (is_separator(c)) {
      if (!finish()) return false;
    } else if (is_digit(c) || (c >= 'a' && c <= 'z')) {
      part += c;
    } else {
      return false;
    }
  }
  return finish();
}

// -1, 0, 1 of an optional part, where `missing` says whether its absence is the smallest (-1) or
// the largest (1).
template <typename T>
std::strong_ordering compare_optional(const std::optional<T>& a, const std::optional<T>& b,
                                      int missing) {
  if (a && b) return *a <=> *b;
  if (!a && !b) return std::strong_ordering::equal;
  return (a.has_value() ? 0 : missing) <=> (b.has_value() ? 0 : missing);
}

std::strong_ordering compare_release(const Version& a, const Version& b) {
  for (size_t i = 0; i < std::max(a.release.size(), b.release.size()); ++i)
    if (const auto order = a.number(i) <=> b.number(i); order != 0) return order;
  return std::strong_ordering::equal;
}

// A development release without a stage comes before the first alpha.
int pre_rank(const Version& v) {
  if (v.pre) return 0;
  return !v.post && v.dev ? -1 : 1;
}

// Numbers come after words.
std::strong_ordering compare_local_part(const std::string& a, const std::string& b) {
  const bool first = is_number(a), second = is_number(b);
  if (first != second) return first <=> second;
  if (first && a.size() != b.size()) return a.size() <=> b.size();
  return a <=> b;
}

std::strong_ordering compare_local(const Version& a, const Version& b) {
  for (size_t i = 0; i < std::min(a.local.size(), b.local.size()); ++i)
    if (const auto order = compare_local_part(a.local[i], b.local[i]); order != 0) return order;
  return a.local.size() <=> b.local.size();
}

}  // namespace

std::strong_ordering Version::operator<=>(const Version& other) const {
  if (const auto order = epoch <=> other.epoch; order != 0) return order;
  if (const auto order = compare_release(*this, other); order != 0) return order;
  if (const auto order = pre_rank(*this) <=> pre_rank(other); order != 0) return order;
  if (pre && other.pre)
    if (const auto order = *pre <=> *other.pre; order != 0) return order;
  if (const auto order = compare_optional(post, other.post, -1); order != 0) return order;
  if (const auto order = compare_optional(dev, other.dev, 1); order != 0) return order;
  return compare_local(*this, other);
}

Version Version::without_local() const {
  Version out = *this;
  out.local.clear();
  return out;
}

Version Version::base() const {
  Version out;
  out.epoch = epoch;
  out.release = release;
  return out;
}

std::string Version::text() const {
  constexpr std::string_view kStages[] = {"a", "b", "rc"};
  std::string out = epoch != 0 ? str(epoch, "!") : "";
  for (size_t i = 0; i < release.size(); ++i) out += str(i == 0 ? "" : ".", release[i]);
  if (pre) out += str(kStages[static_cast<size_t>(pre->stage)], pre->number);
  if (post) out += str(".post", *post);
  if (dev) out += str(".dev", *dev);
  return local.empty() ? out : str(out, "+", join(local, "."));
}

std::optional<Version> parse_version(std::string_view text) {
  text = trim(text);
  if (text.size() > kLongestVersion) return std::nullopt;
  const std::string lower = ascii_lower(text);
  std::string_view whole = lower, local;
  const size_t plus = whole.find('+');
  if (plus != whole.npos) {
    local = whole.substr(plus + 1);
    whole = whole.substr(0, plus);
  }
  VersionReader reader(whole);
  reader.take('v');
  Version version;
  if (!read_release(reader, version)) return std::nullopt;
  read_pre(reader, version);
  read_post(reader, version);
  version.dev = reader.take_tagged("dev");
  if (!reader.at_end() || reader.overflowed()) return std::nullopt;
  if (plus != lower.npos && !read_local(local, version)) return std::nullopt;
  return version;
}

}  // namespace octavo::python_env
