#include "fp8/execution.h"
#include "fp8/numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/error.h"

namespace octavo::fp8 {
namespace {

using config::Fp8Backend;
using config::Fp8Execution;
using config::name_of;

constexpr FormatChoice kChoicesOfFormat[] = {FormatChoice::kAuto, FormatChoice::kHybrid,
                                             FormatChoice::kE4m3, FormatChoice::kE5m2};
constexpr Fp8Execution kExecutions[] = {Fp8Execution::kAuto, Fp8Execution::kNative,
                                        Fp8Execution::kRehearse};
constexpr Fp8Backend kBackends[] = {Fp8Backend::kAuto, Fp8Backend::kTe, Fp8Backend::kAten,
                                    Fp8Backend::kRehearse};

const Device kCpu{.name = "Xeon"};
Device gpu(int major, int minor, bool has_te = true) {
  return {true, major, minor, has_te, "GPU"};
}
const std::vector<Device> kDevices = {kCpu,      gpu(8, 0),  gpu(8, 9),
                                      gpu(9, 0), gpu(10, 0), gpu(12, 0)};

// A decision, or the error that was met.
struct Outcome {
  std::optional<Decision> decision;
  ExitCode code = ExitCode::kOk;
  std::string message;
};

Outcome outcome_of(const Request& request, const Device& device) {
  try {
    return {.decision = decide(request, device)};
  } catch (const Error& error) {
    return {.code = error.code(), .message = error.what()};
  }
}

std::string text_of(const Request& request, const Device& device) {
  return str(device.major, ".", device.minor, device.has_te ? " te " : " ",
             name_of(request.wanted.recipe), " ", name_of(request.execution), " ",
             name_of(request.backend), " ", name_of(request.wanted.format), " margin ",
             request.wanted.margin);
}

bool any_has(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != line.npos; });
}

using Check = std::function<void(const Request&, const Device&, const Outcome&)>;

// Every device, with and without Transformer Engine, and every request.
void for_all(const Check& check) {
  for (const Device& device : kDevices)
    for (const bool has_te : {false, true})
      for (const Recipe recipe : kRecipes)
        for (const FormatChoice format : kChoicesOfFormat)
          for (const Fp8Execution execution : kExecutions)
            for (const Fp8Backend backend : kBackends)
              for (const int64_t margin : {0, 2}) {
                Device found = device;
                found.has_te = has_te;
                const Request request{
                    {.recipe = recipe, .format = format, .margin = margin}, execution, backend};
                SCOPED_TRACE(text_of(request, found));
                check(request, found, outcome_of(request, found));
              }
}

// n: native; d: native by delayed; b: BF16; r: rehearsal; for CPU, 8.0, 8.9, 9.0, 10.0, 12.0.
TEST(Execution, AutoOnEveryDevice) {
  const std::map<Recipe, std::string> wanted = {{Recipe::kDelayed, "rbnnnn"},
                                                {Recipe::kCurrent, "rbnnnn"},
                                                {Recipe::kRowwise, "rbbnnn"},
                                                {Recipe::kBlockwise, "rbbnnb"},
                                                {Recipe::kMxfp8, "rbddnd"}};
  for (const auto& [recipe, letters] : wanted)
    for (size_t i = 0; i < kDevices.size(); ++i) {
      const Request request{.wanted = {.recipe = recipe, .format = FormatChoice::kAuto}};
      SCOPED_TRACE(text_of(request, kDevices[i]));
      const Decision found = decide(request, kDevices[i]);
      const bool fell = found.options.recipe != recipe;
      if (fell) {
        EXPECT_EQ(found.options.recipe, Recipe::kDelayed);
      }
      const char letter = found.runs == Runs::kRehearsal ? 'r'
                          : found.runs == Runs::kBf16    ? 'b'
                          : fell                         ? 'd'
                                                         : 'n';
      EXPECT_EQ(letter, letters[i]);
      EXPECT_EQ(found.warnings.size(), letters[i] == 'b' || letters[i] == 'd' ? 1u : 0u);
    }
}

