#pragma once
// The config.json files of tests/models/published and what is published of these models. The
// parameters are those that the models' pages on the hub show (of the files' metadata).

#include <cstdint>
#include <string>

namespace octavo {

struct Published {
  const char* file;  // without .json
  int64_t layers, width, mlp, heads, kv_heads, head_dim, vocab, context;
  bool tied;
  double theta, factor;  // of RoPE; 0: none, and not stretched
  int64_t parameters;
  bool is_gpt2() const { return theta == 0; }
  std::string path() const {
    return std::string(OCTAVO_SOURCE_DIR "/tests/models/published/") + file + ".json";
  }
};

// clang-format off
constexpr Published kPublished[] = {
    {"gpt2", 12, 768, 3072, 12, 12, 64, 50257, 1024, true, 0, 0, 124439808},
    {"gpt2-transformers-5.16", 12, 768, 3072, 12, 12, 64, 50257, 1024, true, 0, 0, 124439808},
    {"gpt2-medium", 24, 1024, 4096, 16, 16, 64, 50257, 1024, true, 0, 0, 354823168},
    {"gpt2-large", 36, 1280, 5120, 20, 20, 64, 50257, 1024, true, 0, 0, 774030080},
    {"gpt2-large-transformers-5.0", 36, 1280, 5120, 20, 20, 64, 50257, 1024, true, 0, 0, 774030080},
    {"gpt2-xl", 48, 1600, 6400, 25, 25, 64, 50257, 1024, true, 0, 0, 1557611200},
    {"gpt2-xl-transformers-4.31", 48, 1600, 6400, 25, 25, 64, 50257, 1024, true, 0, 0, 1557611200},
    {"distilgpt2", 6, 768, 3072, 12, 12, 64, 50257, 1024, true, 0, 0, 81912576},
    {"distilgpt2-transformers-4.36", 6, 768, 3072, 12, 12, 64, 50257, 1024, true, 0, 0, 81912576},
    {"Meta-Llama-3-8B-Instruct", 32, 4096, 14336, 32, 8, 128, 128256, 8192, false, 500000, 0, 8030261248},
    {"Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 500000, 8, 8030261248},
    {"Llama-3.1-8B-Instruct", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 500000, 8, 8030261248},
    {"Llama-3.1-70B-Instruct", 80, 8192, 28672, 64, 8, 128, 128256, 131072, false, 500000, 8, 70553706496},
    {"Llama-3.3-70B-Instruct", 80, 8192, 28672, 64, 8, 128, 128256, 131072, false, 500000, 8, 70553706496},
    {"Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 500000, 32, 1235814400},
    {"Llama-3.2-1B-Instruct", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 500000, 32, 1235814400},
    {"Llama-3.2-1B-Instruct-transformers-4.47", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 500000, 32, 1235814400},
    {"Llama-3.2-3B", 28, 3072, 8192, 24, 8, 128, 128256, 131072, true, 500000, 32, 3212749824},
    {"Llama-3.2-3B-Instruct", 28, 3072, 8192, 24, 8, 128, 128256, 131072, true, 500000, 32, 3212749824},
    {"SmolLM2-135M", 30, 576, 1536, 9, 3, 64, 49152, 8192, true, 100000, 0, 134515008},
    {"SmolLM2-360M", 32, 960, 2560, 15, 5, 64, 49153, 8192, true, 100000, 0, 361821120 + 960},
    {"SmolLM2-1.7B", 24, 2048, 8192, 32, 32, 64, 49152, 8192, true, 130000, 0, 1711376384},
    {"Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1000000, 0, 494032768},
    {"Qwen2.5-0.5B-Instruct", 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1000000, 0, 494032768},
    {"Qwen2.5-Coder-0.5B-Instruct", 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1000000, 0, 494032768},
    {"Qwen2.5-1.5B-Instruct", 28, 1536, 8960, 12, 2, 128, 151936, 32768, true, 1000000, 0, 1543714304},
    {"Qwen2.5-3B", 36, 2048, 11008, 16, 2, 128, 151936, 32768, true, 1000000, 0, 3085938688},
    {"Qwen2.5-7B", 28, 3584, 18944, 28, 4, 128, 152064, 131072, false, 1000000, 0, 7615616512},
    {"Qwen2.5-7B-Instruct", 28, 3584, 18944, 28, 4, 128, 152064, 32768, false, 1000000, 0, 7615616512},
    {"Qwen2.5-14B", 48, 5120, 13824, 40, 8, 128, 152064, 131072, false, 1000000, 0, 14770033664},
    {"Qwen2.5-32B", 64, 5120, 27648, 40, 8, 128, 152064, 131072, false, 1000000, 0, 32763876352},
    {"Qwen2.5-32B-Instruct", 64, 5120, 27648, 40, 8, 128, 152064, 131072, false, 1000000, 0, 32763876352},
};
// clang-format on
// The copy of SmolLM2-360M has a token more than the published one: 960 values.

}  // namespace octavo
