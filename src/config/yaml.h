#pragma once
// An untrusted flat YAML file: `key: value` and `key: [list]` lines only. Bounded in size and
// depth; anchors, aliases, tags, duplicate keys and further documents are refused, so no file can
// expand or mean two things.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo::config {

inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;

struct YamlEntry {
  std::string name;
  std::vector<std::string> values;
  bool is_list = false;
  int line = 0;  // counted from 1
  bool is_null = false;
  // Of a list with a mapping in it: of each item its fields, none for an item that is a text.
  // The value of a mapping is "".
  std::vector<std::vector<std::pair<std::string, std::string>>> fields = {};
};

// What is taken beyond flat lines, from files that other programs read too.
struct YamlShape {
  bool sections = false;     // a nested key is named with its sections: optimizer.params.lr
  bool nulls = false;        // a key without a value, or with {}: is_null
  bool item_fields = false;  // items of a list may be flat mappings: YamlEntry::fields
};

std::vector<YamlEntry> parse_yaml(std::string_view text, const std::string& source,
                                  const YamlShape& shape = {});

}  // namespace octavo::config
