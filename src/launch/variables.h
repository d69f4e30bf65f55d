#pragma once
// Numbers and addresses out of environment variables, checked.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/rank_info.h"

namespace octavo::launch {

constexpr int kMostRanks = 1 << 20;

// The value, or nothing when it is not set.
std::optional<std::string> variable(const Variables& variables, std::string_view name);
bool is_set(const Variables& variables, std::string_view name);
// A whole number in the range, or an Error that names the variable.
std::optional<int> number(const Variables& variables, std::string_view name, int least, int most);
// The same, and an Error when it is missing; `because` says what asks for it.
int needed_number(const Variables& variables, std::string_view name, int least, int most,
                  std::string_view because);
// A host name or address without spaces and control characters.
std::optional<std::string> address(const Variables& variables, std::string_view name);

// A port for each job, below those that the kernel hands out itself (from 32768).
constexpr int port_of_job(uint64_t job) {
  return 12000 + static_cast<int>(job % 20000);
}

}  // namespace octavo::launch
