#pragma once
// A family of models: what all its members have in common is data here, and the rest of a model is
// in its config.json, which the family reads and writes. families/ has a file for each.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace octavo::model_config {

struct ModelConfig;

// Where a block has norms: before attention and MLP, after them (before the residual addition), or
// both.
enum class NormPlace : uint8_t { kBefore, kAfter, kBoth };
// RMS norms of queries and keys: none, over each head, or over all heads together.
enum class QkNorm : uint8_t { kNone, kHead, kWidth };
// Of the MLP; those with a gate have two matrices before it.
enum class MlpKind : uint8_t { kGelu, kSwiGlu, kGeGlu };

// A config.json that is being read. What is not implemented is thrown, or with a `refusal` the
// first such thing is put there.
struct ConfigSource {
  const nlohmann::json& object;
  std::string name;  // for messages
  std::optional<Error>* refusal = nullptr;
};

struct Family {
  const char *model_type, *architecture;  // as config.json has them
  const char* title;                      // for messages
  const char* builder = "llama";          // who makes its model: models/model.cpp
  NormPlace norms = NormPlace::kBefore;
  bool norms_add_one = false;  // the scale of a norm is 1 + its weight
  QkNorm qk_norm = QkNorm::kNone;
  MlpKind mlp = MlpKind::kSwiGlu;
  bool scales_embedding = false;  // by the root of the width
  ModelConfig (*read)(const ConfigSource& file) = nullptr;
  nlohmann::json (*write)(const ModelConfig& config) =
      nullptr;  // without model_type and architectures

  bool gated() const { return mlp != MlpKind::kGelu; }
  // Norms of a block that are as wide as the model.
  int64_t block_norms() const { return norms == NormPlace::kBoth ? 4 : 2; }
};

extern const Family kGpt2Family, kLlamaFamily, kQwen2Family, kMistralFamily, kQwen3Family,
    kQwen3MoeFamily, kSmolLm3Family, kOlmo2Family, kOlmo3Family, kGemma3Family;

// All of them, and those that were added.
const std::vector<const Family*>& families();
const Family* find_family(std::string_view model_type);  // null when there is none
// For a program that brings its own, before it starts threads. The family outlives everything.
void add_family(const Family& family);

}  // namespace octavo::model_config
