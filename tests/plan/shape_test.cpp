#include "plan/shape.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/file.h"
#include "data/prepare.h"
#include "expect_failure.h"
#include "scratch.h"

namespace octavo::plan {
namespace {

config::Settings named(const std::string& model) {
  config::Settings settings;
  settings.model_name = model;
  return settings;
}

TEST(Shape, CountsArePublishedOnes) {
  EXPECT_EQ(parameters(shape_of(named("llama-3.1-8b"))), 8030261248);
  EXPECT_EQ(parameters(shape_of(named("meta-llama/Llama-3.2-1B-Instruct"))), 1235814400);
  EXPECT_EQ(parameters(shape_of(named("qwen2.5-14b"))), 14770033664);
  // GPT-2's 124439808 and the 47 rows that pad its vocabulary.
  EXPECT_EQ(parameters(shape_of(named("gpt2"))), 124439808 + 47 * 768);
}

// Names of the guides and of people's commands; a hub that cannot be reached would be an error.
TEST(Shape, KnownNamesNeedNoNetwork) {
  const Scratch scratch;
  ::setenv("HF_HOME", scratch.path().c_str(), 1);
  const std::pair<const char*, int64_t> wanted[] = {
      {"meta-llama/Meta-Llama-3.1-8B", 8030261248},
      {"meta-llama/Meta-Llama-3-8B-Instruct", 8030261248},
      {"meta-llama/Llama-3.3-70B-Instruct", 70553706496},
      {"Qwen/Qwen2.5-32B", 32763876352},
      {"HuggingFaceTB/SmolLM2-135M", 134515008},
      {"Qwen/Qwen3-0.6B", 596049920},
      {"Qwen/Qwen3-1.7B", 1720574976},
      {"Qwen/Qwen3-4B", 4022468096},
      {"Qwen/Qwen3-8B", 8190735360},
      {"Qwen/Qwen3-14B", 14768307200},
      {"Qwen/Qwen3-32B", 32762123264},
      {"Qwen/Qwen3-30B-A3B", 30532122624},
      {"Qwen/Qwen3-235B-A22B", 235093634560},
      {"mistralai/Mistral-7B-v0.3", 7248023552},
      {"HuggingFaceTB/SmolLM3-3B", 3075098624},
      {"google/gemma-3-1b-pt", 999885952},
      {"openai-community/gpt2", 124439808 + 47 * 768}};
  for (const auto& [name, count] : wanted) {
    config::Settings settings = named(name);
    settings.offline = true;
    EXPECT_EQ(parameters(shape_of(settings)), count) << name;
  }
  for (const char* name : {"google/gemma-2-9b", "openai/gpt-oss-20b"})
    expect_failure(ExitCode::kUsage, "not implemented; octavo names",
                   [&] { shape_of(named(name)); });
  ::unsetenv("HF_HOME");
}

// Qwen writes 30.5B in total and 3.3B activated, 235B and 22B.
TEST(Shape, OfExpertsATokenGoesThroughSome) {
  const Shape shape = shape_of(named("qwen3-30b-a3b"));
  // 8 of 128 experts of 3 x 768 x 2048 weights in each of 48 layers.
  EXPECT_EQ(parameters(shape) - active_parameters(shape), 48ll * 120 * 3 * 768 * 2048);
  EXPECT_EQ(active_parameters(shape), 3353032704);
  EXPECT_EQ(active_parameters(shape_of(named("qwen3-235b-a22b"))), 22190763520);
  EXPECT_EQ(router_parameters(shape), 48 * 128 * 2048);
  const Shape dense = shape_of(named("qwen3-8b"));
  EXPECT_EQ(active_parameters(dense), parameters(dense));
}

TEST(Shape, SomeLayersMayHaveNoExperts) {
  const Scratch scratch;
  const auto shape_with = [&](const char* fields) {
    write_file_atomic(scratch / "config.json",
                      std::string(R"({"model_type": "qwen3_moe", "num_hidden_layers": 4,
                        "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
                        "num_experts": 8, "num_experts_per_tok": 2,
                        "moe_intermediate_size": 32)") +
                          fields + "}");
    return shape_of(named(scratch.path().string()));
  };
  const int64_t experts = 8 * (3 * 32 + 1) * 64, mlp = 3 * 96 * 64;
  const Shape all = shape_with(""), some = shape_with(R"(, "mlp_only_layers": [0, 2, 3])");
  EXPECT_EQ(some.sparse_layers(), 1);
  EXPECT_EQ(parameters(all) - parameters(some), 3 * (experts - mlp));
  EXPECT_EQ(lora_parameters(all, 8, LoraTargets::kAll),
            lora_parameters(all, 8, LoraTargets::kAttention));
  EXPECT_EQ(lora_parameters(some, 8, LoraTargets::kAll) -
                lora_parameters(some, 8, LoraTargets::kAttention),
            3 * 3 * 8 * (96 + 64));
}

TEST(Shape, AFileSaysTheSameAsTheName) {
  const Scratch scratch;
  write_file_atomic(scratch / "config.json",
                    R"({"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584,
                        "intermediate_size": 18944, "num_attention_heads": 28,
                        "num_key_value_heads": 4, "vocab_size": 152064})");
  const Shape file = shape_of(named(scratch.path().string())), name = shape_of(named("qwen2.5-7b"));
  EXPECT_EQ(parameters(file), parameters(name));
  EXPECT_EQ(file.head_dim, 128);
  EXPECT_TRUE(file.qkv_bias);
}

// As train does: of the data, of the tokenizer, or bytes.
TEST(Shape, TheVocabularyIsTheConfigsOwn) {
  config::Settings s = named("custom");
  s.n_layer = s.n_head = 1;
  s.n_embd = 64;
  EXPECT_EQ(shape_of(s).vocab, 50304);
  s.tokenizer = "bytes";
  EXPECT_EQ(shape_of(s).vocab, 320);  // 257, padded to a multiple of 64
  s.tokenizer.clear();
  s.dataset = {"a text.txt"};
  EXPECT_EQ(shape_of(s).vocab, 320);
  s.vocab_size = 1000;
  EXPECT_EQ(shape_of(s).vocab, 1024);
  s = named("gpt2");
  s.tokenizer = "bytes";
  EXPECT_EQ(parameters(shape_of(s)), 124439808 - (50257 - 320) * 768);
}

TEST(Shape, TheVocabularyOfPreparedDataIsTaken) {
  const Scratch scratch;
  write_file_atomic(scratch / "a.txt", std::string(5000, 'a') + std::string(5000, 'b'));
  data::PrepareOptions options;
  options.inputs = {scratch / "a.txt"};
  options.tokenizer = "bytes";
  options.output = scratch / "prepared";
  data::prepare(options);
  config::Settings s = named("gpt2");
  s.dataset = {(scratch / "prepared").string()};
  EXPECT_EQ(shape_of(s).vocab, 320);
}

TEST(Shape, HostileFilesAreRefused) {
  const Scratch scratch;
  const auto refuse = [&](const std::string& text, ExitCode code, const std::string& part) {
    write_file_atomic(scratch / "config.json", text);
    expect_failure(code, part, [&] { shape_of(named(scratch.path().string())); });
  };
  refuse(R"({"model_type": "llama", "num_hidden_layers": 9223372036854775807})", ExitCode::kDamaged,
         "num_hidden_layers");
  refuse(R"({"model_type": "llama", "num_hidden_layers": 0})", ExitCode::kDamaged, "found 0");
  refuse(R"({"model_type": "mamba"})", ExitCode::kUsage, "mamba");
  refuse(R"({"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 8, "vocab_size": 5,
             "n_positions": 4})",
         ExitCode::kDamaged, "multiple of n_head");
}

TEST(Shape, Adapters) {
  const Shape shape = shape_of(named("llama-3.1-8b"));
  // PEFT's count for rank 8 on all seven modules.
  EXPECT_EQ(lora_parameters(shape, 8, LoraTargets::kAll), 20971520);
  EXPECT_EQ(lora_parameters(shape, 8, LoraTargets::kAttention), 6815744);
  EXPECT_EQ(adapted_modules(shape, LoraTargets::kQkv).size(), 1u);
}

}  // namespace
}  // namespace octavo::plan
