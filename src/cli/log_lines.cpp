#include "cli/log_lines.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/text.h"

namespace octavo::cli {
namespace {

constexpr std::string_view kFormatKey = "log_format";

bool says_json(std::string_view value) {
  value = trim(value.substr(0, value.find('#')));
  return value == "json" || value == "\"json\"" || value == "'json'";
}

bool file_wants_json(const std::string& path) {
  constexpr size_t kLargest = 1 << 20;
  std::error_code none;
  if (path.empty() || !fs::is_regular_file(path, none)) return false;
  for (const std::string& line : split(read_file(path, kLargest), '\n'))
    if (line.starts_with(kFormatKey) && line.substr(kFormatKey.size()).starts_with(':'))
      return says_json(std::string_view(line).substr(kFormatKey.size() + 1));
  return false;
}

}  // namespace

bool wants_json_lines(Args args) noexcept {
  try {
    std::optional<std::string> given;
    std::string file;
    for (size_t at = 0; at < args.size(); ++at) {
      const std::string& word = args[at];
      if (!word.starts_with("--")) {
        if (file.empty() && (word.ends_with(".yaml") || word.ends_with(".yml"))) file = word;
        continue;
      }
      const size_t equals = word.find('=');
      std::string name = word.substr(2, equals == word.npos ? equals : equals - 2);
      std::ranges::replace(name, '-', '_');
      if (name != kFormatKey) continue;
      if (equals != word.npos)
        given = word.substr(equals + 1);
      else if (at + 1 < args.size())
        given = args[at + 1];
    }
    return given ? says_json(*given) : file_wants_json(file);
  } catch (const std::exception&) {  // what is wrong with the file is said by who reads it
    return false;
  }
}

}  // namespace octavo::cli
