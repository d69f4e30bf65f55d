#include "config/resolve.h"

#include <fstream>

#include "base/file.h"
#include "base/text.h"
#include "config/expect_refused.h"
#include "config/print.h"
#include "config/task.h"
#include "scratch.h"

namespace octavo::config {
namespace {

class Resolve : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    write_file_atomic(scratch_.path() / "c.yaml", text);
    return (scratch_.path() / "c.yaml").string();
  }
  Parsed parsed(const std::string& yaml, const Words& flags,
                const Arguments& arguments = kTrainArguments) {
    Words words = {write(yaml)};
    words.insert(words.end(), flags.begin(), flags.end());
    return parse(words, arguments);
  }
  // Whether it trains in FP8, and the one note about it without the folder's name.
  void expect_fp8(const std::string& yaml, const Words& flags, bool wanted,
                  const std::string& note) {
    const Parsed found = parsed(yaml, flags);
    const Settings& s = found.settings;
    EXPECT_EQ(s.use_fp8, wanted) << yaml << join(flags, " ");
    EXPECT_EQ(s.mixed_precision == Precision::kFp8, wanted) << yaml << join(flags, " ");
    std::string notes = join(found.notes, "\n");
    const std::string folder = scratch_.path().string() + "/";
    for (size_t at = notes.find(folder); at != notes.npos; at = notes.find(folder))
      notes.erase(at, folder.size());
    EXPECT_EQ(notes, note) << yaml << join(flags, " ");
  }
  Scratch scratch_;
};

TEST_F(Resolve, APrecisionFlagBeatsTheFileWhateverItsName) {
  expect_fp8("use_fp8: true\n", {}, true, "");
  expect_fp8("mixed_precision: fp8\n", {}, true, "");
  expect_fp8("seed: 1\n\nuse_fp8: true\n", {"--mixed_precision", "bf16"}, false,
             "FP8 off: --mixed_precision bf16 overrides use_fp8 in c.yaml:3");
  expect_fp8("mixed_precision: fp8\n", {"--no_use_fp8"}, false,
             "FP8 off: --no_use_fp8 overrides mixed_precision fp8 in c.yaml:1");
  expect_fp8("mixed_precision: bf16\n", {"--use_fp8"}, true,
             "FP8 on: --use_fp8 overrides mixed_precision bf16 in c.yaml:1");
  expect_fp8("mixed_precision: fp32\n", {"--use_fp8"}, true,
             "FP8 on: --use_fp8 overrides mixed_precision fp32 in c.yaml:1");
  expect_fp8("use_fp8: false\n", {"--mixed_precision", "fp8"}, true,
             "FP8 on: --mixed_precision fp8 overrides use_fp8 false in c.yaml:1");
  EXPECT_EQ(parsed("use_fp8: true\n", {"--mixed_precision", "fp32"}).settings.mixed_precision,
            Precision::kFp32);
  expect_fp8("use_fp8: true\n", {"--mixed_precision", "fp32"}, false,
             "FP8 off: --mixed_precision fp32 overrides use_fp8 in c.yaml:1");
}

TEST_F(Resolve, ARecipeAsksForFp8) {
  expect_fp8("", {"--fp8_recipe", "mxfp8"}, true, "FP8 on: --fp8_recipe mxfp8 asks for it");
  expect_fp8("", {"--fp8_recipe", "delayed"}, true, "FP8 on: --fp8_recipe delayed asks for it");
  expect_fp8("", {"--fp8_scenario", "mxfp8"}, true, "FP8 on: --fp8_scenario mxfp8 asks for it");
  expect_fp8("", {"--fp8_scenario", "none"}, false, "");
  expect_fp8("fp8_recipe: current\n", {}, true,
             "FP8 on: fp8_recipe current in c.yaml:1 asks for it");
  expect_fp8("mixed_precision: bf16\n", {"--fp8_recipe", "mxfp8"}, true,
             "FP8 on: --fp8_recipe mxfp8 overrides mixed_precision bf16 in c.yaml:1");
  expect_fp8("use_fp8: true\n", {"--fp8_recipe", "current"}, true, "");
  // A file may keep the recipe of its FP8 runs beside BF16.
  expect_fp8(
      "mixed_precision: bf16\nfp8_recipe: current\n", {}, false,
      "FP8 off: mixed_precision bf16 in c.yaml:1; fp8_recipe current in c.yaml:2 is not used");
  expect_fp8("fp8_recipe: current\n", {"--mixed_precision", "bf16"}, false,
             "FP8 off: --mixed_precision bf16 overrides fp8_recipe current in c.yaml:1");
}