TEST(Execution, NativeRunsOrFails) {
  const std::map<Recipe, std::string> wanted = {{Recipe::kDelayed, "EEnnnn"},
                                                {Recipe::kCurrent, "EEnnnn"},
                                                {Recipe::kRowwise, "EEEnnn"},
                                                {Recipe::kBlockwise, "EEEnnE"},
                                                {Recipe::kMxfp8, "EEEEnE"}};
  for (const auto& [recipe, letters] : wanted)
    for (size_t i = 0; i < kDevices.size(); ++i) {
      const Request request{.wanted = {.recipe = recipe, .format = FormatChoice::kAuto},
                            .execution = Fp8Execution::kNative};
      SCOPED_TRACE(text_of(request, kDevices[i]));
      const Outcome outcome = outcome_of(request, kDevices[i]);
      EXPECT_EQ(outcome.decision ? 'n' : 'E', letters[i]);
    }
}

// On CPUs it is rehearsed, on 10.0 and 10.3 native by Transformer Engine. On other GPUs delayed
// runs, and what names it alone is refused.
TEST(Execution, FourBitsAreRehearsedOnCpusAndNativeByTransformerEngine) {
  Request request{.wanted = {.recipe = Recipe::kNvfp4, .format = FormatChoice::kAuto}};
  EXPECT_EQ(decide(request, kCpu).runs, Runs::kRehearsal);
  EXPECT_EQ(decide(request, kCpu).options.recipe, Recipe::kNvfp4);
  EXPECT_TRUE(decide(request, kCpu).warnings.empty());
  for (const int minor : {0, 3}) {
    const Decision native = decide(request, gpu(10, minor));
    EXPECT_EQ(native.runs, Runs::kNative);
    EXPECT_EQ(native.options.recipe, Recipe::kNvfp4);
    EXPECT_EQ(native.backend, "te");
    EXPECT_TRUE(native.warnings.empty());
  }
  const struct {
    Device device;
    const char* wanted;
  } others[] = {{gpu(9, 0), "10.0 or above and below 10.4, found a GPU of compute capability 9.0"},
                {gpu(12, 0), "10.0 or above and below 10.4, found"},
                {gpu(10, 0, /*has_te=*/false), "wanted Transformer Engine, found"}};
  for (const auto& [device, wanted] : others) {
    request.execution = Fp8Execution::kAuto;
    const Decision fell = decide(request, device);
    EXPECT_EQ(fell.options.recipe, Recipe::kDelayed);
    ASSERT_EQ(fell.warnings.size(), 1u);
    EXPECT_TRUE(any_has(fell.warnings, wanted) && any_has(fell.warnings, "device cpu"))
        << fell.warnings.front();
    request.execution = Fp8Execution::kNative;
    const Outcome native = outcome_of(request, device);
    EXPECT_FALSE(native.decision);
    EXPECT_TRUE(any_has({native.message}, wanted)) << native.message;
  }
  request.execution = Fp8Execution::kRehearse;
  const Outcome rehearsed = outcome_of(request, gpu(10, 0));
  EXPECT_FALSE(rehearsed.decision);
  EXPECT_TRUE(any_has({rehearsed.message}, "wanted a CPU, where it is rehearsed") &&
              any_has({rehearsed.message}, "fp8_recipe delayed, current"))
      << rehearsed.message;
  request.execution = Fp8Execution::kAuto;
  request.backend = Fp8Backend::kAten;
  const Decision by_te = decide(request, gpu(10, 0));
  EXPECT_EQ(by_te.backend, "te");
  EXPECT_TRUE(any_has(by_te.warnings, "wanted a recipe that libtorch has, found fp8_recipe nvfp4"));
}

TEST(Execution, KeysOfFourBitsThatAreNotRead) {
  Request request{.wanted = {.recipe = Recipe::kMxfp8, .format = FormatChoice::kAuto}};
  request.wanted.hadamard = request.wanted.weight_blocks = false;
  const Decision other = decide(request, kCpu);
  ASSERT_EQ(other.warnings.size(), 1u);
  EXPECT_TRUE(any_has(other.warnings, "fp4_hadamard, fp4_weight_blocks: read by fp8_recipe nvfp4"))
      << other.warnings.front();
  request.wanted.recipe = Recipe::kNvfp4;
  EXPECT_TRUE(decide(request, kCpu).warnings.empty());
  request.wanted.format = FormatChoice::kE5m2;
  EXPECT_TRUE(any_has(decide(request, kCpu).warnings, "E2M1 only"));
}

