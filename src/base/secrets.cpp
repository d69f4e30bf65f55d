#include "base/secrets.h"

#include <fcntl.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <vector>

#include <xxhash.h>

#include "base/log.h"
#include "base/text.h"

namespace octavo {
namespace {

constexpr std::string_view kMask = "***";
constexpr size_t kShortest = 8;  // what is shorter stands in other words too

bool any_of_words(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view each) {
    return each.size() == word.size() && ::strncasecmp(each.data(), word.data(), word.size()) == 0;
  });
}

struct Span {
  size_t begin, size;
};

constexpr std::string_view kEnds = " \t\r\n\"'<>`";  // of an address in a text

// user:password of https://user:password@host, when there is one.
void find_password(std::string_view text, size_t begin, std::vector<Span>& found) {
  const size_t host_end =
      std::min({text.size(), text.find_first_of(kEnds, begin), text.find_first_of("/?#", begin)});
  const size_t at = text.substr(0, host_end).rfind('@');
  if (at != text.npos && at > begin) found.push_back({begin, at - begin});
}

// The values of ?name=value&name=value whose names are those of secrets; `begin`: behind the mark.
void find_parameters(std::string_view text, size_t begin, std::vector<Span>& found) {
  const size_t end = std::min(text.size(), text.find_first_of(kEnds, begin));
  for (size_t name = begin; name < end;) {
    const size_t next = std::min(end, text.find_first_of("&;#?", name));
    const size_t equals = text.find('=', name);
    if (equals < next && next > equals + 1 && is_secret_name(text.substr(name, equals - name)))
      found.push_back({equals + 1, next - equals - 1});
    if (next < end && text[next] == '?') return;  // looked at by itself
    name = next + 1;
  }
}

std::vector<Span> secrets_of_addresses(std::string_view text) {
  std::vector<Span> found;
  for (size_t i = text.find("://"); i != text.npos; i = text.find("://", i + 3))
    find_password(text, i + 3, found);
  for (size_t i = text.find('?'); i != text.npos; i = text.find('?', i + 1))
    find_parameters(text, i + 1, found);
  return found;
}

// The secrets of this process by their hashes alone: one more copy would be one more to lose.
class KnownSecrets {
 public:
  static KnownSecrets& instance() {
    static KnownSecrets known;
    return known;
  }

  void add(std::string_view value) {
    if (value.size() < kShortest) return;
    const SecretHash one{value.size(), XXH3_64bits(value.data(), value.size())};
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(values_, one) != values_.end()) return;
    values_.push_back(one);
    // Longest first: one may be a part of another.
    std::ranges::sort(values_, std::greater{}, &SecretHash::size);
  }

  void hide(std::string& text) const {
    const std::lock_guard lock(mutex_);
    for (const SecretHash& value : values_)
      for (size_t i = 0; i + value.size <= text.size(); ++i)
        if (XXH3_64bits(text.data() + i, value.size) == value.hash)
          text.replace(i, value.size, kMask);
  }

  bool empty() const { return values_.empty(); }

 private:
  struct SecretHash {
    size_t size;
    XXH64_hash_t hash;
    bool operator==(const SecretHash&) const = default;
  };

  KnownSecrets() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const size_t equals = text.find('=');
      if (equals == text.npos) continue;
      const std::string_view value = text.substr(equals + 1);
      if (is_secret_name(text.substr(0, equals))) add(value);
      for (const Span& span : secrets_of_addresses(value)) {
        const std::string_view both = value.substr(span.begin, span.size);  // user:password
        add(both);
        if (const size_t colon = both.find(':'); colon != both.npos) add(both.substr(colon + 1));
      }
    }
  }

  mutable std::mutex mutex_;
  std::vector<SecretHash> values_;
};

}  // namespace

bool is_secret_name(std::string_view name) {
  std::string with_one_separator(name);
  std::ranges::replace(with_one_separator, '-', '_');
  std::ranges::replace(with_one_separator, '.', '_');
  const std::vector<std::string> words = split(with_one_separator, '_');
  if (words.empty() || any_of_words(words.back(), {"file", "path", "dir", "url", "name"}))
    return false;
  const auto always = [](const std::string& word) {
    return any_of_words(word, {"secret", "password", "passwd", "credential", "credentials"});
  };
  const bool identity =
      words.size() > 1 && any_of_words(words.back(), {"id"});  // AWS_ACCESS_KEY_ID
  return std::ranges::any_of(words, always) ||
         any_of_words(words[words.size() - (identity ? 2 : 1)],
                      {"token", "key", "apikey", "signature", "sig", "auth", "authorization"});
}

bool has_secret_address(std::string_view text) {
  return !secrets_of_addresses(text).empty();
}

std::string without_secrets(std::string_view text) {
  std::string shown(text);
  std::vector<Span> spans = secrets_of_addresses(text);
  std::ranges::sort(spans, std::greater{}, &Span::begin);
  for (const Span& span : spans) shown.replace(span.begin, span.size, kMask);
  KnownSecrets::instance().hide(shown);
  return shown;
}

void add_secret(const std::string& value) {
  KnownSecrets::instance().add(value);
  keep_secrets_out_of_cores();
}

void keep_secrets_out_of_cores() {
  if (const char* wish = std::getenv("OCTAVO_CORE_DUMPS"); wish != nullptr && *wish == '1') return;
  rlimit limit{};
  if (::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur != 0) {
    limit.rlim_cur = 0;
    if (::setrlimit(RLIMIT_CORE, &limit) != 0) log_debug("core files could not be turned off");
  }
  const int filter = ::open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
  if (filter < 0) return;  // a kernel that writes no core files
  if (::write(filter, "0", 1) != 1) log_debug("core files could not be kept without memory");
  ::close(filter);
}

void protect_environment() {
  if (!KnownSecrets::instance().empty()) keep_secrets_out_of_cores();
}

}  // namespace octavo
