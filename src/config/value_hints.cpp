// What may have been meant by a value that a key does not take.

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "config/spellings.h"

namespace octavo::config {
namespace {

struct ForeignValue {
  std::string_view key, theirs, hint;  // in small letters; hint: one of our values, or a sentence
};
constexpr std::string_view kNoFp16 =
    "FP16 is not implemented (it needs loss scaling); take bf16 or fp8";
constexpr ForeignValue kForeignValues[] = {
    {"mixed_precision", "bfloat16", "bf16"},
    {"mixed_precision", "fp16", kNoFp16},
    {"mixed_precision", "float16", kNoFp16},
    {"mixed_precision", "half", kNoFp16},
    {"mixed_precision", "no", "fp32"},
    {"mixed_precision", "float32", "fp32"},
    {"mixed_precision", "float8", "fp8"},
    {"mixed_precision", "mxfp8", "mixed_precision fp8 with fp8_recipe mxfp8"},
    {"fp8_recipe", "delayedscaling", "delayed"},
    {"fp8_recipe", "float8currentscaling", "current"},
    {"fp8_recipe", "tensorwise", "current"},
    {"fp8_recipe", "float8blockscaling", "blockwise"},
    {"fp8_recipe", "mxfp8blockscaling", "mxfp8"},
    {"fp8_recipe", "nvfp4blockscaling", "nvfp4"},
    {"mixed_precision", "fp4", "mixed_precision fp8 with fp8_recipe nvfp4"},
    {"mixed_precision", "nvfp4", "mixed_precision fp8 with fp8_recipe nvfp4"},
    {"fp8_backend", "transformer_engine", "te"},
    {"fp8_backend", "torchao", "aten"},
    {"fp8_backend", "torch", "aten"},
    {"fp8_execution", "simulate", "rehearse"},
    {"sharding_mode", "fsdp", "fsdp_full"},
    {"sharding_mode", "fsdp2", "fsdp_full"},
    {"sharding_mode", "full_shard", "fsdp_full"},
    {"sharding_mode", "zero3", "fsdp_full"},
    {"sharding_mode", "shard_grad_op", "zero2"},
    {"sharding_mode", "no_shard", "ddp"},
    {"sharding_mode", "hybrid_shard", "hybrid"},
    {"sharding_mode", "hsdp", "hybrid"},
    {"device", "gpu", "cuda"},
    {"device", "cuda:0", "cuda, with CUDA_VISIBLE_DEVICES=0 in the environment"},
    {"master_dtype", "float32", "fp32"},
    {"master_dtype", "bfloat16", "bf16"},
    {"moment_dtype", "8bit", "fp8"},
    {"train_on", "completion", "answer"},
    {"train_on", "assistant", "answer"},
    {"chat_template", "llama_3", "llama3"},
    {"chat_template", "qwen", "qwen2"},
    {"export_format", "fp8", "fp8_block, or fp8_channel for vLLM"},
};

std::string small_letters(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string choice_hint(const Key& key, const std::string& value) {
  std::string wanted = small_letters(value);
  std::ranges::replace(wanted, '-', '_');
  for (const ForeignValue& row : kForeignValues) {
    if (row.key != key.name || row.theirs != wanted) continue;
    const bool is_sentence = row.hint.find(' ') != row.hint.npos;
    return is_sentence ? str("; ", row.hint) : str("; did you mean ", row.hint, "?");
  }
  if (std::ranges::find(key.choices, wanted) != key.choices.end())
    return "; did you mean " + wanted + "?";
  const std::vector<std::string_view> choices(key.choices.begin(), key.choices.end());
  const std::string nearest = nearest_name(wanted, choices);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

// 1e4, 10k, 10_000 and 10,000 are 10000 to people; 10% and 0,1 a tenth.
std::optional<double> number_meant(std::string text, bool is_whole) {
  double factor = 1;
  if (!is_whole) std::ranges::replace(text, ',', '.');
  if (text.ends_with('%')) factor = 0.01;
  for (const auto& [letter, times] : {std::pair('k', 1e3),
                                      {'K', 1e3},
                                      {'m', 1e6},
                                      {'M', 1e6},
                                      {'b', 1e9},
                                      {'B', 1e9},
                                      {'g', 1e9},
                                      {'G', 1e9}})
    if (text.size() > 1 && text.back() == letter) factor = times;
  if (factor != 1) text.pop_back();
  std::erase_if(text, [](char c) { return c == '_' || c == ',' || c == ' '; });
  const std::optional<double> number = parse_number<double>(text);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  return *number * factor;
}

std::string number_hint(const Key& key, const std::string& value) {
  const std::optional<double> meant = number_meant(value, key.type == Type::kInt);
  if (!meant) return "";
  std::string text;
  if (key.type == Type::kReal)
    text = print_number(*meant);
  else if (*meant == std::floor(*meant) && std::abs(*meant) < 1e15)
    text = print_number(static_cast<int64_t>(*meant));
  Settings trial;
  // Nothing to say when the number is what is wrong, and not how it is written.
  if (text.empty() || text == value || !key.store(trial, std::vector<std::string>{text})) return "";
  return "; write " + text;
}

}  // namespace

std::string value_hint(const Key& key, std::span<const std::string> values) {
  if (values.size() != 1 || values.front().size() > 64) return "";
  const std::string& value = values.front();
  switch (key.type) {
    case Type::kEnum:
      return choice_hint(key, value);
    case Type::kInt:
    case Type::kReal:
      return number_hint(key, value);
    case Type::kBool:
    case Type::kText:
    case Type::kList:
      break;
  }
  return "";
}

}  // namespace octavo::config