TEST(Execution, CapabilitiesBetweenTheGenerations) {
  for (const Recipe recipe : kRecipes) {
    EXPECT_FALSE(has_native(gpu(8, 6), recipe));
    EXPECT_TRUE(has_native(gpu(10, 3), recipe));
    EXPECT_TRUE(has_native(gpu(11, 0), recipe));
    EXPECT_EQ(has_native(gpu(10, 0, /*has_te=*/false), recipe), recipe != Recipe::kBlockwise);
    EXPECT_TRUE(has_native(gpu(9, 0, /*has_te=*/false), recipe) || recipe == Recipe::kMxfp8);
    EXPECT_EQ(has_native(gpu(12, 1), recipe),
              recipe != Recipe::kBlockwise && recipe != Recipe::kMxfp8);
    Device cpu = kCpu;
    cpu.major = 10;  // means nothing without a GPU
    EXPECT_FALSE(has_native(cpu, recipe));
  }
}

TEST(Execution, BackendOnHopper) {
  struct Row {
    Recipe recipe;
    bool has_te;
    Fp8Backend backend;
    std::string under_auto, under_native;  // '!' after a name: with a warning; "E": fails
  };
  const std::vector<Row> rows = {{Recipe::kDelayed, true, Fp8Backend::kAuto, "te", "te"},
                                 {Recipe::kDelayed, true, Fp8Backend::kTe, "te", "te"},
                                 {Recipe::kDelayed, true, Fp8Backend::kAten, "aten", "aten"},
                                 {Recipe::kDelayed, true, Fp8Backend::kRehearse, "rehearsal", "E"},
                                 {Recipe::kDelayed, false, Fp8Backend::kAuto, "aten", "aten"},
                                 {Recipe::kDelayed, false, Fp8Backend::kTe, "aten!", "E"},
                                 {Recipe::kDelayed, false, Fp8Backend::kAten, "aten", "aten"},
                                 {Recipe::kCurrent, true, Fp8Backend::kAuto, "te", "te"},
                                 {Recipe::kBlockwise, true, Fp8Backend::kAuto, "te", "te"},
                                 {Recipe::kBlockwise, false, Fp8Backend::kTe, "aten!", "E"},
                                 // Transformer Engine has no rowwise recipe.
                                 {Recipe::kRowwise, true, Fp8Backend::kAuto, "aten", "aten"},
                                 {Recipe::kRowwise, true, Fp8Backend::kTe, "aten!", "E"},
                                 {Recipe::kRowwise, false, Fp8Backend::kTe, "aten!", "E"},
                                 // By way of delayed, with a warning of its own.
                                 {Recipe::kMxfp8, true, Fp8Backend::kTe, "te!", "E"},
                                 {Recipe::kMxfp8, false, Fp8Backend::kTe, "aten!!", "E"},
                                 {Recipe::kMxfp8, false, Fp8Backend::kRehearse, "rehearsal", "E"}};
  for (const Row& row : rows)
    for (const Fp8Execution execution : {Fp8Execution::kAuto, Fp8Execution::kNative}) {
      const Device device = gpu(9, 0, row.has_te);
      const Request request{
          {.recipe = row.recipe, .format = FormatChoice::kAuto}, execution, row.backend};
      SCOPED_TRACE(text_of(request, device));
      const Outcome found = outcome_of(request, device);
      const std::string text =
          found.decision
              ? found.decision->backend + std::string(found.decision->warnings.size(), '!')
              : "E";
      EXPECT_EQ(text, execution == Fp8Execution::kAuto ? row.under_auto : row.under_native);
    }
}