// use_te and fp8_backend choose kernels. Without FP8 they do nothing, which is said.
TEST_F(Resolve, KernelsDoNotAskForFp8) {
  expect_fp8("", {"--use_te"}, false,
             "FP8 off: nothing asks for it (--use_fp8 does); --use_te is not used");
  expect_fp8("", {"--fp8_backend", "aten"}, false,
             "FP8 off: nothing asks for it (--use_fp8 does); --fp8_backend aten is not used");
  expect_fp8("use_te: true\n", {}, false,
             "FP8 off: nothing asks for it (--use_fp8 does); use_te in c.yaml:1 is not used");
  expect_fp8("", {"--mixed_precision", "bf16", "--use_te"}, false,
             "FP8 off: --mixed_precision bf16; --use_te is not used");
  expect_fp8("mixed_precision: bf16\nuse_te: true\n", {}, false,
             "FP8 off: mixed_precision bf16 in c.yaml:1; use_te in c.yaml:2 is not used");
  expect_fp8("fp8_skip: [last]\n", {}, false,
             "FP8 off: nothing asks for it (--use_fp8 does); fp8_skip in c.yaml:1 is not used");
  expect_fp8("use_te: true\n", {"--fp8_skip", "first,last"}, false,
             "FP8 off: nothing asks for it (--use_fp8 does); use_te in c.yaml:1 and --fp8_skip "
             "first,last are not used");
  expect_fp8("use_fp8: true\nfp8_skip: [last]\n", {}, true, "");
  expect_fp8("use_fp8: true\nuse_te: true\n", {"--mixed_precision", "bf16"}, false,
             "FP8 off: --mixed_precision bf16 overrides use_fp8 in c.yaml:1");
  for (const Words& flags : {Words{"--use_fp8", "--use_te"}, Words{"--mixed_precision", "fp8"},
                             Words{"--use_fp8", "--fp8_backend", "auto"}})
    expect_fp8("", flags, true, "");
  expect_fp8("fp8_backend: auto\nuse_te: false\n", {}, false, "");
}

TEST_F(Resolve, PrecisionRecipeAndKernelsAreExplainedInOneLine) {
  expect_fp8("mixed_precision: bf16\nfp8_scenario: mxfp8\nuse_te: true\n",
             {"--use_fp8", "--fp8_recipe", "current", "--fp8_backend", "aten"}, true,
             "FP8 on: --use_fp8 overrides mixed_precision bf16 in c.yaml:1; fp8_recipe current: "
             "--fp8_recipe current overrides fp8_scenario mxfp8 in c.yaml:2; fp8_backend aten: "
             "--fp8_backend aten overrides use_te in c.yaml:3");
  expect_fp8("use_fp8: true\nfp8_recipe: rowwise\n", {"--fp8_scenario", "mxfp8"}, true,
             "fp8_recipe mxfp8: --fp8_scenario mxfp8 overrides fp8_recipe rowwise in c.yaml:2");
}

