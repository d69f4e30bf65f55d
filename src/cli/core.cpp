// Verbs that need libtorch. It costs a third of a second to load, so the arguments are checked
// before it is.

#include <dlfcn.h>

#include <algorithm>

#include "base/error.h"
#include "base/library.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/openmp_waiting.h"
#include "cli/log_lines.h"
#include "cli/verbs.h"
#include "launch/rank_info.h"

namespace octavo::cli {
namespace {

using CoreMain = int (*)(const char* verb, int argc, const char* const* argv);

// Another version may load and still differ in what the compiler took for granted.
void check_torch_version(std::string_view verb) {
  const fs::path packages = torch_site_packages();
  const std::string wanted = wanted_version("torch"), found = installed_version(packages, "torch");
  const std::string public_part = found.substr(0, found.find('+'));
  if (found.empty() || public_part == wanted) return;
  const auto series = [](const std::string& version) {
    return version.substr(0, version.find('.', version.find('.') + 1));
  };
  if (series(public_part) != series(wanted))
    fail(ExitCode::kEnvironment, "cli", verb, " wants torch ", wanted, ", found torch ", found,
         " in ", packages.string(), "; run `pip install torch==", wanted, "`");
  log_warn(str("built with torch ", wanted, ", running with torch ", found, " of ",
               packages.string(), ": tested with the first alone"));
}

CoreMain load_core(std::string_view verb) {
  const fs::path path = own_library_folder() / "liboctavo_core.so";
  std::error_code error;
  if (!fs::exists(path, error))
    fail(ExitCode::kEnvironment, "cli", verb, " wants ", path.string(),
         ", found no such file; build it (ninja octavo_core) or install it beside the program");
  void* library = nullptr;
  {
    const BriefSpinning brief_spinning;
    // Never closed: libtorch keeps threads and registrations until the process ends.
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  if (library == nullptr)
    fail(ExitCode::kEnvironment, "cli", verb, ": ", loader_advice(path, dlerror()));
  check_torch_version(verb);
  void* symbol = dlsym(library, "octavo_core_main");
  if (symbol == nullptr)
    fail(ExitCode::kEnvironment, "cli", path.string(),
         ": wanted octavo_core_main, found: ", dlerror(),
         "; the library is of another version, build both again");
  return reinterpret_cast<CoreMain>(symbol);
}

// A flag that another form of the verb reads alone.
struct IdleFlag {
  std::string_view verb, form, flag, read_by;
};
constexpr IdleFlag kIdleFlags[] = {
    {"eval", "loss", "output", "eval --eval_task hellaswag"},
    {"checkpoints", "list", "output", "checkpoints export"},
    {"checkpoints", "list", "export_format", "checkpoints export"},
    {"checkpoints", "verify", "output", "checkpoints export"},
    {"checkpoints", "verify", "export_format", "checkpoints export"},
    {"checkpoints", "verify", "json", "checkpoints list"},
    {"checkpoints", "export", "json", "checkpoints list"},
};

void refuse_idle_flags(const Verb& verb, const config::Parsed& parsed) {
  const std::string form = verb.name == "eval"          ? parsed.settings.eval_task
                           : parsed.positionals.empty() ? ""
                                                        : parsed.positionals.front();
  for (const IdleFlag& idle : kIdleFlags)
    if (idle.verb == verb.name && idle.form == form &&
        parsed.origin_of(std::string(idle.flag)).kind == config::Origin::Kind::kFlag)
      fail(ExitCode::kUsage, "cli", verb.name, " ", form, ": --", idle.flag, " is read by ",
           idle.read_by, " alone, and would do nothing; leave it out");
}

}  // namespace

int core(const Verb& verb, Args args) {
  set_log_json(verb.name == "train" && wants_json_lines(args));
  if (const auto told = launch::told_rank(launch::environment())) set_log_rank(told->rank);
  const config::Parsed parsed = config::parse(args, verb.arguments);
  refuse_idle_flags(verb, parsed);
  // A run's configuration is also given to eval, generate and others, which have no such flag.
  set_log_json(verb.name == "train" && parsed.settings.log_format == config::LogFormat::kJson);
  std::vector<const char*> argv;
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  return load_core(verb.name)(std::string(verb.name).c_str(), static_cast<int>(argv.size()),
                              argv.data());
}

int doctor(const Verb&, Args args) {
  const auto verify = std::find_if(verbs().begin(), verbs().end(),
                                   [](const Verb& v) { return v.name == "verify"; });
  return verify->run(*verify, args);
}

}  // namespace octavo::cli