// By mxfp8's GEMMs, which Transformer Engine alone gives the scales for.
TEST(Execution, BlockwiseOnBlackwell) {
  struct Row {
    bool has_te;
    Fp8Backend backend;
    std::string under_auto, under_native;  // as above; "b": BF16
  };
  const std::vector<Row> rows = {
      {true, Fp8Backend::kAuto, "te", "te"}, {true, Fp8Backend::kTe, "te", "te"},
      {true, Fp8Backend::kAten, "te!", "E"}, {false, Fp8Backend::kAuto, "b!", "E"},
      {false, Fp8Backend::kTe, "b!", "E"},   {false, Fp8Backend::kAten, "b!", "E"}};
  for (const Row& row : rows)
    for (const Fp8Execution execution : {Fp8Execution::kAuto, Fp8Execution::kNative}) {
      const Device device = gpu(10, 0, row.has_te);
      const Request request{
          {.recipe = Recipe::kBlockwise, .format = FormatChoice::kAuto}, execution, row.backend};
      SCOPED_TRACE(text_of(request, device));
      const Outcome found = outcome_of(request, device);
      const std::string text =
          !found.decision ? "E"
                          : (found.decision->runs == Runs::kBf16 ? "b" : found.decision->backend) +
                                std::string(found.decision->warnings.size(), '!');
      EXPECT_EQ(text, execution == Fp8Execution::kAuto ? row.under_auto : row.under_native);
      if (!row.has_te && found.decision) {
        EXPECT_TRUE(any_has(found.decision->warnings, "wanted Transformer Engine"));
      }
    }
}

TEST(Execution, FormatFollowsTheRecipeThatRuns) {
  const auto format_of = [](Recipe recipe, FormatChoice format, const Device& device) {
    return decide({.wanted = {.recipe = recipe, .format = format}}, device);
  };
  for (const Recipe recipe : {Recipe::kDelayed, Recipe::kCurrent}) {
    EXPECT_EQ(format_of(recipe, FormatChoice::kAuto, kCpu).options.format, FormatChoice::kHybrid);
    for (const FormatChoice format :
         {FormatChoice::kHybrid, FormatChoice::kE4m3, FormatChoice::kE5m2})
      EXPECT_EQ(format_of(recipe, format, kCpu).options.format, format);
  }
  for (const Recipe recipe : {Recipe::kRowwise, Recipe::kBlockwise, Recipe::kMxfp8})
    for (const FormatChoice format : kChoicesOfFormat) {
      const Decision found = format_of(recipe, format, kCpu);
      EXPECT_EQ(found.options.format, FormatChoice::kE4m3);
      const bool refused = format == FormatChoice::kHybrid || format == FormatChoice::kE5m2;
      EXPECT_EQ(found.warnings.size(), refused ? 1u : 0u);
      EXPECT_EQ(any_has(found.warnings, "fp8_format"), refused);
    }
  // mxfp8 on Hopper becomes delayed, which has all formats.
  EXPECT_EQ(format_of(Recipe::kMxfp8, FormatChoice::kAuto, gpu(9, 0)).options.format,
            FormatChoice::kHybrid);
  EXPECT_EQ(format_of(Recipe::kMxfp8, FormatChoice::kE5m2, gpu(9, 0)).options.format,
            FormatChoice::kE5m2);
}

TEST(Execution, SettingsOfDelayedThatAreNotRead) {
  const Options usual{.recipe = Recipe::kCurrent, .format = FormatChoice::kAuto};
  const auto warnings_of = [](const Options& wanted) {
    return decide({.wanted = wanted}, kCpu).warnings;
  };
  EXPECT_TRUE(warnings_of(usual).empty());
  Options changed[] = {usual, usual, usual, usual, usual};
  changed[0].margin = 1;
  changed[1].interval = 2;
  changed[2].history = 16;
  changed[3].algo = AmaxAlgo::kMostRecent;
  changed[4].update = Update::kStep;
  const std::string keys[] = {"fp8_margin", "fp8_interval", "fp8_amax_history", "fp8_amax_algo",
                              "fp8_update"};
  for (size_t i = 0; i < std::size(keys); ++i) {
    const std::vector<std::string> lines = warnings_of(changed[i]);
    ASSERT_EQ(lines.size(), 1u) << keys[i];
    for (size_t j = 0; j < std::size(keys); ++j)
      EXPECT_EQ(any_has(lines, keys[j]), i == j) << lines.front();
    changed[i].recipe = Recipe::kDelayed;
    EXPECT_TRUE(warnings_of(changed[i]).empty()) << keys[i];
  }
  Options all{Recipe::kMxfp8, FormatChoice::kAuto, 1, 2, 3, AmaxAlgo::kMostRecent, Update::kStep};
  const std::vector<std::string> lines = warnings_of(all);
  ASSERT_EQ(lines.size(), 1u);
  for (const std::string& key : keys) EXPECT_TRUE(any_has(lines, key)) << key;
  // They are read when mxfp8 becomes delayed: the one warning is of the recipe.
  const Decision fell = decide({.wanted = all}, gpu(9, 0));
  ASSERT_EQ(fell.warnings.size(), 1u);
  EXPECT_TRUE(any_has(fell.warnings, "fp8_recipe delayed runs"));
  all.recipe = Recipe::kDelayed;
  all.format = FormatChoice::kHybrid;
  EXPECT_EQ(fell.options, all);
}

