#include "base/failure.h"

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

namespace octavo {

Failure failure_of_errno(int number) {
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Failure::kStorageFull;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
    case ENAMETOOLONG:
      return Failure::kStorageRefused;
    // Network file systems, disks, and what a server says while it is restarted.
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
    case ENOTCONN:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
    case ESHUTDOWN:
    case EREMOTEIO:
    case ENODEV:
    case ENXIO:
    case ENOLCK:
    case EBUSY:
      return Failure::kStorage;
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
      return Failure::kHostMemory;
    default:
      return Failure::kUnknown;
  }
}

Failure failure_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const FailureError*>(&error)) return known->failure();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return Failure::kHostMemory;
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr) return Failure::kUnknown;
  const std::error_condition condition = system->code().default_error_condition();
  if (condition.category() != std::generic_category()) return Failure::kUnknown;
  const Failure failure = failure_of_errno(condition.value());
  const bool of_files = dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr;
  return of_files && failure == Failure::kUnknown ? Failure::kStorage : failure;
}

bool is_environment(const std::exception& error) {
  return failure_of(error) != Failure::kUnknown;
}

}  // namespace octavo
