// Flags and values as other trainers and the guides write them.

#include "config/spellings.h"

#include <set>

#include "base/file.h"
#include "base/text.h"
#include "config/expect_refused.h"
#include "scratch.h"

namespace octavo::config {
namespace {

Settings given(const Words& words, const Arguments& arguments = kTrainArguments) {
  return parse(words, arguments).settings;
}

TEST(Spellings, TablesNameKeysThatExistAndNoneOfOurOwn) {
  std::set<std::string_view> seen;
  for (const std::string_view name : foreign_names()) {
    EXPECT_TRUE(seen.insert(name).second) << name << " twice";
    EXPECT_EQ(find_key(name), nullptr) << name << " is a key of ours";
    EXPECT_FALSE(spelling_hint(name).empty()) << name;
    if (const std::string_view ours = our_name(name); !ours.empty()) {
      ASSERT_NE(find_key(ours), nullptr) << name;
      EXPECT_EQ(find_key(ours)->name, ours) << name;
    }
  }
  EXPECT_GE(seen.size(), 120u);
  EXPECT_EQ(spelling_hint("batchsize"), "");
}

TEST(Spellings, ThatMeanTheSameAreTaken) {
  const Settings s = given({"--lr",
                            "2e-4",
                            "--per_device_train_batch_size=4",
                            "--num-train-epochs",
                            "3",
                            "--logging_steps",
                            "5",
                            "--adam_beta2",
                            "0.9",
                            "--model_name_or_path",
                            "custom",
                            "--lora_r",
                            "8",
                            "--no_wandb",
                            "--tensorboard",
                            "--fp8",
                            "--n_layer",
                            "1",
                            "--n_head",
                            "1",
                            "--n_embd",
                            "8"});
  EXPECT_EQ(s.learning_rate, 2e-4);
  EXPECT_EQ(s.batch_size, 4);
  EXPECT_EQ(s.num_epochs, 3);
  EXPECT_EQ(s.log_freq, 5);
  EXPECT_EQ(s.beta2, 0.9);
  EXPECT_EQ(s.model_name, "custom");
  EXPECT_EQ(s.lora_rank, 8);
  EXPECT_FALSE(s.use_wandb);
  EXPECT_TRUE(s.use_tensorboard);
  EXPECT_TRUE(s.use_fp8);
  EXPECT_EQ(given({"--training.steps", "7", "--optimizer.lr=0.5"}).max_steps, 7);
  EXPECT_EQ(given({"--total_steps", "7"}, {"schedule", reader::kSchedule}).max_steps, 7);
  EXPECT_EQ(given({"--gpus", "8"}, {"plan", reader::kPlan}).num_gpus, 8);
  EXPECT_EQ(given({"--nproc-per-node=2"}, {"launch", reader::kLaunch}).nproc, 2);
}

TEST(Spellings, NodesAreANumberOrARange) {
  const auto nodes = [](const std::string& text) {
    return given({"--nodes", text}, {"launch", reader::kLaunch});
  };
  EXPECT_EQ(nodes("4").nnodes, 4);
  EXPECT_EQ(nodes("4").least_nodes, 0);
  EXPECT_EQ(nodes("2:4").nnodes, 4);
  EXPECT_EQ(nodes("2:4").least_nodes, 2);
  EXPECT_EQ(given({"--nnodes=3:3"}, {"launch", reader::kLaunch}).least_nodes, 3);
  for (const char* wrong :
       {"", ":", "2:", ":4", "0:4", "4:2", "-1", "2:4:6", "2:65537", "a:b", "1.5"})
    expect_refused([&] { nodes(wrong); }, {"--nnodes", "MIN:MAX"});
}

TEST(Spellings, AreTheSameKey) {
  expect_refused(
      [] {
        given({"--lr", "1e-4", "--learning_rate", "2e-4"});
      },
      {"learning_rate", "twice"});
  expect_refused([] { given({"--lr", "much"}); }, {"--learning_rate", "wanted a number", "'much'"});
  expect_refused([] { given({"--lr"}); }, {"--learning_rate", "found nothing"});
  expect_refused(
      [] {
        given({"--lr", "1"}, kGenerateArguments);
      },
      {"--learning_rate", "not read by generate"});
}

TEST(Spellings, ThatSetAValue) {
  EXPECT_EQ(given({"--bf16"}).mixed_precision, Precision::kBf16);
  EXPECT_EQ(given({"--bf16", "True", "--seed", "3"}).seed, 3);
  EXPECT_EQ(given({"--fp32"}).mixed_precision, Precision::kFp32);
  EXPECT_EQ(given({"--mxfp8"}).fp8_recipe, Fp8Recipe::kMxfp8);
  EXPECT_EQ(given({"--use_fp4"}).fp8_recipe, Fp8Recipe::kNvfp4);
  EXPECT_TRUE(given({"--use_fp4"}).use_fp8);
  expect_refused([] { given({"--bf16", "false"}); }, {"--bf16", "--mixed_precision bf16"});
  expect_refused(
      [] {
        given({"--bf16", "--mixed_precision", "fp32"});
      },
      {"mixed_precision", "twice"});
}

TEST(Spellings, OfTheFile) {
  Scratch scratch;
  const std::string file = (scratch.path() / "c.yaml").string();
  write_file_atomic(file, "seed: 5\n");
  EXPECT_EQ(given({"--config", file}).seed, 5);
  EXPECT_EQ(given({"--config=" + file, "--batch_size", "2"}).seed, 5);
  EXPECT_EQ(parse(Words{"--config_file", file}, kTrainArguments).config_file, file);
  expect_refused([] { given({"--config"}); }, {"--config", "wanted a YAML file"});
  expect_refused([] { given({"--config", "--seed", "1"}); }, {"--config", "wanted a YAML file"});
  expect_refused(
      [] {
        given({"--config", "c.yaml"}, {"report", reader::kReport, 1, false});
      },
      {"unknown key 'config'", "without a flag"});
  // In a file they are answered, not taken: the schema has our names alone.
  write_file_atomic(file, "lr: 1\n");
  expect_refused([&] { given({file}); }, {":1", "unknown key 'lr'", "learning_rate"});
  // But for one, which the guides of Transformer Engine's users ask for.
  for (const auto& [text, recipe] : {std::pair{"use_fp4: true\n", Fp8Recipe::kNvfp4},
                                     {"use_fp4: false\n", Fp8Recipe::kDelayed},
                                     {"use_fp4: true\nuse_fp8: true\n", Fp8Recipe::kNvfp4}}) {
    write_file_atomic(file, text);
    EXPECT_EQ(given({file}).fp8_recipe, recipe) << text;
    EXPECT_EQ(given({file}).use_fp8, recipe == Fp8Recipe::kNvfp4) << text;
  }
  write_file_atomic(file, "use_fp4: perhaps\n");
  expect_refused([&] { given({file}); }, {":1", "use_fp4", "fp8_recipe: nvfp4"});
}

TEST(Spellings, ThatMeanSomethingElseAreAnswered) {
  const std::pair<Words, std::string> wanted[] = {
      {{"--fp16"}, "bf16 or fp8"},
      {{"--warmup_ratio", "0.1"}, "warmup_steps"},
      {{"--output_dir", "out"}, "checkpoint_dir"},
      {{"--deepspeed", "ds.json"}, "octavo config import"},
      {{"--optim", "adamw_torch"}, "AdamW"},
      {{"--report_to", "wandb"}, "--use_wandb"},
      {{"--lr_scheduler_type", "cosine"}, "min_lr_ratio"},
      {{"--overwrite_output_dir"}, "overwrite removes"},
      {{"--tensor_model_parallel_size", "2"}, "fsdp_full"}};
  for (const auto& row : wanted) expect_refused([&] { given(row.first); }, {row.second});
}

TEST(ValueHints, SayWhatWasMeant) {
  const std::pair<Words, std::string> wanted[] = {
      {{"--mixed_precision", "bfloat16"}, "did you mean bf16?"},
      {{"--mixed_precision", "BF16"}, "did you mean bf16?"},
      {{"--mixed_precision", "fp16"}, "FP16 is not implemented"},
      {{"--fp8_recipe", "DelayedScaling"}, "did you mean delayed?"},
      {{"--fp8_recipe", "blockwize"}, "did you mean blockwise?"},
      {{"--fp8_format", "HYBRID"}, "did you mean hybrid?"},
      {{"--fp8_backend", "transformer-engine"}, "did you mean te?"},
      {{"--sharding_mode", "FULL_SHARD"}, "did you mean fsdp_full?"},
      {{"--device", "gpu"}, "did you mean cuda?"},
      {{"--max_steps", "1e4"}, "write 10000"},
      {{"--max_steps", "10k"}, "write 10000"},
      {{"--max_steps", "10_000"}, "write 10000"},
      {{"--max_steps", "10,000"}, "write 10000"},
      {{"--num_epochs", "3.0"}, "write 3"},
      {{"--learning_rate", "3,5e-4"}, "write 0.00035"},
      {{"--val_fraction", "10%"}, "write 0.1"}};
  for (const auto& row : wanted) expect_refused([&] { given(row.first); }, {row.second});
}

// A hint that is none would send people astray.
TEST(ValueHints, AreSilentWhereNothingIsKnown) {
  const auto hint = [](const char* key, const std::string& value) {
    return value_hint(*find_key(key), Words{value});
  };
  EXPECT_EQ(hint("max_steps", "many"), "");
  EXPECT_EQ(hint("batch_size", "0"), "");
  EXPECT_EQ(hint("batch_size", "8.5"), "");
  EXPECT_EQ(hint("batch_size", "1e9"), "");  // beyond the most that it takes
  EXPECT_EQ(hint("max_steps", "1e300"), "");
  EXPECT_EQ(hint("max_steps", "nan"), "");
  EXPECT_EQ(hint("max_steps", "k"), "");
  EXPECT_EQ(hint("fp8_recipe", "qqqqqqqqqqqqqqqq"), "");
  EXPECT_EQ(hint("fp8_recipe", std::string(1000, 'd')), "");
  EXPECT_EQ(hint("prompt", "\xff"), "");
}

}  // namespace
}  // namespace octavo::config
