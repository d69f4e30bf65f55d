#pragma once
// Why a process fails, more exactly than its exit code says: the launcher decides by it whether a
// restart may help, and how long to wait before it.

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"

namespace octavo {

enum class Failure : uint32_t {
  kUnknown,
  kHostMemory,      // no memory, or no thread
  kDeviceMemory,    // of a GPU
  kDeviceFault,     // a GPU or its driver: ECC, Xid, cuBLAS
  kNetwork,         // a connection, a collective, the store
  kPeerLost,        // another rank is gone, or left
  kStorage,         // a file system that does not answer as it should (EIO, ESTALE)
  kStorageFull,     // ENOSPC, EDQUOT
  kStorageRefused,  // no such file, no permission, read-only
  kHang,            // no progress (train/guards/hang_watch.h)
};
inline constexpr uint32_t kFailures = static_cast<uint32_t>(Failure::kHang) + 1;

// An Error of which more is known than its exit code.
class FailureError : public Error {
 public:
  FailureError(Failure failure, ExitCode code, std::string_view module, const std::string& message)
      : Error(code, module, message), failure_(failure) {}
  Failure failure() const { return failure_; }

 private:
  Failure failure_;
};

template <typename... Parts>
[[noreturn]] void fail_as(Failure failure, std::string_view module, const Parts&... parts) {
  throw FailureError(failure, ExitCode::kEnvironment, module, octavo::str(parts...));
}

Failure failure_of_errno(int number);
// What is known without libtorch, whose errors src/train/guards/failures.h turns into
// FailureErrors.
Failure failure_of(const std::exception& error);

// A std::exception that no bug throws: memory, threads, files. Its exit code is 3.
bool is_environment(const std::exception& error);

}  // namespace octavo
