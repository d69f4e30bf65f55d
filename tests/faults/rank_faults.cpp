// Loaded before the program: a rank fails in the midst of a step when a file says how.
// OCTAVO_RANK_FAULT names a folder; a file <rank> in it holds one word, is taken away (a rank that
// is started again does not fail again), and the rank's main thread does it.

#include <ATen/ATen.h>
#include <ATen/ops/full_ops.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace {

namespace fs = std::filesystem;

std::string taken_fault() {
  static const char* const folder = std::getenv("OCTAVO_RANK_FAULT");
  static const char* const rank = std::getenv("OCTAVO_RANK");
  if (folder == nullptr || rank == nullptr) return "";
  const fs::path path = fs::path(folder) / rank;
  if (::access(path.c_str(), R_OK) != 0) return "";
  std::string word;
  std::ifstream(path) >> word;
  if (!word.empty()) fs::remove(path);
  return word;
}

void fail_with(const std::string& fault) {
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  const auto number = [&](const char* prefix) {
    return std::atoi(fault.c_str() + std::string(prefix).size());
  };
  if (fault.starts_with("exit-")) ::_exit(number("exit-"));
  if (fault.starts_with("cuda-"))
    throw c10::AcceleratorError(here, number("cuda-"), "CUDA error: for a test");
  if (fault == "cublas")
    throw c10::Error(here, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx");
  if (fault == "nccl") throw c10::DistBackendError(here, "NCCL error: for a test");
  if (fault == "network") throw c10::DistNetworkError(here, "connection reset: for a test");
  if (fault == "shapes") throw c10::Error(here, "shapes cannot be multiplied");
  if (fault == "bad_alloc") throw std::bad_alloc();
  if (fault == "logic") throw std::logic_error("for a test");
  if (fault.starts_with("file-"))
    throw fs::filesystem_error("for a test", "a/file",
                               std::error_code(number("file-"), std::generic_category()));
  if (fault == "hang")
    for (;;) ::pause();
}

}  // namespace

// What a step's main thread calls once (src/train/pass.cpp).
namespace at::_ops {

Tensor full::call(c10::SymIntArrayRef size, const Scalar& fill_value,
                  ::std::optional<ScalarType> dtype, ::std::optional<Layout> layout,
                  ::std::optional<Device> device, ::std::optional<bool> pin_memory) {
  using Call = decltype(&full::call);
  static const Call real = [] {
    Dl_info own{};
    dladdr(reinterpret_cast<void*>(&full::call), &own);
    return reinterpret_cast<Call>(dlsym(RTLD_NEXT, own.dli_sname));
  }();
  if (const ::std::string fault = taken_fault(); !fault.empty()) fail_with(fault);
  return real(size, fill_value, dtype, layout, device, pin_memory);
}

}  // namespace at::_ops
