// torchtitan, Megatron, Trainer and FSDP; their readers.

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/expect_refused.h"
#include "migrate/import.h"
#include "migrate/read_python.h"
#include "migrate/read_shell.h"
#include "migrate/read_toml.h"
#include "migrate/shell_words.h"
#include "scratch.h"

namespace octavo::migrate {
namespace {

const ForeignEntry* entry_named(const std::vector<ForeignEntry>& entries, const std::string& path) {
  for (const ForeignEntry& entry : entries)
    if (entry.path == path) return &entry;
  return nullptr;
}

std::string value_named(const std::vector<ForeignEntry>& entries, const std::string& path) {
  const ForeignEntry* entry = entry_named(entries, path);
  if (entry == nullptr) return "(none)";
  if (entry->is_null) return "(null)";
  std::string all;
  for (const std::string& value : entry->values) all += (all.empty() ? "" : "|") + value;
  return all;
}

class ImportPrograms : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  Import of(const std::string& name, const std::string& text) {
    return import_files(config::Words{write(name, text)});
  }
  static const Finding* found(const Import& import, const std::string& id) {
    for (const Finding& finding : import.findings)
      if (finding.id == id) return &finding;
    return nullptr;
  }
  static config::Settings reread_yaml(const Import& import) {
    return config::parse_text(import_yaml(import), "imported.yaml").settings;
  }
  Scratch folder_;
};

// ---- TOML

TEST(Toml, Values) {
  const auto entries = toml_entries(
      "# c\ntop = 1\n[a.b]\nx = 0x10 # c\ny = 1_000\nz = -2.5e-3\ns = \"q\\\"\\u00e9\\n\"\n"
      "l = 'C:\\x'\nlist = [1, 'two', # c\n  true,\n]\nempty = []\nnested = [[1, 2], [3]]\n"
      "t = { u = 1, 'v w' = \"x\" }\nnone = {}\nd.e = false\n[[runs]]\nn = 1\n[[runs]]\nn = 2\n"
      "long = \"\"\"\nfirst\\\n   second\nthird\"\"\"\nday = 1979-05-27 07:32:00\nbig = inf\n",
      "t.toml");
  EXPECT_EQ(value_named(entries, "top"), "1");
  EXPECT_EQ(value_named(entries, "a.b.x"), "16");
  EXPECT_EQ(value_named(entries, "a.b.y"), "1000");
  EXPECT_EQ(value_named(entries, "a.b.z"), "-0.0025");
  EXPECT_EQ(value_named(entries, "a.b.s"), "q\"é\n");
  EXPECT_EQ(value_named(entries, "a.b.l"), "C:\\x");
  EXPECT_EQ(value_named(entries, "a.b.list"), "1|two|true");
  EXPECT_EQ(value_named(entries, "a.b.empty"), "");
  EXPECT_TRUE(entry_named(entries, "a.b.empty")->is_list);
  EXPECT_EQ(value_named(entries, "a.b.nested"), "[1, 2]|[3]");
  EXPECT_EQ(value_named(entries, "a.b.t.u"), "1");
  EXPECT_EQ(value_named(entries, "a.b.t.v w"), "x");
  EXPECT_EQ(value_named(entries, "a.b.none"), "(null)");
  EXPECT_EQ(value_named(entries, "a.b.d.e"), "false");
  EXPECT_EQ(value_named(entries, "runs.0.n"), "1");
  EXPECT_EQ(value_named(entries, "runs.1.n"), "2");
  EXPECT_EQ(value_named(entries, "runs.1.long"), "firstsecond\nthird");
  EXPECT_EQ(value_named(entries, "runs.1.day"), "1979-05-27 07:32:00");
  EXPECT_EQ(value_named(entries, "runs.1.big"), "inf");
  EXPECT_EQ(entry_named(entries, "a.b.y")->where, "t.toml:5");
}

TEST(Toml, Refusals) {
  for (const char* text : {"a",
                           "a =",
                           "= 1",
                           "a = 01",
                           "a = 1__0",
                           "a = .5",
                           "a = 1.",
                           "a = \"x",
                           "a = 'x\ny'",
                           "a = 1\na = 2",
                           "a = 1\na.b = 2",
                           "a.b = 1\na = 2",
                           "[t]\n[t]\n",
                           "a = [1 2]",
                           "a = {b = 1",
                           "a = \"\\q\"",
                           "a = \"\\ud800\"",
                           "[t",
                           "a = 99999999999999999999",
                           "a = 1 b = 2",
                           "a = \"\x01\"",
                           "a = nope"})
    config::expect_refused([&] { toml_entries(text, "t.toml"); }, {"t.toml"});
  const std::string deep = "a = " + std::string(100, '[') + std::string(100, ']');
  config::expect_refused([&] { toml_entries(deep, "t.toml"); }, {"at most 16 levels"});
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "k" + std::to_string(i) + " = 1\n";
  config::expect_refused([&] { toml_entries(many, "t.toml"); }, {"at most 1000 keys"});
}

// ---- Python, as data

constexpr const char* kRegistry =
    "import os\nfrom x import (\n    y,\n)\n\n"
    "def base() -> Trainer.Config:\n    \"\"\"Says what.\"\"\"\n    return Trainer.Config(\n"
    "        model_spec=model_registry(\"8B\"),  # c\n        training=TrainingConfig(steps=1_0, "
    "seq_len=-1, on=True, none=None),\n        optimizer=OptimizersContainer.Config(lr=8e-4),\n"
    "        odd=2 * 3,\n        names=['a', \"b\" 'c'],\n        kw={\"split\": \"train\"},\n    "
    ")\n\n"
    "def other():\n    config = base()\n    config.training.steps = 20\n"
    "    config.model_converters = C.Config(converters=[F8.Config(gather=True), Mx.Config()])\n"
    "    for layer in config.layers:\n        layer.x = 1\n    return config\n";

TEST(PythonConfig, CallsAreRead) {
  const auto entries = python_entries(kRegistry, "r.py", "base");
  EXPECT_EQ(value_named(entries, "config_name"), "base");
  EXPECT_EQ(value_named(entries, "model_spec.0"), "8B");
  EXPECT_EQ(value_named(entries, "training.steps"), "10");
  EXPECT_EQ(value_named(entries, "training.seq_len"), "-1");
  EXPECT_EQ(value_named(entries, "training.on"), "true");
  EXPECT_EQ(value_named(entries, "training.none"), "(null)");
  EXPECT_EQ(value_named(entries, "optimizer.class"), "OptimizersContainer");
  EXPECT_EQ(value_named(entries, "names"), "a|bc");
  EXPECT_EQ(value_named(entries, "kw.split"), "train");
  ASSERT_NE(entry_named(entries, "odd"), nullptr);
  EXPECT_TRUE(entry_named(entries, "odd")->is_code);
  EXPECT_EQ(value_named(entries, "odd"), "2 * 3");
}

TEST(PythonConfig, FunctionsBeginWithOthers) {
  const auto entries = python_entries(kRegistry, "r.py", "other");
  EXPECT_EQ(value_named(entries, "training.steps"), "20");
  EXPECT_EQ(value_named(entries, "optimizer.lr"), "8e-4");
  EXPECT_EQ(value_named(entries, "model_converters.converters"), "F8|Mx");
  EXPECT_EQ(value_named(entries, "model_converters.converters.F8.gather"), "true");
  const ForeignEntry* loop = entry_named(entries, "line 21");
  ASSERT_NE(loop, nullptr) << "what is not executed is listed";
  EXPECT_TRUE(loop->is_code);
}

TEST(PythonConfig, Refusals) {
  config::expect_refused([] { python_entries(kRegistry, "r.py", ""); },
                         {"one configuration", "base, other", "r.py:NAME"});
  config::expect_refused([] { python_entries(kRegistry, "r.py", "third"); }, {"named third"});
  config::expect_refused([] { python_entries("x = 1\n", "r.py", ""); }, {"none that can be read"});
  config::expect_refused([] { python_entries("x = (1\n", "r.py", ""); }, {"brackets that close"});
  config::expect_refused([] { python_entries("x = 1)\n", "r.py", ""); }, {"brackets that open"});
  config::expect_refused([] { python_entries("x = 'a\n", "r.py", ""); }, {"strings that end"});
  const std::string deep =
      "c = J(training=T(a=" + std::string(5000, '(') + std::string(5000, ')') + ", steps=1))\n";
  EXPECT_EQ(value_named(python_entries(deep, "r.py", "c"), "training.steps"), "1");
  // A function that begins with itself ends.
  const std::string loop = "def f():\n    c = f()\n    c.training.steps = 1\n    return c\n";
  EXPECT_EQ(value_named(python_entries(loop, "r.py", ""), "training.steps"), "1");
}

// ---- bash, as data

TEST(Shell, ListsAndVariables) {
  const ShellScript script = read_shell(
      "#!/bin/bash\n#SBATCH --nodes=4 --gpus-per-node=8\nexport A=1 B='x y'\nN=2\n"
      "TP=$((N * 4))\nPATH_=${1:-\"data/x\"}\nM=(--num-layers $N # c\n  \"--lr 1e-4\" \\\n)\n"
      "M+=(--tp ${TP} --name \"${N}b\")\nif [[ \"$N\" == 2 ]] && [ $TP -gt 4 ]; then\n"
      "  M+=(--yes)\nelse\n  M+=(--no)\nfi\nif [ -f x ]; then M+=(--never); fi\n"
      "for i in 1 2; do\n  N=$i\ndone\n"
      "torchrun --nproc_per_node 8 pretrain_gpt.py ${M[@]} --save $PATH_ --host $HOST --l 1 2 \\\n"
      "  --e=5 2>&1 | tee log\n",
      "s.sh");
  EXPECT_EQ(script.program, "pretrain_gpt.py");
  EXPECT_EQ(value_named(script.flags, "num-layers"), "2");
  EXPECT_EQ(value_named(script.flags, "lr"), "1e-4");
  EXPECT_EQ(value_named(script.flags, "tp"), "8");
  EXPECT_EQ(value_named(script.flags, "name"), "2b");
  EXPECT_EQ(value_named(script.flags, "yes"), "true");
  EXPECT_EQ(value_named(script.flags, "no"), "(none)");
  EXPECT_EQ(value_named(script.flags, "never"), "(none)");
  EXPECT_EQ(value_named(script.flags, "save"), "data/x");
  EXPECT_EQ(value_named(script.flags, "l"), "1|2");
  EXPECT_EQ(value_named(script.flags, "e"), "5");
  ASSERT_NE(entry_named(script.flags, "host"), nullptr);
  EXPECT_TRUE(entry_named(script.flags, "host")->is_code);
  EXPECT_EQ(value_named(script.launcher, "nodes"), "4");
  EXPECT_EQ(value_named(script.launcher, "nproc_per_node"), "8");
  EXPECT_EQ(value_named(script.exports, "export B"), "x y");
  EXPECT_EQ(script.others.size(), 2u) << "the test of a file, and the loop";
}

TEST(Shell, CommandsInAVariable) {
  const ShellScript script = read_shell(
      "O=\" --num-layers 3 \\\n  --hidden-size 64\"\nRUN=\"python train.py $O\"\neval $RUN\n",
      "s.sh");
  EXPECT_EQ(value_named(script.flags, "num-layers"), "3");
  EXPECT_EQ(value_named(script.flags, "hidden-size"), "64");
}

TEST(Shell, Arithmetic) {
  const ShellVariables none;
  EXPECT_EQ(shell_arithmetic("2 + 3*4", none), 14);
  EXPECT_EQ(shell_arithmetic("(2+3)*4 % 7", none), 6);
  EXPECT_EQ(shell_arithmetic("1/0", none), std::nullopt);
  EXPECT_EQ(shell_arithmetic("x+1", none), std::nullopt);
  EXPECT_EQ(shell_arithmetic("9223372036854775807+1", none), std::nullopt);
  EXPECT_EQ(shell_arithmetic("${x}*$x", {{"x", {{"3", false}}}}), 9);
}

TEST(Shell, HostileScriptsEnd) {
  std::string doubling = "A=aaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 40; ++i) doubling += "A=\"$A$A\"\n";
  config::expect_refused([&] { read_shell(doubling, "s.sh"); }, {"at most"});
  std::string lists = "A=(x x x x)\n";
  for (int i = 0; i < 40; ++i) lists += "A=(\"${A[@]}\" \"${A[@]}\")\n";
  config::expect_refused([&] { read_shell(lists, "s.sh"); }, {"at most"});
  std::string open;
  for (int i = 0; i < 20000; ++i) open += "${";
  read_shell(open, "s.sh");
  std::string nested = "echo ";
  for (int i = 0; i < 500; ++i) nested += "${a:-";
  read_shell(nested + std::string(500, '}') + "\n", "s.sh");
  for (const char* text :
       {"'", "\"", "`", "$(", "$((", "if", "if [[", "fi\nelse\n", "A=(", "<<", "<<E", "\\",
        "a=(\n)\n}", "case x in\n", "&& || ; | )", "#SBATCH", "export", "$"})
    read_shell(text, "s.sh");
}

// ---- torchtitan

constexpr const char* kTitanFile =
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = [\"float8\"]\n[training]\n"
    "local_batch_size = 2\nglobal_batch_size = 64\nseq_len = 4096\nsteps = 100\n"
    "[parallelism]\ndata_parallel_shard_degree = 8\ndata_parallel_replicate_degree = 2\n"
    "[float8]\nrecipe_name = \"rowwise\"\nenable_fsdp_float8_all_gather = true\n"
    "[activation_checkpoint]\nmode = \"full\"\n[compile]\nenable = true\n[lr_scheduler]\n"
    "warmup_steps = 10\n";

TEST_F(ImportPrograms, TorchtitanValuesArrive) {
  const Import import = of("t.toml", kTitanFile);
  ASSERT_FALSE(import.is_refused()) << import_text(import);
  const config::Settings s = reread_yaml(import);
  EXPECT_EQ(s, import.settings);
  EXPECT_EQ(s.model_name, "meta-llama/Llama-3.1-8B");
  EXPECT_EQ(s.init_from, "random");
  EXPECT_EQ(s.batch_size, 2);
  EXPECT_EQ(s.target_effective_batch_size, 64);
  EXPECT_EQ(s.max_seq_length, 4096);
  EXPECT_EQ(s.mixed_precision, config::Precision::kFp8);
  EXPECT_EQ(name_of(s.fp8_recipe), "rowwise");
  EXPECT_TRUE(s.fp8_all_gather);
  EXPECT_TRUE(s.gradient_checkpointing);
  EXPECT_EQ(s.sharding_mode, config::ShardingMode::kHybrid);
  EXPECT_EQ(s.learning_rate, 8e-4) << "torchtitan's default";
  EXPECT_EQ(s.min_lr_ratio, 0);
  EXPECT_EQ(import.parallel.gpus, 16);
  EXPECT_EQ(import.parallel.data(), 16);
  EXPECT_FALSE(import.parallel.is_assumed);
  EXPECT_EQ(import.stack, "compiled");
  EXPECT_FALSE(import.model);
}

TEST_F(ImportPrograms, TorchtitanWithoutConverterStaysBf16) {
  std::string text = kTitanFile;
  text.replace(text.find("\"float8\""), 8, "");
  const Import import = of("t.toml", text);
  EXPECT_EQ(import.settings.mixed_precision, config::Precision::kBf16);
  bool listed = false;
  for (const UnmappedKey& key : import.dropped) listed |= key.theirs == "float8.recipe_name";
  EXPECT_TRUE(listed) << "a section that is not read";
}

TEST_F(ImportPrograms, ModelParallelismKeepsGpusAndSamples) {
  const Import import = of(
      "t.toml",
      "[model]\nflavor = \"70B\"\n[training]\nlocal_batch_size = 16\nseq_len = 8192\nsteps = 10\n"
      "[lr_scheduler]\nwarmup_steps = 2\n[parallelism]\ndata_parallel_shard_degree = 32\n"
      "tensor_parallel_degree = 8\n");
  ASSERT_FALSE(import.is_refused()) << import_text(import);
  EXPECT_EQ(import.parallel.gpus, 256);
  EXPECT_EQ(import.parallel.data(), 32);
  EXPECT_EQ(import.settings.batch_size, 2);
  EXPECT_EQ(import.settings.target_effective_batch_size, 512);
  EXPECT_EQ(import.settings.sharding_mode, config::ShardingMode::kFsdpFull);
  ASSERT_NE(found(import, "model_parallel"), nullptr);
  config::expect_refused(
      [&] {
        of("h.toml",
           "[training]\nsteps = 300\n[parallelism]\ntensor_parallel_degree = 1000000\n"
           "pipeline_parallel_degree = 1000000\ncontext_parallel_degree = 1000000\n");
      },
      {"at most 1048576 GPUs"});
}

TEST_F(ImportPrograms, UnknownModelsAreRefused) {
  const Import import =
      of("t.toml", "[model]\nname = \"deepseek_v3\"\nflavor = \"671B\"\n[training]\nsteps = 300\n");
  ASSERT_NE(found(import, "other_model"), nullptr);
  EXPECT_TRUE(import.is_refused());
}

// ---- Megatron

constexpr const char* kMegatronArgs =
    "--num-layers 4 --hidden-size 256 --ffn-hidden-size 512 --num-attention-heads 8 "
    "--group-query-attention --num-query-groups 2 --normalization RMSNorm --swiglu "
    "--position-embedding-type rope --rotary-base 500000 --disable-bias-linear "
    "--untie-embeddings-and-output-weights --vocab-size 1000 --seq-length 512 "
    "--max-position-embeddings 512 --micro-batch-size 2 --global-batch-size 64 --train-iters 100 "
    "--lr 3e-4 --min-lr 3e-5 --lr-warmup-iters 10 --lr-decay-style cosine --bf16 "
    "--fp8-format hybrid --fp8-recipe blockwise --use-distributed-optimizer --world-size 16 "
    "--reset-attention-mask --unheard-of 7\n";

TEST_F(ImportPrograms, MegatronValuesArrive) {
  Import import = of("m.args", kMegatronArgs);
  ASSERT_FALSE(import.is_refused()) << import_text(import);
  const config::Settings s = reread_yaml(import);
  EXPECT_EQ(s.batch_size, 2);
  EXPECT_EQ(s.target_effective_batch_size, 64);
  EXPECT_EQ(s.max_steps, 100);
  EXPECT_EQ(s.warmup_steps, 10);
  EXPECT_DOUBLE_EQ(s.min_lr_ratio, 0.1);
  EXPECT_EQ(s.beta2, 0.999) << "Megatron's default";
  EXPECT_EQ(s.mixed_precision, config::Precision::kFp8);
  EXPECT_EQ(name_of(s.fp8_recipe), "blockwise");
  EXPECT_EQ(s.sharding_mode, config::ShardingMode::kZero1);
  EXPECT_TRUE(s.document_mask);
  EXPECT_EQ(import.parallel.gpus, 16);
  ASSERT_TRUE(import.model);
  EXPECT_EQ(import.model->refusal, "");
  EXPECT_EQ(import.model->config.kv_heads, 2);
  EXPECT_EQ(import.model->config.head_dim, 32);
  EXPECT_EQ(s.model_name, model_folder(import));
  place_model(import, "out/x_imported_model");
  EXPECT_EQ(reread_yaml(import).model_name, "out/x_imported_model");
  EXPECT_EQ(nlohmann::json::parse(model_json(import))["num_key_value_heads"], 2);
  bool listed = false;
  for (const UnmappedKey& key : import.dropped) listed |= key.theirs == "unheard-of";
  EXPECT_TRUE(listed);
}

// The files of a blend are not read; its weights are said in octavo's words.
TEST_F(ImportPrograms, MegatronBlendsSayTheirWeights) {
  const Import import = of("m.args", std::string(kMegatronArgs) + " --data-path 0.7 web 0.3 code");
  std::string why;
  for (const UnmappedKey& key : import.dropped)
    if (key.theirs == "data-path") why = key.why;
  EXPECT_NE(why.find("dataset: [{path: TEXT OF web, weight: 0.7}, {path: TEXT OF code, weight: "
                     "0.3}]"),
            std::string::npos)
      << why;
}

// The sizes of a published model are its name.
TEST_F(ImportPrograms, MegatronSizesHaveAName) {
  const Import import =
      of("m.args",
         "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
         "--group-query-attention --num-query-groups 8 --normalization RMSNorm --swiglu "
         "--position-embedding-type rope --rotary-base 500000 --disable-bias-linear "
         "--untie-embeddings-and-output-weights --vocab-size 128256 --micro-batch-size 1 "
         "--seq-length 8192\n");
  EXPECT_EQ(import.settings.model_name, "meta-llama/Meta-Llama-3-8B");
  EXPECT_FALSE(import.model);
}

TEST_F(ImportPrograms, MegatronGptIsCustom) {
  const Import import =
      of("m.args",
         "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-file v.json "
         "--max-position-embeddings 1024 --seq-length 1024 --micro-batch-size 4 --fp16\n");
  ASSERT_FALSE(import.is_refused()) << import_text(import);
  EXPECT_EQ(import.settings.model_name, "custom");
  EXPECT_EQ(import.settings.n_embd, 768);
  EXPECT_EQ(import.settings.vocab_size, 50257);
  EXPECT_EQ(import.settings.mixed_precision, config::Precision::kBf16);
}

TEST_F(ImportPrograms, MegatronWithoutEvaluation) {
  const Import import =
      of("m.args", std::string(kMegatronArgs) + " --eval-iters 0 --eval-interval 500\n");
  EXPECT_FALSE(import.is_refused()) << import_text(import);
  EXPECT_EQ(reread_yaml(import).eval_freq, 0);
}

TEST_F(ImportPrograms, MegatronMistakes) {
  EXPECT_TRUE(of("m.args", std::string(kMegatronArgs) + " --num-experts 8\n").is_refused());
  for (const char* wrong : {" --hidden-size none", " --num-layers 0", " --num-layers 16000000",
                            " --micro-batch-size -3", " --tensor-model-parallel-size 0"})
    config::expect_refused([&] { of("m.args", std::string(kMegatronArgs) + wrong + "\n"); },
                           {"wanted"});
  EXPECT_NE(found(of("m.args", std::string(kMegatronArgs) + " --qk-layernorm\n"), "other_block"),
            nullptr);
}

// ---- Trainer and FSDP

TEST_F(ImportPrograms, TrainerIsNotTakenForLlamaFactory) {
  write("f.json", R"({"reshard_after_forward": true, "activation_checkpointing": true})");
  const Import import = of("args.json", R"({"model_name_or_path": "org/m", "output_dir": "o",
    "per_device_train_batch_size": 2, "fsdp": "full_shard", "fsdp_config": "f.json", "bf16": true})");
  ASSERT_FALSE(import.is_refused()) << import_text(import);
  EXPECT_EQ(import.files.size(), 2u);
  EXPECT_NE(import.files.front().find("Trainer"), std::string::npos);
  EXPECT_EQ(import.settings.lora_rank, 0);
  EXPECT_EQ(import.settings.learning_rate, 5e-5);
  EXPECT_EQ(import.settings.sharding_mode, config::ShardingMode::kFsdpFull);
  EXPECT_TRUE(import.settings.gradient_checkpointing);
  EXPECT_EQ(import.stack, "hf");
}

TEST_F(ImportPrograms, AScriptWithoutLlamaFactorysFlagsIsTrainers) {
  const std::string common =
      "torchrun train.py --model_name_or_path org/m --per_device_train_batch_size 2 --bf16 "
      "--output_dir o ";
  const Import trainer = of("run.sh", common + "\n");
  EXPECT_TRUE(trainer.files.front().ends_with(": Hugging Face's Trainer")) << trainer.files.front();
  EXPECT_EQ(trainer.settings.lora_rank, 0);
  EXPECT_EQ(of("run.sh", common + "--stage sft --finetuning_type lora\n").settings.lora_rank, 8);
}

// How many GPUs "gpu" are, and how many nodes 1:4, the machine says.
TEST_F(ImportPrograms, TorchrunMayCountItself) {
  const auto gpus = [&](const std::string& flags) {
    return of("run.sh", "torchrun " + flags +
                            " run_clm.py --model_name_or_path org/m "
                            "--per_device_train_batch_size 2 --output_dir o --block_size 512\n")
        .parallel.gpus;
  };
  EXPECT_EQ(gpus("--nproc_per_node 4 --nnodes 2"), 8);
  EXPECT_EQ(gpus("--nproc_per_node=gpu --nnodes=2"), 0);
  EXPECT_EQ(gpus("--nproc_per_node=4 --nnodes=1:4"), 0);
}

// Accelerate's num_processes are those of all machines, whatever it starts.
TEST_F(ImportPrograms, LaunchersCountForEveryProgram) {
  const std::string common =
      " --model_name_or_path org/m --per_device_train_batch_size 2 --output_dir o ";
  const std::string programs[] = {"run_clm.py" + common + "--block_size 512\n",
                                  "sft.py" + common + "--dataset_name org/data --max_length 512\n",
                                  "train.py" + common + "--stage sft --cutoff_len 512\n"};
  for (const std::string& program : programs) {
    const auto gpus = [&](const std::string& launcher) {
      const Import import = of("run.sh", launcher + " " + program);
      for (const UnmappedKey& dropped : import.dropped)
        EXPECT_FALSE(dropped.theirs.starts_with("launch n")) << dropped.theirs << program;
      return import.parallel.gpus;
    };
    EXPECT_EQ(gpus("accelerate launch --num_processes 16 --num_machines 2"), 16) << program;
    EXPECT_EQ(gpus("torchrun --nproc_per_node 4 --nnodes 2"), 8) << program;
    EXPECT_EQ(gpus("torchrun --nproc_per_node=gpu"), 0) << program;
    EXPECT_EQ(gpus("python"), 0) << program;
  }
  // A flag wins over the file.
  const std::string file = write("a.yaml",
                                 "distributed_type: MULTI_GPU\nnum_processes: 8\n"
                                 "num_machines: 2\n"),
                    script = write("run.sh", "accelerate launch --num_processes 4 " + programs[1]),
                    plain = write("plain.sh", "accelerate launch " + programs[1]);
  EXPECT_EQ(import_files(config::Words{script, file}).parallel.gpus, 4);
  const Import of_file = import_files(config::Words{plain, file});
  EXPECT_EQ(of_file.parallel.gpus, 8);
  EXPECT_NE(import_text(of_file).find("--nproc 4 on each of 2 nodes"), std::string::npos)
      << import_text(of_file);
}

TEST_F(ImportPrograms, WhatMustBeImported) {
  EXPECT_TRUE(is_foreign("x.toml"));
  EXPECT_TRUE(is_foreign("r.py:llama3_8b"));
  EXPECT_FALSE(is_foreign("--gpu"));
  EXPECT_FALSE(is_foreign("/no/such.yaml"));
  EXPECT_FALSE(is_foreign(write("ours.yaml", "model_name: gpt2\nbatch_size: 4\n")));
  EXPECT_TRUE(is_foreign(write("lf.yaml", "stage: sft\ncutoff_len: 128\n")));
}

}  // namespace
}  // namespace octavo::migrate
