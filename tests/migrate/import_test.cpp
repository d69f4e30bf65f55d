#include "migrate/import.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/expect_refused.h"
#include "migrate/import_builder.h"
#include "scratch.h"

namespace octavo::migrate {
namespace {

class ImportFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  Import of(const std::string& name, const std::string& text) {
    return import_files(config::Words{write(name, text)});
  }
  Scratch folder_;
};

const Finding* finding(const Import& import, const std::string& id) {
  for (const Finding& found : import.findings)
    if (found.id == id) return &found;
  return nullptr;
}

bool is_dropped(const Import& import, const std::string& theirs) {
  for (const UnmappedKey& item : import.dropped)
    if (item.theirs == theirs) return !item.why.empty();
  return false;
}

// The text that a user would train with.
config::Settings reread(const Import& import) {
  return config::parse_text(import_yaml(import), "imported.yaml").settings;
}

constexpr const char* kTrain =
    "model_name_or_path: org/model\nstage: sft\nfinetuning_type: full\ndataset: org/data, "
    "rows.json\n"
    "template: qwen\ncutoff_len: 1024\nper_device_train_batch_size: 2\nlearning_rate: 1.0e-5\n"
    "num_train_epochs: 3.0\nlr_scheduler_type: cosine\nwarmup_steps: 20\nbf16: true\nfp8: true\n"
    "fp8_backend: te\nval_size: 0.1\neval_strategy: steps\neval_steps: 250\nmax_grad_norm: 0.5\n"
    "output_dir: saves/x\nsave_steps: 100\nlogging_steps: 10\nadapter_name_or_path: null\n"
    "max_samples: 1000\n";

TEST_F(ImportFiles, LlamaFactoryValuesArrive) {
  const Import import = of("train.yaml", kTrain);
  EXPECT_FALSE(import.is_refused());
  const config::Settings s = reread(import);
  EXPECT_EQ(s, import.settings);
  EXPECT_EQ(s.model_name, "org/model");
  EXPECT_EQ(s.dataset, (config::Words{"org/data", "rows.json"}));
  EXPECT_EQ(s.chat_template, config::ChatTemplate::kQwen2);
  EXPECT_EQ(s.max_seq_length, 1024);
  EXPECT_EQ(s.batch_size, 2);
  EXPECT_EQ(s.learning_rate, 1e-5);
  EXPECT_EQ(s.num_epochs, 3);
  EXPECT_EQ(s.min_lr_ratio, 0);
  EXPECT_EQ(s.warmup_steps, 20);
  EXPECT_EQ(s.mixed_precision, config::Precision::kFp8);
  EXPECT_EQ(s.fp8_backend, config::Fp8Backend::kTe);
  EXPECT_EQ(s.lora_rank, 0);
  EXPECT_EQ(s.val_fraction, 0.1);
  EXPECT_EQ(s.eval_freq, 250);
  EXPECT_EQ(s.max_grad_norm, 0.5);
  EXPECT_EQ(s.checkpoint_dir, "saves/x");
  EXPECT_EQ(s.checkpoint_freq, 100);
  EXPECT_EQ(s.log_freq, 10);
  EXPECT_TRUE(is_dropped(import, "max_samples"));
  EXPECT_NE(finding(import, "dataset_names"), nullptr);
}

// A run that relied on their defaults keeps them: octavo's are others.
TEST_F(ImportFiles, TheirDefaultsAreWrittenOut) {
  const config::Settings s =
      reread(of("train.yaml", "model_name_or_path: m\ndataset: a/b\nbf16: true\n"));
  EXPECT_EQ(s.lora_rank, 8);
  EXPECT_EQ(s.max_seq_length, 2048);
  EXPECT_EQ(s.learning_rate, 5e-5);
  EXPECT_EQ(s.num_epochs, 3);
  EXPECT_EQ(s.warmup_steps, 0);
  EXPECT_EQ(s.weight_decay, 0);
  EXPECT_EQ(s.beta2, 0.999);
  EXPECT_EQ(s.seed, 42);
  EXPECT_TRUE(s.gradient_checkpointing);
  EXPECT_FALSE(s.packing);
  EXPECT_EQ(s.eval_freq, 0);
}

TEST_F(ImportFiles, TheYamlNamesTheJson) {
  write("conf/ds.json", R"({"gradient_clipping": 0.25, "zero_optimization": {"stage": 2},
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}})");
  const std::string base =
      "model_name_or_path: m\ndataset: a/b\nbf16: true\nper_device_train_batch_size: 4\n"
      "gradient_accumulation_steps: 2\n";
  for (const char* name : {"conf/ds.json", "ds.json", "/workspace/elsewhere/ds.json"}) {
    const std::string yaml = write(std::string(name) == "conf/ds.json" ? "t.yaml" : "conf/t.yaml",
                                   base + "deepspeed: " + name + "\n");
    const Import import = import_files(config::Words{yaml});
    EXPECT_EQ(import.files.size(), 2u) << name;
    EXPECT_FALSE(import.is_refused());
    EXPECT_EQ(reread(import).max_grad_norm, 0.25);
    ASSERT_NE(finding(import, "gpus_implied"), nullptr);
    EXPECT_NE(finding(import, "gpus_implied")->problem.find("x 8 GPUs"), std::string::npos);
  }
  const Import other = import_files(config::Words{write("o.yaml", base + "deepspeed: other.json\n"),
                                                  (folder_ / "conf/ds.json").string()});
  EXPECT_NE(finding(other, "other_deepspeed_file"), nullptr);
  const Import alone = of("alone.yaml", base + "deepspeed: nowhere.json\n");
  EXPECT_NE(finding(alone, "deepspeed_file"), nullptr);
  EXPECT_TRUE(is_dropped(alone, "deepspeed"));
  const Import passwords = of("p.yaml", base + "deepspeed: /etc/passwd\n");  // not a .json
  EXPECT_EQ(passwords.files.size(), 1u);
}

