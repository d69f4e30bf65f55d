// octavo plan --dry_run: this program starts itself again on the fake CUDA device (src/fake_cuda),
// where the real GPU code path runs and no kernel does.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/library.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "fake_cuda/fake_cuda.h"
#include "plan/gpu.h"

extern char** environ;  // NOLINT: POSIX has no header for it

namespace octavo::cli {
namespace {

// libtorch asks NVML before it makes an expandable segment, which the fake device does not have.
bool asks_nvml(const std::string& variable) {
  if (!variable.starts_with("PYTORCH_") ||
      variable.find("expandable_segments") == std::string::npos)
    return false;
  log_info(
      str(variable.substr(0, variable.find('=')),
          " is left out of the dry run, whose fake device has no expandable segments; a run on "
          "a GPU then has less fragmentation than is said here"));
  return true;
}

// This process's variables with those of the device in their place.
std::vector<std::string> variables_for(const plan::Gpu& gpu, const fs::path& libraries) {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  auto ours = fake_cuda::environment(
      {.capability = gpu.capability, .memory = static_cast<uint64_t>(plan::usable_bytes(gpu))},
      libraries.string(), path != nullptr ? path : "");
  ours["OMP_WAIT_POLICY"] = "passive";
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!ours.contains(text.substr(0, text.find('='))) && !asks_nvml(text)) all.push_back(text);
  }
  for (const auto& [name, value] : ours) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Flags of plan that three steps on one GPU do not depend on. A file may say them for other verbs.
constexpr std::string_view kIdleKeys[] = {
    "sharding_mode",  "grad_reduce_dtype",           "fp8_all_gather",     "auto_batch_size",
    "max_batch_size", "target_effective_batch_size", "max_steps",          "token_budget",
    "gpu_price",      "gpu_hours_per_failure",       "checkpoint_seconds", "restart_seconds",
    "output"};

void refuse_in_dry_run(const GivenFlags& given, const config::Parsed& parsed) {
  const auto is_flag = [&](std::string_view name) {
    return parsed.origin_of(std::string(name)).kind == config::Origin::Kind::kFlag;
  };
  std::vector<std::string> idle;
  for (const auto& [name, values] : given.values) idle.push_back("--" + name);
  for (const std::string_view name : kIdleKeys) {
    const config::Key& key = *config::find_key(name);
    if (is_flag(name) && key.load(parsed.settings) != key.load(config::Settings()))
      idle.push_back(str("--", name));
  }
  if (is_flag("device") && parsed.settings.device == config::DeviceChoice::kCpu)
    idle.emplace_back("--device cpu");
  if (idle.empty()) return;
  fail(ExitCode::kUsage, "cli", "plan --dry_run: wanted flags of a step on one GPU, found ",
       join(idle, ", "), ", which a dry run does not read; leave ",
       idle.size() == 1 ? "it" : "them", " out, or leave --dry_run out for a forecast");
}

// What train would settle by itself.
void say_batch(const config::Settings& s) {
  if (!s.auto_batch_size && s.max_batch_size == 0 && s.target_effective_batch_size == 0) return;
  log_info(str("dry run: of batch_size ", s.batch_size, " and gradient_accumulation_steps ",
               s.gradient_accumulation_steps,
               "; what auto_batch_size, max_batch_size and target_effective_batch_size make of "
               "them, octavo plan without --dry_run forecasts"));
}

}  // namespace

int dry_run(const Verb& verb, const GivenFlags& given, const config::Parsed& parsed) {
  const Args args = given.other_args;
  if (fake_cuda::is_active()) return core(verb, args);
  refuse_in_dry_run(given, parsed);
  say_batch(parsed.settings);
  const config::Settings& settings = parsed.settings;
  const plan::Gpu& gpu = plan::wanted_gpu(settings.gpu);
  if (settings.num_gpus > 1)
    fail(ExitCode::kUsage, "cli", "plan --dry_run: wanted num_gpus 1, found ", settings.num_gpus,
         "; a dry run is one process. Leave --dry_run out for a forecast of several");
  const fs::path program = own_program(), libraries = own_library_folder();
  if (!fs::exists(libraries / "fake_cuda/liboctavo_fake_cuda.so"))
    fail(ExitCode::kEnvironment, "cli", "plan --dry_run: wanted liboctavo_fake_cuda.so in ",
         (libraries / "fake_cuda").string(),
         ", found none; build it (ninja octavo_fake_cuda octavo_fake_cuda_driver)");
  std::vector<std::string> words = {program.string(), "plan"},
                           variables = variables_for(gpu, libraries);
  words.insert(words.end(), args.begin(), args.end());
  execve(program.c_str(), pointers_to(words).data(), pointers_to(variables).data());
  fail(ExitCode::kEnvironment, "cli", "plan --dry_run: could not start ", program.string(), ": ",
       std::strerror(errno));
}

}  // namespace octavo::cli
