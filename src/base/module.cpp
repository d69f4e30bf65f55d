#include "base/module.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/library.h"

namespace octavo {

void* module_symbol(const std::string& library, const char* symbol, const std::string& purpose) {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&module_symbol), &info);
  const fs::path path =
      fs::path(info.dli_fname != nullptr ? info.dli_fname : "").parent_path() / library;
  // Never closed: its libraries keep threads until the process ends.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    fail(ExitCode::kEnvironment, "base", purpose, ": ", loader_advice(path, dlerror()));
  void* found = dlsym(handle, symbol);
  if (found == nullptr)
    fail(ExitCode::kEnvironment, "base", path.string(), ": wanted ", symbol, ", found: ", dlerror(),
         "; the library is of another version, build both again");
  return found;
}

}  // namespace octavo
