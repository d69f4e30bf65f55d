#pragma once
// One exception type for everything a user can cause or meet. Its code is the process's exit code.
// A failed OCTAVO_ASSERT is our own bug and says so.

#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace octavo {

enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,        // wrong use or configuration
  kEnvironment = 3,  // the machine or a library is not what is needed
  kGuard = 4,        // training stopped by a guard
  kDamaged = 5,      // data or checkpoint damaged
  kUndecided = 6,    // compare: not enough data for a verdict
  kStopped = 75,     // stopped on request, resumable
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string_view module, const std::string& message)
      : std::runtime_error("[" + std::string(module) + "] " + message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// str("wanted ", 3, ", got ", x): any streamable values joined.
template <typename... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Messages say what was wanted, what was found and what to do.
template <typename... Parts>
[[noreturn]] void fail(ExitCode code, std::string_view module, const Parts&... parts) {
  throw Error(code, module, octavo::str(parts...));
}

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace octavo

#define OCTAVO_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::octavo::assertion_failed(#condition, __FILE__, __LINE__))