// They compute in another precision than the run that saved the checkpoints.
TEST_F(Resolve, CheckpointsAreReadWhereTheRunSavedThem) {
  const auto folder = [&](const std::string& yaml, const Words& flags, const Arguments& verb) {
    return parsed(yaml, flags, verb).settings.checkpoint_dir;
  };
  EXPECT_EQ(folder("use_fp8: true\n", {"--mixed_precision", "fp32"}, kGenerateArguments),
            "checkpoints_fp8");
  EXPECT_EQ(folder("use_fp8: true\n", {}, kEvalArguments), "");
  EXPECT_EQ(folder("seed: 1\n", {"--fp8_recipe", "mxfp8"}, kDiagnoseArguments), "checkpoints");
  EXPECT_EQ(folder("checkpoint_dir: c\n", {"--fp8_recipe", "mxfp8"}, kDiagnoseArguments), "c");
  EXPECT_EQ(folder("use_fp8: true\n", {"--mixed_precision", "bf16"}, kTrainArguments), "");
}

TEST_F(Resolve, TheNewerNameOfARecipeOrBackendIsTheFlags) {
  const Parsed recipe = parsed("use_fp8: true\nfp8_scenario: mxfp8\n", {"--fp8_recipe", "current"});
  EXPECT_EQ(recipe.settings.fp8_scenario, Fp8Scenario::kNone);
  EXPECT_EQ(name_of(recipe.settings.fp8_recipe), "current");
  EXPECT_NE(recipe.notes.at(0).find("--fp8_recipe current overrides fp8_scenario mxfp8 in"),
            std::string::npos);
  const Parsed scenario =
      parsed("use_fp8: true\nfp8_recipe: rowwise\n", {"--fp8_scenario", "mxfp8"});
  EXPECT_EQ(name_of(scenario.settings.fp8_recipe), "mxfp8");
  const Parsed backend = parsed("use_fp8: true\nuse_te: true\n", {"--fp8_backend", "aten"});
  EXPECT_FALSE(backend.settings.use_te);
  EXPECT_EQ(parsed("fp8_backend: aten\n", {"--use_te"}).settings.fp8_backend, Fp8Backend::kTe);
}

TEST_F(Resolve, ContradictionsOfOneLevelAreRefused) {
  const auto refused = [&](const std::string& yaml, const Words& flags,
                           std::initializer_list<std::string> parts) {
    expect_refused([&] { parsed(yaml, flags); }, parts);
  };
  refused("", {"--mixed_precision", "bf16", "--use_fp8"},
          {"--mixed_precision bf16 and --use_fp8", "one_precision"});
  refused("", {"--mixed_precision", "fp8", "--no_use_fp8"},
          {"--mixed_precision fp8 and --no_use_fp8", "one_precision"});
  refused("", {"--mixed_precision", "bf16", "--fp8_recipe", "mxfp8"},
          {"--mixed_precision bf16 and --fp8_recipe mxfp8", "one_precision"});
  refused("", {"--fp8_scenario", "mxfp8", "--fp8_recipe", "delayed"},
          {"--fp8_scenario mxfp8 and --fp8_recipe delayed", "one_recipe"});
  refused("mixed_precision: bf16\nuse_fp8: true\n", {},
          {"mixed_precision bf16 in", ":1 and use_fp8 in", ":2", "one_precision"});
  refused("fp8_scenario: mxfp8\nfp8_recipe: delayed\n", {}, {"one_recipe"});
  refused("lora_rank: 8\nlora_base: fp8\n", {"--mixed_precision", "fp32"},
          {"lora_base", "low_state_has_low_products"});
  EXPECT_NO_THROW(parsed("mixed_precision: bf16\nuse_fp8: true\n", {}, kGenerateArguments));
  const Parsed asked = parsed("mixed_precision: bf16\nuse_fp8: true\n", {}, kVerifyArguments);
  EXPECT_EQ(asked.conflicts.size(), 1u) << "verify judges what train would refuse";
}

// What runs wrote before use_fp8 and mixed_precision were brought to agree.
TEST_F(Resolve, ConfigsOfOlderRunsAreRead) {
  Settings old;
  old.use_fp8 = true;
  EXPECT_TRUE(parsed(to_yaml(old), {}).settings.use_fp8);
  EXPECT_FALSE(parsed(to_yaml(old), {"--mixed_precision", "bf16"}).settings.use_fp8);
  old.use_fp8 = false;
  EXPECT_FALSE(parsed(to_yaml(old), {}).settings.use_fp8);
  EXPECT_TRUE(parsed(to_yaml(old), {}).notes.empty());
  old.mixed_precision = Precision::kFp8;
  old.fp8_scenario = Fp8Scenario::kMxfp8;
  EXPECT_TRUE(parsed(to_yaml(old), {}).settings.use_fp8);
}

