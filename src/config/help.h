#pragma once
// What --help says about keys, from the table of keys. src/cli/help.cpp puts it together.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/key.h"

namespace octavo::config {

inline constexpr size_t kHelpColumns = 100;
inline constexpr size_t kHelpLines = 40;  // what --help of a verb may take: a screen

// `text` broken at spaces; every line after the first starts with `indent` spaces.
std::string wrapped(std::string_view text, size_t indent);
// Without its full stop.
std::string first_sentence(std::string_view text);

// Every key that the verb reads, by section, in full: --help_all.
std::string help_text(Readers reader);
// The same of one section; "" when there is no such section, or the verb reads nothing of it.
std::string section_help(Readers reader, std::string_view section);
// These keys of the verb, a sentence each: --help.
std::string common_help(std::span<const std::string> names);
// The names of the keys that the verb reads beside these, by section.
std::string other_keys(Readers reader, std::span<const std::string> names);
// One key: what it does, its values and default, who reads it, what it may not be combined with.
std::string key_help(const Key& key);

// Keys that may have been meant by `name`, the nearest first; at most eight.
std::vector<std::string> near_keys(std::string_view name);
std::vector<const Key*> keys_of(Readers reader);

}  // namespace octavo::config
