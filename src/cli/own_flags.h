#pragma once
// Flags that one verb takes and that are no keys: no configuration file may set them. --help and
// the completion of shells read the same table.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

using Args = std::span<const std::string>;

struct OwnFlag {
  std::string_view name;   // without its dashes
  std::string_view value;  // what follows it: "" nothing, "a|b" one of these, "A…" one or more
  std::string_view about;
};

struct OwnFlags {
  std::string_view about;  // lines of --help above the flags
  std::span<const OwnFlag> flags;
};

// What was given of a verb's own flags, and everything else.
struct GivenFlags {
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::vector<std::string> other_args;  // for config::parse

  bool has(std::string_view name) const { return values.contains(name); }
  // The last one counts, as with keys.
  std::optional<std::string> value(std::string_view name) const;
};

// --name VALUE, --name=VALUE, and - for _ within names.
GivenFlags take_own_flags(std::span<const OwnFlag> flags, Args args);

// The lines of --help; "" for none.
std::string own_flags_help(const OwnFlags& own);

}  // namespace octavo::cli
