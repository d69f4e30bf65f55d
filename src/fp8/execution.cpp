#include "fp8/execution.h"

#include "base/error.h"
#include "base/text.h"

namespace octavo::fp8 {
namespace {

using config::Fp8Backend;
using config::Fp8Execution;
using config::name_of;

std::string capability_text(int capability) {
  return str(capability / 10, ".", capability % 10);
}

// The GPUs that have a recipe in hardware.
std::string wanted_gpu(const ComputeCapabilities& native) {
  const std::string first = "a GPU of compute capability " + capability_text(native.first);
  if (native.last == native.first) return first;
  if (native.last == ComputeCapabilities::kNewest) return first + " or above";
  return str(first, " or above and below ", capability_text(native.last + 1));
}

std::string described(const Device& device) {
  const std::string name = device.name.empty() ? "" : ", " + device.name;
  if (!device.is_gpu) return "a CPU" + name;
  return str("a GPU of compute capability ", device.major, ".", device.minor, name);
}

std::string native_recipes(const Device& device) {
  std::vector<std::string> names;
  for (const Recipe recipe : kAllRecipes)
    if (has_native(device, recipe)) names.emplace_back(name_of(recipe));
  return join(names, ", ");
}

int capability_of(const Device& device) {
  return device.major * 10 + device.minor;
}

// "fp8_recipe blockwise in FP8 matrix units: wanted …, found …"
std::string lacks(const Device& device, Recipe recipe) {
  const RecipeTraits& row = traits_of(recipe);
  const bool lacks_library = device.is_gpu && row.native.has(capability_of(device));
  const std::string library = row.libtorch.is_none()
                                  ? "Transformer Engine"
                                  : str("Transformer Engine, or ", wanted_gpu(row.libtorch));
  return str("fp8_recipe ", name_of(recipe), " in ", is_fp4(recipe) ? "FP4" : "FP8",
             " matrix units: wanted ", lacks_library ? library : wanted_gpu(row.native), ", found ",
             described(device), lacks_library ? " and that its library is not loaded" : "");
}

// What else a user could ask of this device.
std::string advice(const Device& device, Recipe recipe) {
  const std::string recipes = native_recipes(device);
  const std::string other = recipes.empty() ? "" : "fp8_recipe " + recipes + " (native here), or ";
  return other + (device.is_gpu && !is_rehearsed_on_gpus(recipe)
                      ? "device cpu for its numerics"
                      : "fp8_execution rehearse for the FP8 numerics in BF16 matrix units");
}

// Why Transformer Engine cannot serve, or "".
std::string te_refusal(const Device& device, Recipe recipe) {
  if (!device.has_te)
    return "wanted Transformer Engine, found that its library is not loaded; install it, or take "
           "fp8_backend aten";
  if (!traits_of(recipe).in_transformer_engine)
    return str("wanted Transformer Engine for fp8_recipe ", name_of(recipe),
               ", found that it has no such recipe; take fp8_backend aten, or another recipe");
  return "";
}

// Why libtorch's kernels cannot serve, or "".
std::string aten_refusal(const Device& device, Recipe recipe) {
  const ComputeCapabilities& here = traits_of(recipe).libtorch;
  if (here.has(capability_of(device))) return "";
  if (here.is_none())
    return str("wanted a recipe that libtorch has, found fp8_recipe ", name_of(recipe),
               "; take fp8_backend te, or another recipe");
  return str("wanted ", wanted_gpu(here), " for fp8_recipe ", name_of(recipe), ", found ",
             described(device), "; take fp8_backend te, or another recipe");
}

FormatChoice settle_format(const Request& request, Decision& decision) {
  const FormatChoice asked = request.wanted.format;
  const Recipe recipe = decision.options.recipe;
  if (traits_of(recipe).chooses_format)
    return asked == FormatChoice::kAuto ? default_format(recipe) : asked;
  if (asked == FormatChoice::kHybrid || asked == FormatChoice::kE5m2)
    decision.warnings.push_back(str("fp8_format ", name_of(asked), ": wanted e4m3 or auto for ",
                                    "fp8_recipe ", name_of(recipe),
                                    is_fp4(recipe) ? ", which has E2M1 only and runs so. "
                                                   : ", which has E4M3 only; e4m3 runs. ",
                                    "Leave fp8_format out"));
  return default_format(recipe);
}

void warn_of_unread(const Options& wanted, Decision& decision) {
  const Options usual;
  std::vector<std::string> given;
  const auto note = [&](const char* key, const auto& value, const auto& initial) {
    if (value != initial) given.emplace_back(key);
  };
  note("fp8_margin", wanted.margin, usual.margin);
  note("fp8_interval", wanted.interval, usual.interval);
  note("fp8_amax_history", wanted.history, usual.history);
  note("fp8_amax_algo", wanted.algo, usual.algo);
  note("fp8_update", wanted.update, usual.update);
  const auto warn = [&](const char* reader) {
    if (!given.empty())
      decision.warnings.push_back(str(join(given, ", "), ": read by fp8_recipe ", reader,
                                      " only, not by ", name_of(decision.options.recipe),
                                      ", which runs; leave out what is not read"));
    given.clear();
  };
  if (uses_history(decision.options.recipe)) given.clear();
  warn("delayed");
  note("fp4_hadamard", wanted.hadamard, usual.hadamard);
  note("fp4_stochastic_rounding", wanted.stochastic_rounding, usual.stochastic_rounding);
  note("fp4_weight_blocks", wanted.weight_blocks, usual.weight_blocks);
  if (is_fp4(decision.options.recipe)) given.clear();
  warn("nvfp4");
}

// Everything that follows once it is known what runs, and by which recipe.
void settle(const Request& request, Decision& decision, Recipe recipe) {
  decision.options = request.wanted;
  decision.options.recipe = recipe;
  decision.options.format = settle_format(request, decision);
  warn_of_unread(request.wanted, decision);
}

Decision rehearsal(const Request& request, const Device& device) {
  Decision decision{.runs = Runs::kRehearsal, .backend = "rehearsal"};
  if (request.backend == Fp8Backend::kTe || request.backend == Fp8Backend::kAten) {
    const std::string found = device.is_gpu ? "fp8_execution rehearse" : described(device);
    decision.warnings.push_back(str("fp8_backend ", name_of(request.backend),
                                    ": wanted a GPU and its FP8 kernels, found ", found,
                                    "; the rehearsal runs. Leave fp8_backend out"));
  }
  settle(request, decision, request.wanted.recipe);
  return decision;
}

Decision bf16(const Request& request, const Device& device) {
  const Recipe recipe = request.wanted.recipe;
  Decision decision{.runs = Runs::kBf16};
  settle(request, decision, recipe);
  // The one thing to know: what else was asked of FP8 does not matter in BF16.
  decision.warnings = {str(lacks(device, recipe), "; training continues in BF16. For FP8 take ",
                           advice(device, recipe))};
  return decision;
}

// On a GPU that has the recipe.
Decision native(const Request& request, const Device& device, Recipe recipe) {
  Decision decision{.runs = Runs::kNative, .backend = "aten"};
  const std::string no_te = te_refusal(device, recipe), no_aten = aten_refusal(device, recipe);
  if (no_te.empty() && (request.backend != Fp8Backend::kAten || !no_aten.empty()))
    decision.backend = "te";
  const std::string refusal = request.backend == Fp8Backend::kTe     ? no_te
                              : request.backend == Fp8Backend::kAten ? no_aten
                                                                     : "";
  if (!refusal.empty()) {
    const std::string asked = str("fp8_backend ", name_of(request.backend));
    if (request.execution == Fp8Execution::kNative)
      fail(ExitCode::kEnvironment, "fp8", asked, " with fp8_execution native: ", refusal);
    decision.warnings.push_back(str(asked, ": ", refusal, "; ", decision.backend, " runs"));
  }
  settle(request, decision, recipe);
  return decision;
}

void require_native(const Request& request, const Device& device) {
  const Recipe recipe = request.wanted.recipe;
  if (request.backend == Fp8Backend::kRehearse)
    fail(ExitCode::kUsage, "fp8",
         "fp8_execution native: wanted fp8_backend auto, te or aten, found rehearse, which is "
         "never native; leave one of them out");
  if (!has_native(device, recipe))
    fail(ExitCode::kEnvironment, "fp8", "fp8_execution native: ", lacks(device, recipe), "; take ",
         advice(device, recipe));
}

// Hopper's accumulators are those of Hopper's recipes, and are computed on CPUs.
void check_accumulators(const Request& request, const Device& device, bool rehearsed) {
  constexpr int kHopper = 90;
  if (request.accumulate == config::Fp8Accumulate::kFp32) return;
  const std::string asked = str("fp8_accumulate ", name_of(request.accumulate));
  if (!rehearsed || device.is_gpu)
    fail(ExitCode::kUsage, "fp8", asked, ": wanted a rehearsal on a CPU, found ", described(device),
         "; take device cpu, or leave it out");
  if (!traits_of(request.wanted.recipe).native.has(kHopper))
    fail(ExitCode::kUsage, "fp8", asked, ": wanted a recipe that Hopper has, found fp8_recipe ",
         name_of(request.wanted.recipe), "; leave one of them out");
}

}  // namespace

bool wants_fp8(const config::Settings& settings) {
  return settings.use_fp8 || settings.mixed_precision == config::Precision::kFp8;
}

Request request_of(const config::Settings& s) {
  return {.wanted = {.recipe = config::fp8_recipe_of(s),
                     .format = s.fp8_format,
                     .margin = s.fp8_margin,
                     .interval = s.fp8_interval,
                     .history = s.fp8_amax_history,
                     .algo = s.fp8_amax_algo,
                     .update = s.fp8_update,
                     .hadamard = s.fp4_hadamard,
                     .stochastic_rounding = s.fp4_stochastic_rounding,
                     .weight_blocks = s.fp4_weight_blocks},
          .execution = s.fp8_execution,
          .backend = s.use_te ? Fp8Backend::kTe : s.fp8_backend,
          .accumulate = s.fp8_accumulate};
}

bool has_native(const Device& device, Recipe recipe) {
  const RecipeTraits& row = traits_of(recipe);
  const int capability = capability_of(device);
  return device.is_gpu && row.native.has(capability) &&
         (row.libtorch.has(capability) || (row.in_transformer_engine && device.has_te));
}

Decision decide(const Request& request, const Device& device) {
  const Recipe recipe = request.wanted.recipe;
  if (request.execution == Fp8Execution::kNative) {
    require_native(request, device);
    check_accumulators(request, device, /*rehearsed=*/false);
    return native(request, device, recipe);
  }
  const bool rehearsed = request.execution == Fp8Execution::kRehearse ||
                         request.backend == Fp8Backend::kRehearse || !device.is_gpu;
  check_accumulators(request, device, rehearsed);
  if (rehearsed && device.is_gpu && !is_rehearsed_on_gpus(recipe))
    fail(ExitCode::kUsage, "fp8", "fp8_recipe ", name_of(recipe),
         ": wanted a CPU, where it is rehearsed, found ", described(device), "; take ",
         advice(device, recipe));
  if (rehearsed) return rehearsal(request, device);
  if (has_native(device, recipe)) return native(request, device, recipe);
  const std::optional<Recipe> fallback = traits_of(recipe).fallback;
  if (!fallback || !has_native(device, *fallback)) return bf16(request, device);
  Decision decision = native(request, device, *fallback);
  decision.warnings.insert(decision.warnings.begin(),
                           str(lacks(device, recipe), "; fp8_recipe ", name_of(*fallback),
                               " runs. Take ", advice(device, recipe)));
  return decision;
}

// Here and not in recipe.cpp: the library for other programs has that file without the
// configuration's names.
std::string_view format_name(const Options& options) {
  return is_fp4(options.recipe) ? "e2m1" : config::name_of(options.format);
}

}  // namespace octavo::fp8
