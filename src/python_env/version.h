#pragma once
// Versions of Python packages as PEP 440 defines and orders them: 2.8.0a0+5228986c39.nv25.06 comes
// before 2.8.0, 2.7.4.post1 after 2.7.4. tests/conformance/verify_for.py compares with `packaging`.

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::python_env {

struct Version {
  // In the order of versions.
  enum class Stage : uint8_t { kAlpha, kBeta, kCandidate };
  struct Pre {
    Stage stage = Stage::kAlpha;
    uint64_t number = 0;
    auto operator<=>(const Pre&) const = default;
  };

  uint64_t epoch = 0;
  std::vector<uint64_t> release;  // never empty after parsing
  std::optional<Pre> pre;
  std::optional<uint64_t> post, dev;
  std::vector<std::string> local;  // lower case; numbers without leading zeros

  bool is_prerelease() const { return pre.has_value() || dev.has_value(); }
  uint64_t number(size_t index) const { return index < release.size() ? release[index] : 0; }
  Version without_local() const;
  Version base() const;      // epoch and release alone
  std::string text() const;  // normalised: "1.0rc1" of "v1.0-RC.1"

  std::strong_ordering operator<=>(const Version& other) const;
  bool operator==(const Version& other) const { return (*this <=> other) == 0; }
};

// None when the text is no version, or longer than any version should be.
std::optional<Version> parse_version(std::string_view text);

}  // namespace octavo::python_env