TEST_F(ImportFiles, DeepSpeedOptimizerAndSchedule) {
  const config::Settings s = reread(of("ds.json", R"({"optimizer": {"type": "AdamW", "params":
    {"lr": 3e-4, "betas": [0.8, 0.9], "eps": 1e-7, "weight_decay": 0.01}}, "scheduler":
    {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 10, "total_num_steps": 500,
    "cos_min_ratio": 0.05}}, "fp16": {"enabled": true}})"));
  EXPECT_EQ(s.learning_rate, 3e-4);
  EXPECT_EQ(s.beta1, 0.8);
  EXPECT_EQ(s.beta2, 0.9);
  EXPECT_EQ(s.adam_eps, 1e-7);
  EXPECT_EQ(s.weight_decay, 0.01);
  EXPECT_EQ(s.warmup_steps, 10);
  EXPECT_EQ(s.max_steps, 500);
  EXPECT_EQ(s.min_lr_ratio, 0.05);
  EXPECT_EQ(s.mixed_precision, config::Precision::kBf16);
}

// Hugging Face's examples silence DeepSpeed with 1e5, which JSON has as a float.
TEST_F(ImportFiles, DeepSpeedPrintsSeldomOrNever) {
  EXPECT_EQ(reread(of("ds.json", R"({"steps_per_print": 1e5})")).log_freq, 100'000);
  const Import never = of("ds.json", R"({"steps_per_print": 0})");
  EXPECT_TRUE(is_dropped(never, "steps_per_print"));
  EXPECT_EQ(reread(never).log_freq, config::Settings{}.log_freq);
}

TEST_F(ImportFiles, WhatIsNotThereYetHasItsName) {
  const Import import = of("ds.json", R"({"zero_optimization": {"stage": 3}})");
  if (available_key("sharding_mode") != nullptr) {  // when it has come, it is carried by itself
    EXPECT_NE(import_yaml(import).find("sharding_mode: fsdp_full"), std::string::npos);
    return;
  }
  ASSERT_EQ(import.understood.size(), 1u);
  EXPECT_EQ(import.understood[0].ours, "sharding_mode: fsdp_full");
  EXPECT_EQ(import_yaml(import).find("sharding_mode"), std::string::npos);
}

// Every entry of a file stands in one of the lists, whatever it is.
TEST_F(ImportFiles, NothingIsLost) {
  const std::string text = std::string(kTrain) +
                           "made_up: 1\nmade:\n  up: {deep: [1, 2], empty: {}}\n"
                           "flash_attn: fa2\nresume_from_checkpoint: checkpoint-500\n"
                           "hf_hub_token: hf_abc\nuse_te: true\n";
  const Import import = of("train.yaml", text);
  const std::string json = import_json(import);
  for (const char* key :
       {"stage", "made_up", "made.up.deep", "made.up.empty", "flash_attn", "resume_from_checkpoint",
        "hf_hub_token", "use_te", "max_samples", "adapter_name_or_path", "bf16", "eval_strategy"})
    EXPECT_NE(json.find("\"theirs\": \"" + std::string(key) + "\""), json.npos) << key;
  EXPECT_EQ(json.find("hf_abc"), json.npos) << "a secret is shown";
  EXPECT_EQ(import_text(import).find("hf_abc"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(json)["yaml"], import_yaml(import));
}

TEST_F(ImportFiles, Repairs) {
  const std::string base = "model_name_or_path: m\ndataset: a/b\nbf16: true\n";
  const auto repaired = [&](const std::string& lines, const std::string& id) {
    const Import import = of("train.yaml", base + lines);
    const Finding* found = finding(import, id);
    EXPECT_TRUE(found != nullptr && found->verdict == Finding::Verdict::kRepaired) << id;
    if (found != nullptr) EXPECT_FALSE(found->cost.empty() || found->done.empty()) << id;
    EXPECT_FALSE(import.is_refused()) << id;
    return reread(import);
  };
  EXPECT_EQ(repaired("num_train_epochs: 0.5\n", "part_of_an_epoch").num_epochs, 1);
  EXPECT_EQ(repaired("max_steps: 10\nnum_train_epochs: 2\n", "two_lengths").num_epochs, 0);
  EXPECT_EQ(repaired("warmup_ratio: 0.1\n", "warmup_ratio").warmup_steps, -1);
  EXPECT_EQ(repaired("fp8: true\nfp8_backend: auto\n", "fp8_backend_auto").fp8_backend,
            config::Fp8Backend::kTe);
  EXPECT_EQ(repaired("fp8: true\nfp8_backend: msamp\n", "msamp").fp8_backend,
            config::Fp8Backend::kTe);
  EXPECT_EQ(repaired("eval_strategy: epoch\n", "nothing_to_evaluate").eval_freq, 0);
  EXPECT_EQ(repaired("eval_strategy: steps\neval_steps: 5\n", "nothing_to_evaluate").eval_freq, 0);
  EXPECT_EQ(repaired("val_size: 100\n", "validation_count").val_fraction, 0.1);
  EXPECT_EQ(repaired("quantization_bit: 4\n", "fewer_bits").lora_base, config::LoraBase::kFp8);
  EXPECT_EQ(repaired("template: gemma\n", "other_template").chat_template,
            config::ChatTemplate::kAuto);
  EXPECT_EQ(repaired("optim: adafactor\n", "other_optimizer").moment_dtype,
            config::StateType::kFp32);
  EXPECT_EQ(reread(of("r.yaml", base + "max_steps: 99\nwarmup_ratio: 0.1\n")).warmup_steps, 10);
  EXPECT_EQ(name_of(reread(of("a.yaml", base + "fp8: true\nfp8_backend: torchao\n")).fp8_recipe),
            "rowwise");
  const Import rank = of("l.yaml", base + "lora_rank: 32\nfp8: true\nfp8_backend: te\n");
  ASSERT_NE(finding(rank, "lora_hides_fp8"), nullptr);
  EXPECT_NE(finding(rank, "lora_hides_fp8")->cost.find("1.00x"), std::string::npos);
}

// The production file of the guides: its script takes the largest batch that fits.
TEST_F(ImportFiles, TheGuidesBatchIsFoundOnTheSpot) {
  const std::string guide =
      "dataset: fineweb-edu\nuse_fp8: true\nmax_batch_size: 128\n"
      "target_effective_batch_size: 512\nnum_epochs: 2\n";
  const Import import = of("fineweb_edu_fp8.yaml", guide);
  EXPECT_FALSE(import.is_refused());
  EXPECT_TRUE(reread(import).auto_batch_size);
  EXPECT_EQ(reread(import).max_batch_size, 128);
  ASSERT_NE(finding(import, "adaptive_batch"), nullptr);
  EXPECT_EQ(reread(import).dataset, config::Words{"HuggingFaceFW/fineweb-edu"});
  EXPECT_EQ(reread(import).dataset_config, "sample-10BT");
  ASSERT_NE(finding(import, "short_dataset_name"), nullptr);
  EXPECT_EQ(reread(of("math.yaml", "dataset: openmathinstruct-2\nuse_fp8: true\n")).split_name,
            "train_1M");
  for (const char* own : {"auto_batch_size: false\n", "batch_size: 16\n"})
    EXPECT_FALSE(reread(of("own.yaml", guide + own)).auto_batch_size) << own;
}

TEST_F(ImportFiles, Refusals) {
  const std::string base = "model_name_or_path: m\ndataset: a/b\n";
  const auto refuses = [&](const std::string& lines, const std::string& id) {
    const Import import = of("train.yaml", base + lines);
    const Finding* found = finding(import, id);
    EXPECT_TRUE(found != nullptr && found->verdict == Finding::Verdict::kRefused) << id;
    EXPECT_TRUE(import.is_refused()) << id;
    EXPECT_EQ(nlohmann::json::parse(import_json(import))["yaml"], "") << id;
  };
  refuses("bf16: true\nfp16: true\n", "two_precisions");
  refuses("stage: dpo\n", "other_stage");
  refuses("finetuning_type: freeze\n", "other_finetuning");
  refuses("finetuning_type: full\nquantization_bit: 4\n", "quantized_full");
  refuses("load_in_fp8: true\n", "load_in_fp8");
  refuses("warmup_steps: 20\nmax_steps: 10\n", "contradiction");
}

TEST_F(ImportFiles, HostileFiles) {
  const auto refused = [&](const std::string& name, const std::string& text,
                           std::initializer_list<std::string> parts) {
    const std::string path = write(name, text);
    config::expect_refused([&] { import_files(config::Words{path}); }, parts);
  };
  refused("a.json", R"({"bf16": {"enabled": 1}, "bf16": {"enabled": 2}})", {"appears twice"});
  refused("a.json", R"({"a": {"b": 1}, "a.b": 2, "zero_optimization": {"stage": 1}})", {"twice"});
  refused("a.json", "[1]", {"a JSON object"});
  refused("a.json", "{", {"not acceptable JSON"});
  refused("a.json", std::string(100, '[') + std::string(100, ']'), {"nested deeper"});
  refused("a.json", R"({"zero_optimization": {"stage": 9}})", {"stage", "from 0 to 3", "found 9"});
  refused("a.json", R"({"zero_optimization": {"stage": "x"}})", {"an integer", "found x"});
  refused("a.json", R"({"optimizer": {"params": {"betas": [0.9]}}})", {"two numbers"});
  refused("a.json", R"({"train_batch_size": 1e300})", {"an integer"});
  refused("a.json", R"({"surprise": 1})", {"none of their keys", "surprise"});
  refused("a.yaml", "stage: &x sft\n", {"anchor"});
  refused("a.yaml", "stage: sft\nstage: pt\n", {"again"});
  refused("a.yaml", "lr_scheduler_kwargs: {a: 1}\nlr_scheduler_kwargs: {b: 1}\n", {"again"});
  refused("a.yaml", "cutoff_len: [1, 2]\n", {"cutoff_len", "found [1, 2]"});
  refused("a.yaml", "cutoff_len: long\n", {"a.yaml:1", "an integer from 1", "correct it"});
  refused("a.yaml", "bf16: perhaps\nfp8: 1\n", {"true or false", "perhaps"});
  refused("a.yaml", "num_train_epochs: nan\n", {"a number from"});
  refused("a.yaml", "", {"nothing in it"});
  refused("a.yaml", std::string(2 << 20, '#'), {"at most"});
  config::expect_refused([] { import_files(config::Words{"/no/such.yaml"}); }, {"no file"});
  config::expect_refused([] { import_files(config::Words{"/"}); }, {"no file"});
  const std::string one = write("one.yaml", "cutoff_len: 1\n"),
                    two = write("two.yaml", "stage: pt\n");
  config::expect_refused([&] { import_files(config::Words{one, two}); }, {"one file of each kind"});
}

// Untrusted names and values cannot write to the terminal or into the YAML.
TEST_F(ImportFiles, ControlCharactersAreEscaped) {
  const Import import =
      of("t.yaml",
         "model_name_or_path: \"m\\e[2J\\nmax_steps: 3\"\ndataset: a/b\nstage: sft\n"
         "\"made\\nup: 1\\e[2J\": \"\\e[2J\"\n\"\\xff\": \"\\x07\"\n");
  for (const std::string& text : {import_text(import), import_yaml(import), import_json(import)}) {
    EXPECT_EQ(text.find('\x1b'), text.npos);
    EXPECT_EQ(text.find("\nup"), text.npos);
  }
  EXPECT_EQ(reread(import).max_steps, 0);
  EXPECT_EQ(reread(import).model_name, "m\x1b[2J\nmax_steps: 3");
}

// Trainer takes numbers of steps below 1 as shares of the run.
TEST_F(ImportFiles, StepsMayBeSharesOfTheRun) {
  const std::string shares =
      "model_name_or_path: org/model\ndataset_name: org/data\nlogging_steps: 0.004\n"
      "save_steps: 0.25\neval_strategy: steps\neval_steps: 0.1\nwarmup_steps: 0.03\n";
  const Import known = of("sft.yaml", shares + "max_steps: 999\n");
  ASSERT_FALSE(known.is_refused()) << import_text(known);
  const config::Settings s = reread(known);
  EXPECT_EQ(s.log_freq, 4);
  EXPECT_EQ(s.checkpoint_freq, 250);
  EXPECT_EQ(s.eval_freq, 100);
  EXPECT_EQ(s.warmup_steps, 30);
  const Import open = of("sft.yaml", shares);
  ASSERT_FALSE(open.is_refused()) << import_text(open);
  EXPECT_NE(finding(open, "share_of_steps"), nullptr);
  for (const char* key : {"logging_steps", "save_steps", "eval_steps"})
    EXPECT_TRUE(is_dropped(open, key)) << key;
  EXPECT_EQ(reread(open).checkpoint_freq, config::Settings().checkpoint_freq);
  EXPECT_EQ(reread(of("sft.yaml",
                      "model_name_or_path: org/model\ndataset_name: org/data\n"
                      "save_steps: 500.0\n"))
                .checkpoint_freq,
            500);
}

// Trainer's keys are both programs'; what is not in the file is TRL's default.
TEST_F(ImportFiles, TrlIsNotTakenForLlamaFactory) {
  const Import import =
      of("sft.yaml",
         "model_name_or_path: org/model\ndataset_name: org/data\ndataset_train_split: train_1M\n"
         "output_dir: out\nper_device_train_batch_size: 2\nmax_steps: 100\n"
         "attn_implementation: flash_attention_2\nddp_timeout: 180000000\n");
  ASSERT_FALSE(import.is_refused()) << import_text(import);
  EXPECT_NE(import.files.front().find(": TRL"), std::string::npos);
  const config::Settings s = reread(import);
  EXPECT_EQ(s.lora_rank, 0) << "LLaMA-Factory's default would be LoRA of rank 8";
  EXPECT_EQ(s.dataset, (config::Words{"org/data"}));
  EXPECT_EQ(s.split_name, "train_1M");
  EXPECT_EQ(s.batch_size, 2);
  EXPECT_EQ(s.max_steps, 100);
  EXPECT_EQ(s.max_seq_length, 1024);
  EXPECT_DOUBLE_EQ(s.learning_rate, 2e-5);
  EXPECT_EQ(s.mixed_precision, config::Precision::kBf16);
  EXPECT_DOUBLE_EQ(s.dist_timeout, 1e6);
  EXPECT_TRUE(is_dropped(import, "attn_implementation"));
}

TEST_F(ImportFiles, TrlAdapters) {
  const config::Settings s = reread(
      of("sft.yaml",
         "model_name_or_path: org/model\ndataset_name: org/data\nuse_peft: true\nlora_r: 32\n"
         "lora_alpha: 16\nlora_target_modules: [q_proj, v_proj]\nload_in_4bit: true\n"
         "completion_only_loss: true\ngradient_checkpointing: false\nfp16: true\n"));
  EXPECT_EQ(s.lora_rank, 32);
  EXPECT_DOUBLE_EQ(static_cast<double>(s.lora_alpha), 16.0);
  EXPECT_EQ(s.lora_target_modules, (config::Words{"q_proj", "v_proj"}));
  EXPECT_EQ(s.train_on, config::TrainOn::kAnswer);
  EXPECT_FALSE(s.gradient_checkpointing);
  EXPECT_EQ(s.mixed_precision, config::Precision::kBf16);
  // Without use_peft adapters' keys say nothing, and frozen weights cannot be trained.
  const Import off = of("off.yaml",
                        "model_name_or_path: org/model\ndataset_name: org/data\nlora_r: 32\n"
                        "load_in_4bit: true\n");
  EXPECT_TRUE(is_dropped(off, "lora_r"));
  EXPECT_NE(finding(off, "quantized_full"), nullptr);
}

constexpr const char* kAccelerate =
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: fp8\n"
    "num_processes: 8\nnum_machines: 2\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\n"
    "fsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n  fsdp_activation_checkpointing: true\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    "fp8_config:\n  backend: TE\n  fp8_format: HYBRID\n  amax_history_length: 1024\n"
    "  amax_compute_algorithm: max\n  margin: 1\n  interval: 1\n  override_linear_precision: "
    "false\n";

TEST_F(ImportFiles, AccelerateValuesArrive) {
  const Import import = of("accelerate.yaml", kAccelerate);
  ASSERT_FALSE(import.is_refused()) << import_text(import);
  const config::Settings s = reread(import);
  EXPECT_EQ(s.sharding_mode, config::ShardingMode::kHybrid);
  EXPECT_EQ(s.mixed_precision, config::Precision::kFp8);
  EXPECT_EQ(s.fp8_format, config::Fp8Format::kHybrid);
  EXPECT_EQ(s.fp8_margin, 1);
  EXPECT_EQ(s.fp8_amax_history, 1024);
  EXPECT_TRUE(s.gradient_checkpointing);
  const std::string text = import_text(import);
  EXPECT_NE(text.find("--nproc"), text.npos) << text;
  EXPECT_NE(text.find("--master_address"), text.npos) << text;
  EXPECT_TRUE(is_dropped(import, "fsdp_config.fsdp_auto_wrap_policy"));
}

// How a run is started is in one file, what it trains in another.
TEST_F(ImportFiles, AccelerateBesideTrl) {
  const std::string how = write("accelerate.yaml", kAccelerate),
                    what = write("sft.yaml",
                                 "model_name_or_path: org/model\ndataset_name: org/data\n"
                                 "bf16: true\n");
  const Import import = import_files(config::Words{what, how});
  EXPECT_FALSE(import.is_refused()) << import_text(import);
  EXPECT_EQ(import.settings.mixed_precision, config::Precision::kFp8);
  EXPECT_EQ(import.settings.model_name, "org/model");
}

TEST_F(ImportFiles, AccelerateWithDeepSpeed) {
  const config::Settings s =
      reread(of("a.yaml",
                "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n"
                "  zero_stage: 3\n  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n"
                "  offload_param_device: none\n"));
  EXPECT_EQ(s.sharding_mode, config::ShardingMode::kFsdpFull);
  EXPECT_EQ(s.gradient_accumulation_steps, 4);
  EXPECT_DOUBLE_EQ(s.max_grad_norm, 0.5);
}

TEST_F(ImportFiles, GradientsTravelInBf16) {
  for (const char* type : {"fp32", "bf16", "fp16"}) {
    const Import import = of("ds.json", std::string("{\"communication_data_type\": \"") + type +
                                            "\", \"zero_optimization\": {\"stage\": 1}}");
    EXPECT_EQ(import.settings.grad_reduce_dtype, config::StateType::kBf16) << type;
    EXPECT_EQ(finding(import, "fp32_communication") != nullptr, std::string(type) == "fp32");
  }
}

TEST_F(ImportFiles, WhatCannotBeReadIsNamed) {
  const std::string toml = write("pyproject.toml", "[project]\nname = 'x'\n");
  config::expect_refused([&] { import_files(config::Words{toml}); },
                         {"wanted torchtitan's sections", "first project.name"});
  const std::string sweep =
      write("sweep.yaml", "parameters:\n  learning_rate:\n    values: [1, 2]\n");
  config::expect_refused([&] { import_files(config::Words{sweep}); },
                         {"a W&B sweep", "octavo sweep run", "sweep.yaml CONFIG.yaml"});
}

// Our keys in the tables exist, or are names of the design.
TEST(ImportTables, NameRealKeys) {
  for (const auto table :
       {llama_factory_mappings(), deepspeed_mappings(), trl_mappings(), accelerate_mappings(),
        trainer_mappings(), fsdp_mappings(), torchtitan_mappings(), megatron_mappings(),
        llama_factory_drops(), deepspeed_drops(), trl_drops(), accelerate_drops(), trainer_drops(),
        fsdp_drops(), torchtitan_drops(), megatron_drops()})
    for (const Mapping& mapping : table) {
      std::istringstream words{std::string(mapping.ours)};
      for (std::string name; words >> name;)
        EXPECT_TRUE(config::find_key(name) != nullptr || is_planned(name)) << name;
      EXPECT_FALSE(mapping.ours.empty() && mapping.how.empty()) << mapping.theirs;
    }
  for (const ForeignDefault& usual : llama_factory_defaults())
    EXPECT_NE(find_mapping(ForeignForm::kLlamaFactory, usual.theirs), nullptr) << usual.theirs;
  for (const ForeignDefault& usual : trl_defaults())
    EXPECT_NE(find_mapping(ForeignForm::kTrl, usual.theirs), nullptr) << usual.theirs;
  for (const ForeignDefault& usual : trainer_defaults())
    EXPECT_NE(find_mapping(ForeignForm::kTrainer, usual.theirs), nullptr) << usual.theirs;
  for (const ForeignDefault& usual : torchtitan_defaults())
    EXPECT_NE(find_mapping(ForeignForm::kTorchtitan, usual.theirs), nullptr) << usual.theirs;
  for (const ForeignDefault& usual : megatron_defaults())
    EXPECT_NE(find_mapping(ForeignForm::kMegatron, usual.theirs), nullptr) << usual.theirs;
  EXPECT_EQ(find_mapping(ForeignForm::kTrl, "finetuning_type"), nullptr);
}

TEST(ImportTables, DocsAreNotStale) {
  const std::string docs =
      read_file(fs::path(OCTAVO_SOURCE_DIR) / "docs/reference/import-keys.md", 1 << 20);
  EXPECT_NE(docs.find("<!-- tables -->\n" + import_tables()), docs.npos)
      << "put the output of build/release/bin/octavo config import behind <!-- tables --> in "
         "docs/reference/import-keys.md";
}

}  // namespace
}  // namespace octavo::migrate
