// Verbs that need libtorch. It costs a third of a second to load, so the arguments are checked
// before it is.

#include "cli/verbs.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/file.h"

namespace octavo::cli {
namespace {

using CoreMain = int (*)(const char* verb, int argc, const char* const* argv);

fs::path core_library() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error)
    fail(ExitCode::kEnvironment, "cli", "wanted /proc/self/exe, found: ", error.message(),
         "; mount /proc");
  return executable.parent_path().parent_path() / "lib" / "liboctavo_core.so";
}

CoreMain load_core(std::string_view verb) {
  const fs::path path = core_library();
  std::error_code error;
  if (!fs::exists(path, error))
    fail(ExitCode::kEnvironment, "cli", verb, " wants ", path.string(),
         ", found no such file; build it (ninja octavo_core) or install it beside the program");
  // Never closed: libtorch keeps threads and registrations until the process ends.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    fail(ExitCode::kEnvironment, "cli", verb, " wants ", path.string(),
         " and the libraries it needs, found: ", dlerror(),
         "; run ./bootstrap and build again, or put the missing library on LD_LIBRARY_PATH");
  void* symbol = dlsym(library, "octavo_core_main");
  if (symbol == nullptr)
    fail(ExitCode::kEnvironment, "cli", path.string(),
         ": wanted octavo_core_main, found: ", dlerror(),
         "; the library is of another version, build both again");
  return reinterpret_cast<CoreMain>(symbol);
}

}  // namespace

int core(const Verb& verb, Args args) {
  config::parse(args, verb.arguments);
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  return load_core(verb.name)(std::string(verb.name).c_str(), static_cast<int>(argv.size()),
                              argv.data());
}

}  // namespace octavo::cli