TEST(Execution, HoppersAccumulatorsAreRehearsedOnCpusAndForItsRecipes) {
  Request request{.accumulate = config::Fp8Accumulate::kHopper};
  for (const Recipe recipe : kRecipes) {
    request.wanted.recipe = recipe;
    const Outcome found = outcome_of(request, kCpu);
    EXPECT_EQ(found.decision.has_value(), has_native(gpu(9, 0), recipe)) << name_of(recipe);
    EXPECT_EQ(found.code, found.decision ? ExitCode::kOk : ExitCode::kUsage);
  }
  request.wanted.recipe = Recipe::kDelayed;
  for (const Device& device : kDevices)
    for (const Fp8Execution execution : kExecutions) {
      request.execution = execution;
      const Outcome found = outcome_of(request, device);
      EXPECT_EQ(found.decision.has_value(), !device.is_gpu && execution != Fp8Execution::kNative)
          << text_of(request, device);
      if (device.is_gpu && execution != Fp8Execution::kNative)
        EXPECT_NE(found.message.find("fp8_accumulate hopper"), std::string::npos) << found.message;
    }
}

TEST(Execution, MessagesSayWantedFoundAndWhatToDo) {
  const Decision ampere = decide({}, {true, 8, 0, true, "A100"});
  ASSERT_EQ(ampere.warnings.size(), 1u);
  for (const char* part : {"fp8_recipe delayed", "wanted a GPU of compute capability 8.9 or above",
                           "found a GPU of compute capability 8.0, A100", "continues in BF16",
                           "fp8_execution rehearse"})
    EXPECT_TRUE(any_has(ampere.warnings, part)) << part << " in " << ampere.warnings.front();

  Request request{.execution = Fp8Execution::kNative};
  const Outcome on_cpu = outcome_of(request, kCpu);
  for (const char* part : {"fp8_execution native", "found a CPU, Xeon", "fp8_execution rehearse"})
    EXPECT_TRUE(any_has({on_cpu.message}, part)) << part << " in " << on_cpu.message;

  request.wanted.recipe = Recipe::kBlockwise;
  const Outcome blackwell = outcome_of(request, gpu(12, 0));
  for (const char* part :
       {"fp8_recipe blockwise", "compute capability 9.0 or above and below 12.0, found",
        "take fp8_recipe delayed, current, rowwise (native here)"})
    EXPECT_TRUE(any_has({blackwell.message}, part)) << part << " in " << blackwell.message;
}

// What every combination must keep.
TEST(Execution, NativeIsKeptOrRefused) {
  for_all([](const Request& request, const Device&, const Outcome& outcome) {
    if (request.execution != Fp8Execution::kNative) {
      EXPECT_TRUE(outcome.decision) << outcome.message;
      return;
    }
    if (!outcome.decision) {
      const bool contradiction = request.backend == Fp8Backend::kRehearse;
      EXPECT_EQ(outcome.code, contradiction ? ExitCode::kUsage : ExitCode::kEnvironment);
      for (const char* part : {"wanted", "found", ";"})
        EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
      return;
    }
    EXPECT_EQ(outcome.decision->runs, Runs::kNative);
    EXPECT_EQ(outcome.decision->options.recipe, request.wanted.recipe);
    if (request.backend != Fp8Backend::kAuto) {
      EXPECT_EQ(outcome.decision->backend, name_of(request.backend));
    }
  });
}

TEST(Execution, RehearsalWorksEverywhereAndKeepsTheRecipe) {
  for_all([](const Request& request, const Device& device, const Outcome& outcome) {
    const bool asked =
        request.execution == Fp8Execution::kRehearse || request.backend == Fp8Backend::kRehearse;
    if (!outcome.decision || (!asked && device.is_gpu)) return;
    EXPECT_EQ(outcome.decision->runs, Runs::kRehearsal);
    EXPECT_EQ(outcome.decision->options.recipe, request.wanted.recipe);
  });
}

