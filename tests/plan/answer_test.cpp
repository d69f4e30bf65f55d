// The answer of a dozen lines, what would make a run faster, devices of one's own, and what was
// measured.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "expect_failure.h"
#include "named_recipe.h"
#include "plan/launches.h"
#include "plan/report.h"
#include "scratch.h"

namespace octavo::plan {
namespace {

config::Settings answer_settings(const char* model, const char* gpu) {
  config::Settings settings;
  settings.model_name = model;
  settings.gpu = gpu;
  settings.use_fp8 = true;
  return settings;
}

// The one that reads most bytes to quantize.
fp8::Recipe slowest_recipe() {
  return *std::ranges::max_element(fp8::kRecipes, {}, [](fp8::Recipe recipe) {
    const fp8::QuantizeCost& cost = fp8::traits_of(recipe).quantize_cost;
    return cost.read_bytes * (cost.reads_for_each_layout ? 2 : 1);
  });
}

TEST(Answer, HasAtMostThirteenLinesAndWhatDecides) {
  for (const char* model : {"gpt2", "llama-3.1-8b", "llama-3.1-70b", "Qwen3-30B-A3B"})
    for (const char* gpu : {"h100", "a100", "rtx4090", "b200"})
      for (const int64_t gpus : {1, 8, 1024}) {
        config::Settings settings = answer_settings(model, gpu);
        settings.num_gpus = gpus;
        settings.fp8_recipe = *std::rbegin(fp8::kRecipes);  // not native on most
        const Forecast f = forecast(settings);
        const std::string text = answer_of(f);
        SCOPED_TRACE(text);
        // The command to train and where the tables are follow: fifteen.
        EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 13);
        EXPECT_EQ(text.find("forecast, not a measurement"), 0u);
        EXPECT_NE(text.find(f.fits() ? "GB to use: it fits\n" : "it does NOT fit\n"), text.npos);
        EXPECT_NE(text.find(" for nine runs of ten"), text.npos);
        EXPECT_NE(text.find("octavo itself was never timed on a GPU"), text.npos);
        EXPECT_NE(text.find("scored blind with the model before this one: 64, half within 5%"),
                  text.npos);
        EXPECT_NE(text.find("; with this one, no longer blind: half within "), text.npos);
        EXPECT_EQ(text.find("lever: ") != text.npos, f.fits());
      }
}

// nvfp4 is in the table when it is asked for: native on B200, with what is assumed; elsewhere with
// what runs instead.
TEST(Answer, FourBitsAreForecastOrRefused) {
  config::Settings settings = answer_settings("llama-3.1-8b", "b200");
  EXPECT_EQ(text_of(forecast(settings)).find("nvfp4"), std::string::npos);
  settings.fp8_recipe = named_recipe("nvfp4");
  const Forecast native = forecast(settings);
  const RecipeForecast& row = native.recipes.back();
  EXPECT_EQ(row.recipe, RecipeOrBf16(named_recipe("nvfp4")));
  EXPECT_EQ(row.runs, row.recipe);
  EXPECT_TRUE(row.refusal.empty());
  EXPECT_GT(row.gain, 1.2);
  const std::string text = text_of(native);
  EXPECT_NE(text.find("nvfp4 in 84% of the blocks"), text.npos) << text;  // 27 of 32
  EXPECT_NE(text.find("FP8's share of the peak"), text.npos);
  settings.gpu = "h100";
  const Forecast refused = forecast(settings);
  EXPECT_EQ(refused.recipes.back().runs, RecipeOrBf16(fp8::kDefaultRecipe));
  EXPECT_NE(text_of(refused).find("nvfp4 is for compute capability 10: H100 SXM 80GB falls back to "
                                  "delayed"),
            std::string::npos);
}

TEST(Answer, RangeIsThatOfTheStackAndGpu) {
  const Forecast f = forecast(answer_settings("llama-3.2-1b", "h100"));
  const SpeedRange range = speed_range(f);
  const double speed = f.chosen().time.tokens_per_s;
  EXPECT_NEAR(range.high / speed, speed / range.low, 1e-9);
  double widest = 0;
  for (const HeldOutError& it : kStackErrors)
    if (it.name == "fused") widest = it.ninety;
  EXPECT_GE(range.high / speed - 1, widest - 1e-9);
}

// What a lever promises is what a forecast with it gives, and train would take it.
TEST(Levers, AreWhatTheyPromise) {
  int tried = 0;
  for (const char* model : {"gpt2-xl", "llama-3.2-1b", "llama-3.1-8b"})
    for (const int64_t gpus : {1, 8, 64}) {
      config::Settings settings = answer_settings(model, "b200");
      settings.num_gpus = gpus;
      settings.batch_size = 1;
      settings.gradient_accumulation_steps = 8;
      settings.gradient_checkpointing = true;
      settings.fp8_recipe = slowest_recipe();
      if (gpus > 1) settings.sharding_mode = config::ShardingMode::kFsdpFull;
      const Forecast before = forecast(settings);
      ASSERT_TRUE(before.fits());
      ASSERT_FALSE(before.levers.empty());
      double last = 1e9;
      for (const Lever& lever : before.levers) {
        SCOPED_TRACE(lever.what);
        const Forecast after = forecast(lever.settings);
        EXPECT_TRUE(after.fits());
        EXPECT_NEAR(after.chosen().time.tokens_per_s / before.chosen().time.tokens_per_s,
                    lever.gain, 1e-9);
        EXPECT_DOUBLE_EQ(after.memory().total, lever.bytes);
        EXPECT_GE(lever.gain, 1.02);
        EXPECT_LE(lever.gain, last);
        EXPECT_EQ(after.batch * after.accumulation, before.batch * before.accumulation);
        EXPECT_LE(broken_rules(lever.settings), broken_rules(settings));
        last = lever.gain, ++tried;
      }
      EXPECT_NE(answer_of(before).find("lever: " + before.levers.front().what), std::string::npos);
    }
  EXPECT_GT(tried, 20);
}

TEST(GpuFile, TakesWhatIsDifferent) {
  const Scratch scratch;
  const std::string path = (scratch.path() / "own.yaml").string();
  std::ofstream(path) << "like: H100 SXM\ntitle: ours\nmemory_gib: 60\nnetwork_gb_s: 12.5\n";
  const Gpu& own = wanted_gpu(path);
  EXPECT_EQ(own.title, "ours");
  EXPECT_EQ(own.name, path);
  EXPECT_DOUBLE_EQ(own.memory_gib, 60);
  EXPECT_DOUBLE_EQ(own.network_gb_s, 12.5);
  EXPECT_DOUBLE_EQ(own.bf16_tflops, wanted_gpu("h100").bf16_tflops);
  config::Settings settings = answer_settings("llama-3.2-1b", "h100");
  const Forecast h100 = forecast(settings);
  settings.gpu = path;
  const Forecast ours = forecast(settings);
  EXPECT_DOUBLE_EQ(ours.chosen().time.total, h100.chosen().time.total);
  EXPECT_LT(ours.memory_limit, h100.memory_limit);
  EXPECT_NE(answer_of(ours).find("of this GPU: none"), std::string::npos);
}

TEST(GpuFile, SaysWhatIsWrongAndWhatToType) {
  const Scratch scratch;
  const std::string path = (scratch.path() / "own.yml").string();
  const auto refused = [&](const char* text, const char* part) {
    std::ofstream(path) << text;
    expect_failure(ExitCode::kUsage, part, [&] { wanted_gpu(path); });
  };
  refused("memory_gib: 80\n", "wanted the line \"like: NAME\"");
  refused("like: h1000\n", "did you mean h100?");
  refused("like: h100\nmemory_gb: 80\n", "did you mean memory_gib?");
  refused("like: h100\nmemory_gib: -3\n", "wanted a number from 1 to 100000");
  refused("like: h100\nmultiprocessors: 1.5\n", "wanted a whole number");
  refused("like: h100\nbf16_tflops: [1, 2]\n", "found a list");
  refused("like: h100\nbf16_tflops: nan\n", "wanted a number");
  EXPECT_THROW(wanted_gpu((scratch.path() / "none.yaml").string()), Error);
}

TEST(Measured, MovesTheForecastToTheMachine) {
  const config::Settings settings = answer_settings("llama-3.2-1b", "h100");
  const Forecast paper = forecast(settings);
  const Measured slow{.what = "a run", .step = 1.25, .memory = 1.1};
  const Forecast ours = forecast(settings, {}, slow);
  EXPECT_NEAR(ours.chosen().time.total, 1.25 * paper.chosen().time.total, 1e-9);
  EXPECT_NEAR(ours.memory().total, 1.1 * paper.memory().total, 1);
  EXPECT_NEAR(ours.wanted_costs.hours, 1.25 * paper.wanted_costs.hours, 1e-6);
  EXPECT_NE(answer_of(ours).find("calibrated to what was measured: a run"), std::string::npos);
  // Half the rate of BF16 GEMMs: those of BF16 take twice as long, those of FP8 as long as before.
  const Gpu& gpu = wanted_gpu("h100");
  const double expected = 3 * gemm_seconds(gpu, Calibration::fitted(), 4096, 4096, 4096, false);
  const Measured layer = from_layer(gpu, 4096, 2 * expected, 0);
  EXPECT_NEAR(layer.bf16_rate, 0.5, 1e-9);
  const Forecast halved = forecast(settings, {}, layer);
  EXPECT_GT(halved.recipes.front().time.gemms, 1.7 * paper.recipes.front().time.gemms);
  EXPECT_DOUBLE_EQ(halved.recipes[1].time.gemms, paper.recipes[1].time.gemms);
}

// As counted on the fake device, of two layers.
TEST(Launches, AreAsCounted) {
  const fs::path path = fs::path(OCTAVO_SOURCE_DIR) / "tests/integration/gpu_launches.json";
  const Json counted = read_json(path);
  int cases = 0;
  const auto expect = [&](const std::string& name, RecipeOrBf16 recipe, Recompute recompute,
                          int64_t lora_rank) {
    if (!counted.contains(name)) return;
    const Json& it = counted[name];
    const double calls =
        it["launches"].get<double>() + it["gemms"].get<double>() + it["memsets"].get<double>();
    Workload work;
    work.shape.layers = 2;
    work.recipe = recipe, work.recompute = recompute, work.lora_rank = lora_rank;
    EXPECT_NEAR(own_calls(work), calls, 0.05 * calls) << name;
    ++cases;
  };
  expect("9.0 llama BF16 all", kBf16, Recompute::kNone, 0);
  expect(
      "9.0 llama BF16 all --master_dtype bf16 --moment_dtype fp8 --gradient_dtype bf16 "
      "--gradient_checkpointing true",
      kBf16, Recompute::kFull, 0);
  for (const fp8::Recipe recipe : fp8::kRecipes) {
    const int first = std::max(90, fp8::traits_of(recipe).native.first);
    const std::string of = str(first / 10, ".0 llama ", config::name_of(recipe), " te ");
    expect(of + "all", recipe, Recompute::kNone, 0);
    expect(of + "recomputed", recipe, Recompute::kFull, 0);
  }
  expect(str("8.9 llama ", config::name_of(fp8::kDefaultRecipe), " te adapters"),
         fp8::kDefaultRecipe, Recompute::kNone, 8);
  EXPECT_GE(cases, 7);
}

}  // namespace
}  // namespace octavo::plan