TEST_F(Resolve, AShorterRunHasAShorterWarmup) {
  const std::string steps = "max_steps: 19073\nwarmup_steps: 715\n";
  const Parsed hundred = parsed(steps, {"--max_steps", "100"});
  EXPECT_EQ(hundred.settings.warmup_steps, 4);
  EXPECT_NE(hundred.notes.at(0).find(
                "warmup_steps 4: scaled to the run's 100 steps from 715 of 19073 in "),
            std::string::npos)
      << hundred.notes.at(0);
  EXPECT_EQ(parsed(steps, {"--max_steps", "1"}).settings.warmup_steps, 1);
  EXPECT_EQ(parsed(steps, {"--max_steps", "30000"}).settings.warmup_steps, 715);
  EXPECT_EQ(parsed(steps, {"--max_steps", "100", "--warmup_steps", "50"}).settings.warmup_steps,
            50);
  EXPECT_TRUE(parsed(steps, {}).notes.empty());
  const std::string epochs = "num_epochs: 2\nwarmup_steps: 2000\n";
  const Parsed cut = parsed(epochs, {"--max_steps", "100"});
  EXPECT_EQ(cut.settings.warmup_steps, 5);
  EXPECT_EQ(cut.settings.num_epochs, 0);
  EXPECT_EQ(cut.notes.size(), 2u);
  EXPECT_EQ(parsed(epochs, {"--max_steps", "50000"}).settings.warmup_steps, 2000);
  EXPECT_EQ(parsed(epochs, {"--num_epochs", "1"}).settings.warmup_steps, 1000);
  EXPECT_EQ(parsed(steps, {"--num_epochs", "1"}).settings.max_steps, 0);
  // What the file itself says wrong stays wrong.
  expect_refused(
      [&] {
        parsed("max_steps: 1760\nwarmup_steps: 2000\n", {"--max_steps", "500"});
      },
      {"warmup_fits"});
}

TEST(ResolveConfigs, EveryShippedConfigRunsFor100And1And500Steps) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(OCTAVO_SOURCE_DIR) / "configs")) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".yaml") || name.starts_with("sweep_")) continue;
    ++files;
    for (const char* steps : {"100", "1", "500"}) {
      const Words words = {entry.path().string(), "--max_steps", steps};
      EXPECT_NO_THROW({
        const Settings s = parse(words, kTrainArguments).settings;
        EXPECT_LE(s.warmup_steps, std::max<int64_t>(1, s.max_steps / 4)) << name << " " << steps;
      }) << name
         << " " << steps;
    }
  }
  EXPECT_GT(files, 10);
}

TEST_F(Resolve, GradientsAreReducedInThePrecisionOfTheRun) {
  EXPECT_EQ(parsed("use_fp8: true\n", {}).settings.grad_reduce_dtype, StateType::kBf16);
  EXPECT_EQ(parsed("mixed_precision: fp32\n", {}).settings.grad_reduce_dtype, StateType::kFp32);
  EXPECT_EQ(
      parsed("mixed_precision: fp32\ngrad_reduce_dtype: bf16\n", {}).settings.grad_reduce_dtype,
      StateType::kBf16);
}