TEST(Execution, BackendGoesWithWhatRuns) {
  for_all([](const Request&, const Device& device, const Outcome& outcome) {
    if (!outcome.decision) return;
    const Decision& found = *outcome.decision;
    EXPECT_NE(found.options.format, FormatChoice::kAuto);
    if (found.runs == Runs::kBf16) {
      EXPECT_EQ(found.backend, "");
      EXPECT_TRUE(device.is_gpu);
    } else if (found.runs == Runs::kRehearsal) {
      EXPECT_EQ(found.backend, "rehearsal");
    } else {
      EXPECT_TRUE(has_native(device, found.options.recipe));
      EXPECT_TRUE(found.backend == "aten" || (found.backend == "te" && device.has_te));
    }
  });
}

// A warning when, and only when, something else runs than was asked for.
TEST(Execution, NothingIsSilent) {
  for_all([](const Request& request, const Device& device, const Outcome& outcome) {
    if (!outcome.decision) return;
    const Decision& found = *outcome.decision;
    if (found.runs == Runs::kBf16) {
      EXPECT_EQ(found.warnings.size(), 1u) << "one clear warning";
      return;
    }
    const Recipe recipe = found.options.recipe;
    const FormatChoice format = request.wanted.format;
    const bool other_recipe = recipe != request.wanted.recipe;
    const bool other_format = format != FormatChoice::kAuto && format != found.options.format;
    const bool kernels = request.backend == Fp8Backend::kTe || request.backend == Fp8Backend::kAten;
    const bool other_backend = kernels && found.backend != name_of(request.backend);
    const bool unread = request.wanted.margin != 0 && recipe != Recipe::kDelayed;
    EXPECT_EQ(found.warnings.size(), size_t{other_recipe} + other_format + other_backend + unread);
    EXPECT_EQ(any_has(found.warnings, "fp8_recipe delayed runs"), other_recipe);
    EXPECT_EQ(any_has(found.warnings, "fp8_format"), other_format);
    EXPECT_EQ(any_has(found.warnings, "fp8_margin"), unread);
    if (other_backend) {
      EXPECT_TRUE(any_has(found.warnings, str("fp8_backend ", name_of(request.backend))));
    }
    EXPECT_TRUE(device.is_gpu || found.runs == Runs::kRehearsal);
  });
}

TEST(Execution, RequestOfSettings) {
  config::Settings s;
  EXPECT_FALSE(wants_fp8(s));
  s.use_fp8 = true;
  EXPECT_TRUE(wants_fp8(s));
  s = {.mixed_precision = config::Precision::kFp8};
  EXPECT_TRUE(wants_fp8(s));

  s.fp8_recipe = Recipe::kRowwise;
  s.fp8_format = FormatChoice::kE5m2;
  s.fp8_margin = 1;
  s.fp8_interval = 2;
  s.fp8_amax_history = 3;
  s.fp8_amax_algo = AmaxAlgo::kMostRecent;
  s.fp8_update = Update::kStep;
  s.fp8_accumulate = config::Fp8Accumulate::kHopper;
  s.fp8_execution = Fp8Execution::kNative;
  s.fp8_backend = Fp8Backend::kAten;
  const Request plain = request_of(s);
  EXPECT_EQ(plain.wanted, (Options{Recipe::kRowwise, FormatChoice::kE5m2, 1, 2, 3,
                                   AmaxAlgo::kMostRecent, Update::kStep}));
  EXPECT_EQ(plain.accumulate, config::Fp8Accumulate::kHopper);
  EXPECT_EQ(plain.execution, Fp8Execution::kNative);
  EXPECT_EQ(plain.backend, Fp8Backend::kAten);

  config::Settings guide;
  guide.use_te = true;
  guide.fp8_scenario = config::Fp8Scenario::kMxfp8;
  EXPECT_EQ(request_of(guide).backend, Fp8Backend::kTe);
  EXPECT_EQ(request_of(guide).wanted.recipe, Recipe::kMxfp8);
  // The defaults of the settings and of a recipe are the same, or "not read" would warn of them.
  Options usual;
  usual.format = FormatChoice::kAuto;
  EXPECT_EQ(request_of({}).wanted, usual);
}

}  // namespace
}  // namespace octavo::fp8
