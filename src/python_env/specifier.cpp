#include "python_env/specifier.h"

#include <algorithm>

#include "base/text.h"

namespace octavo::python_env {
namespace {

constexpr size_t kMostSpecifiers = 64;

bool has_prefix(const Version& version, const Version& prefix, size_t length) {
  if (version.epoch != prefix.epoch) return false;
  for (size_t i = 0; i < length; ++i)
    if (version.number(i) != prefix.number(i)) return false;
  return true;
}

bool is_equal(const Specifier& s, const Version& v) {
  if (s.wildcard) return has_prefix(v, s.version, s.version.release.size());
  return (s.version.local.empty() ? v.without_local() : v) == s.version;
}
bool is_other(const Specifier& s, const Version& v) {
  return !is_equal(s, v);
}
bool is_at_least(const Specifier& s, const Version& v) {
  return v.without_local() >= s.version;
}
bool is_at_most(const Specifier& s, const Version& v) {
  return v.without_local() <= s.version;
}
bool is_compatible(const Specifier& s, const Version& v) {
  return is_at_least(s, v) && has_prefix(v, s.version, s.version.release.size() - 1);
}
// "<2.9" leaves 2.9's own pre-releases out: 2.9.dev0 is the first of them.
bool is_below(const Specifier& s, const Version& v) {
  Version bound = s.version;
  if (!bound.is_prerelease()) bound.dev = 0;
  return v < bound;
}
// ">2.8.3" leaves its post-releases and local builds out; behind 2.8.3.post1 and 2.8.3.dev1 the
// next of their kind is meant.
bool is_above(const Specifier& s, const Version& v) {
  if (!(v > s.version)) return false;
  Version bound = s.version;
  if (bound.dev) {
    ++*bound.dev;
    return v >= bound;
  }
  if (bound.post) {
    ++*bound.post;
    bound.dev = 0;
    return v >= bound;
  }
  return v.base() != bound.base() || v.pre != bound.pre;
}
bool is_identical(const Specifier& s, const Version& v) {
  const auto same = parse_version(s.text);
  return same && same->text() == v.text();
}

struct Comparison {
  std::string_view sign;
  bool (*holds)(const Specifier&, const Version&);
};
// A sign before those that it begins with.
constexpr Comparison kComparisons[] = {
    {"===", is_identical}, {"==", is_equal},    {"~=", is_compatible}, {"!=", is_other},
    {"<=", is_at_most},    {">=", is_at_least}, {"<", is_below},       {">", is_above}};

std::optional<Specifier> parse_one(std::string_view part) {
  const auto* const found = std::ranges::find_if(
      kComparisons, [&](const Comparison& c) { return part.starts_with(c.sign); });
  if (found == std::end(kComparisons)) return std::nullopt;
  std::string_view text = trim(part.substr(found->sign.size()));
  Specifier specifier{found->sign, std::string(text), {}, false};
  const bool may_be_prefix = found->sign == "==" || found->sign == "!=";
  if (may_be_prefix && text.ends_with(".*")) {
    specifier.wildcard = true;
    text.remove_suffix(2);
  }
  const auto version = parse_version(text);
  if (!version) return std::nullopt;
  specifier.version = *version;
  const bool is_plain = version->base().text() == version->text();
  if (specifier.wildcard && !is_plain) return std::nullopt;
  if (!may_be_prefix && found->sign != "===" && !version->local.empty()) return std::nullopt;
  if (found->sign == "~=" && version->release.size() < 2) return std::nullopt;
  return specifier;
}

}  // namespace

std::optional<Specifiers> parse_specifiers(std::string_view text) {
  Specifiers out;
  if (trim(text).empty()) return out;
  for (const std::string& part : split(text, ',')) {
    const std::string_view trimmed = trim(part);
    if (trimmed.empty()) continue;  // "<3,": a comma at the end is allowed
    const auto one = parse_one(trimmed);
    if (!one || out.size() >= kMostSpecifiers) return std::nullopt;
    out.push_back(*one);
  }
  return out;
}

bool allows(const Specifier& specifier, const Version& version) {
  const auto* const found =
      std::ranges::find(kComparisons, specifier.comparison, &Comparison::sign);
  return found != std::end(kComparisons) && found->holds(specifier, version);
}

bool allows(const Specifiers& specifiers, const Version& version) {
  return std::ranges::all_of(specifiers, [&](const Specifier& s) { return allows(s, version); });
}

}  // namespace octavo::python_env
