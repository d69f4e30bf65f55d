#include "launch/variables.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "config/key_makers.h"

namespace octavo::launch {
namespace {

constexpr size_t kLongestHost = 253;

}  // namespace

Variables environment() {
  Variables result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0 || equals + 1 == text.size()) continue;
    result.insert_or_assign(std::string(text.substr(0, equals)),
                            std::string(text.substr(equals + 1)));
  }
  return result;
}

std::optional<std::string> variable(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

bool is_set(const Variables& variables, std::string_view name) {
  return variable(variables, name).has_value();
}

std::optional<int> number(const Variables& variables, std::string_view name, int least, int most) {
  const std::optional<std::string> text = variable(variables, name);
  if (!text) return std::nullopt;
  const std::optional<int> value = config::parse_number<int>(*text);
  if (!value || *value < least || *value > most)
    fail(ExitCode::kUsage, "launch", name, ": wanted an integer from ", least, " to ", most,
         ", found '", text->substr(0, 40), "'; set it right or unset it");
  return value;
}

int needed_number(const Variables& variables, std::string_view name, int least, int most,
                  std::string_view because) {
  const std::optional<int> value = number(variables, name, least, most);
  if (!value)
    fail(
        ExitCode::kUsage, "launch", "wanted ", name, " beside ", because,
        ", found it unset; start ranks with octavo launch, torchrun, srun or mpirun, which set it");
  return *value;
}

std::optional<std::string> address(const Variables& variables, std::string_view name) {
  const std::optional<std::string> text = variable(variables, name);
  if (!text) return std::nullopt;
  const bool plain = std::all_of(text->begin(), text->end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
  if (!plain || text->size() > kLongestHost)
    fail(ExitCode::kUsage, "launch", name, ": wanted a host name or an address, found '",
         text->substr(0, 80), "'");
  return text;
}

}  // namespace octavo::launch
