#pragma once
// A flat YAML file from a stranger: `key: value` and `key: [list]` lines only. Bounded in size and
// depth; anchors, aliases, tags, duplicate keys and further documents are refused, so no file can
// expand or mean two things.

#include <string>
#include <string_view>
#include <vector>

namespace octavo::config {

inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;

struct YamlEntry {
  std::string name;
  std::vector<std::string> values;
  bool is_list = false;
  int line = 0;  // counted from 1
};

std::vector<YamlEntry> parse_yaml(std::string_view text, const std::string& source);

}  // namespace octavo::config