TEST_F(Resolve, DefaultsOfTheTaskAreSaidWithTheirReason) {
  const Parsed pretraining = parsed("model_name: gpt2\ndataset: a.txt\n", {}, {"config check"});
  EXPECT_EQ(join(pretraining.defaults, "\n"),
            "learning_rate 6e-04: default for pretraining; --learning_rate sets it\n"
            "tokenizer: that of gpt2; --tokenizer names another");
  EXPECT_TRUE(pretraining.notes.empty());
  EXPECT_NE(show(pretraining).find("# default for pretraining"), std::string::npos);
  EXPECT_NE(show(pretraining).find("# that of gpt2"), std::string::npos);
  const std::string custom = "model_name: custom\nn_layer: 1\nn_head: 1\nn_embd: 8\n";
  EXPECT_EQ(parsed(custom + "dataset: a.txt\n", {}, {"config check"}).defaults.back(),
            "tokenizer: bytes, since model_name custom has none; --tokenizer names another");
  fs::create_directories(scratch_ / "d");
  write_file_atomic(scratch_.path() / "d" / "dataset.json", "{}");
  const std::string prepared = "dataset: " + (scratch_.path() / "d").string() + "\n";
  EXPECT_EQ(parsed(custom + prepared, {}, {"config check"}).defaults.back(),
            "tokenizer: that of the prepared data; --tokenizer names another");
  EXPECT_TRUE(parsed("learning_rate: 1e-3\ndataset: a.txt\ntokenizer: bytes\n", {}, {"x"})
                  .defaults.empty());
  // train says itself which tokenizer it found.
  EXPECT_EQ(parsed("dataset: a.txt\n", {}).defaults.size(), 1u);
  EXPECT_TRUE(parsed("", {}, kGenerateArguments).defaults.empty());
}

TEST_F(Resolve, ABoundOfTheBatchIsNoSearch) {
  const auto notes = [&](const std::string& text) { return join(parsed(text, {}).notes, "\n"); };
  EXPECT_NE(notes("max_batch_size: 128\n")
                .find("batch_size 8: default; max_batch_size 128 is a "
                      "bound alone, --auto_batch_size takes"),
            std::string::npos);
  for (const char* const more : {"auto_batch_size: true\n", "batch_size: 16\n"})
    EXPECT_EQ(notes(std::string("max_batch_size: 128\n") + more), "");
  EXPECT_EQ(notes("max_batch_size: 4\n"), "");
}

TEST_F(Resolve, TheDefaultLearningRateDependsOnTheTask) {
  EXPECT_EQ(parsed("", {}).settings.learning_rate, 6e-4);
  EXPECT_EQ(parsed("model_name: gpt2-xl\n", {}).settings.learning_rate, 6e-4);
  const Parsed tuned = parsed("model_name: meta-llama/Llama-3.2-1B\n", {});
  EXPECT_EQ(tuned.settings.learning_rate, 1e-5);
  EXPECT_EQ(tuned.notes.at(0),
            "learning_rate 1e-05: default for full fine-tuning (6e-04 is for random weights); "
            "--learning_rate sets it");
  EXPECT_NE(show(tuned).find("1e-05"), std::string::npos);
  EXPECT_NE(show(tuned).find("# default for full fine-tuning"), std::string::npos);
  EXPECT_EQ(parsed("model_name: a/b\nlora_rank: 8\n", {}).settings.learning_rate, 2e-4);
  EXPECT_EQ(parsed("model_name: a/b\ninit_from: random\n", {}).settings.learning_rate, 6e-4);
  EXPECT_EQ(parsed("model_name: custom\nn_layer: 1\nn_head: 1\nn_embd: 8\ninit_from: there\n", {})
                .settings.learning_rate,
            1e-5);
  EXPECT_EQ(parsed("model_name: a/b\nmax_lr: 6e-4\n", {}).settings.learning_rate, 6e-4);
  EXPECT_TRUE(parsed("model_name: a/b\nmax_lr: 6e-4\n", {}).notes.empty());
  // A folder that has a shape and no weights.
  fs::create_directories(scratch_ / "m");
  write_file_atomic(scratch_.path() / "m" / "config.json", "{}");
  const std::string folder = "model_name: " + (scratch_.path() / "m").string() + "\n";
  EXPECT_EQ(parsed(folder, {}).settings.learning_rate, 6e-4);
  write_file_atomic(scratch_.path() / "m" / "model.safetensors", "");
  EXPECT_EQ(parsed(folder, {}).settings.learning_rate, 1e-5);
}

}  // namespace
}  // namespace octavo::config
