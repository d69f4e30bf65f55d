#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// The candidate with the smallest edit distance, or "" when none is near enough to be meant.
std::string nearest_name(std::string_view name, std::span<const std::string_view> candidates);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string_view trim(std::string_view text);
std::string counted(uint64_t count, std::string_view noun);  // "1 shard", "2 shards"

// Shell-style glob over dotted names: * matches any run of characters, ? one.
bool glob_match(std::string_view pattern, std::string_view name);

}  // namespace octavo
