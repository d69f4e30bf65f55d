#include "config/key.h"

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"

namespace octavo::config {
namespace {

// A JSON string is a YAML double-quoted scalar, so what is printed reads back as it was.
std::string yaml_quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

// Bytes of the UTF-8 sequence at the front, 0 when it is none (overlong, surrogate, beyond
// U+10FFFF).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool outside = (lead == 0xed && byte(1) > 0x9f) || (lead == 0xf4 && byte(1) > 0x8f);
  return overlong || outside ? 0 : length;
}

// The names of an enum, in the order of its values.
template <typename E>
std::string_view name_at(std::initializer_list<std::string_view> names, E value) {
  const auto index = static_cast<size_t>(value);
  OCTAVO_ASSERT(index < names.size());
  return names.begin()[index];
}

}  // namespace

std::string_view name_of(Precision value) {
  return name_at({"fp8", "bf16", "fp32"}, value);
}

std::string_view name_of(PenaltyType value) {
  return name_at({"z_loss", "activation_l2", "kurtosis"}, value);
}

std::string_view name_of(ShardingMode value) {
  return name_at({"none", "ddp", "zero1", "zero2", "fsdp_full", "hybrid"}, value);
}

std::string_view name_of(DeviceChoice value) {
  return name_at({"auto", "cpu", "cuda"}, value);
}

std::string_view name_of(Deterministic value) {
  return name_at({"auto", "true", "false"}, value);
}

std::string_view name_of(LogFormat value) {
  return name_at({"text", "json"}, value);
}

std::string_view name_of(Fp8Recipe value) {
  return name_at({"delayed", "current", "rowwise", "blockwise", "mxfp8", "nvfp4"}, value);
}

Fp8Recipe fp8_recipe_of(const Settings& settings) {
  return settings.fp8_scenario == Fp8Scenario::kMxfp8 ? Fp8Recipe::kMxfp8 : settings.fp8_recipe;
}

std::string_view name_of(Fp8Format value) {
  return name_at({"auto", "hybrid", "e4m3", "e5m2"}, value);
}

std::string_view name_of(Fp8AmaxAlgo value) {
  return name_at({"max", "most_recent"}, value);
}

std::string_view name_of(Fp8Update value) {
  return name_at({"pass", "step"}, value);
}

std::string_view name_of(Fp8Accumulate value) {
  return name_at({"fp32", "hopper"}, value);
}

std::string_view name_of(Fp8Execution value) {
  return name_at({"auto", "native", "rehearse"}, value);
}

std::string_view name_of(Fp8Backend value) {
  return name_at({"auto", "te", "aten", "rehearse"}, value);
}

std::string_view name_of(Fp8Scenario value) {
  return name_at({"none", "mxfp8"}, value);
}

std::string_view name_of(Fp8Guard value) {
  return name_at({"off", "log", "fallback"}, value);
}

std::string_view name_of(LoraBase value) {
  return value == LoraBase::kFp8 ? "fp8" : "bf16";
}

std::string_view name_of(StateType value) {
  return name_at({"fp32", "bf16", "fp8"}, value);
}

std::string_view name_of(ChatTemplate value) {
  return name_at({"auto", "chatml", "qwen2", "smollm2", "llama3", "llama31", "alpaca", "none"},
                 value);
}

std::string_view name_of(DataDamage value) {
  return name_at({"stop", "skip"}, value);
}

std::string_view name_of(BadSteps value) {
  return name_at({"stop", "skip", "rollback"}, value);
}

std::string_view name_of(TrainOn value) {
  return name_at({"answer", "all"}, value);
}

std::string_view name_of(ExportFormat value) {
  return name_at({"bf16", "fp8_block", "fp8_channel", "peft"}, value);
}

std::optional<bool> parse_bool(std::string_view text) {
  for (std::string_view word : {"true", "True", "TRUE", "yes", "on", "1"})
    if (text == word) return true;
  for (std::string_view word : {"false", "False", "FALSE", "no", "off", "0"})
    if (text == word) return false;
  return std::nullopt;
}

bool is_text(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0 || text.front() == '\0') return false;
    text.remove_prefix(length);
  }
  return true;
}

Key Key::alias(std::string other) && {
  aliases.push_back(std::move(other));
  return std::move(*this);
}

Key Key::read_by(Readers who) && {
  readers = who;
  return std::move(*this);
}

std::string Key::type_name() const {
  switch (type) {
    case Type::kInt:
      return "integer";
    case Type::kReal:
      return "number";
    case Type::kBool:
      return "true/false";
    case Type::kText:
      return "text";
    case Type::kList:
      return "list";
    case Type::kEnum:
      break;
  }
  return join(choices, "|");
}

std::string Key::text(const Settings& settings) const {
  std::vector<std::string> values = load(settings);
  if (type != Type::kText && type != Type::kList) return values.front();
  if (!numbers)
    for (std::string& value : values) value = yaml_quoted(value);
  return type == Type::kText ? values.front() : "[" + join(values, ", ") + "]";
}

const Key* find_key(std::string_view name) {
  for (const Key& key : keys()) {
    if (key.name == name) return &key;
    for (const std::string& alias : key.aliases)
      if (alias == name) return &key;
  }
  return nullptr;
}

std::string nearest_key(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Key& key : keys()) {
    names.push_back(key.name);
    names.insert(names.end(), key.aliases.begin(), key.aliases.end());
  }
  return nearest_name(name, names);
}

std::vector<std::string_view> reader_names(Readers readers) {
  // In the order of reader::Verb.
  static constexpr std::string_view kNames[] = {
      "train",        "generate",     "eval",   "verify",        "checkpoints", "data prepare",
      "data inspect", "schedule",     "config", "config import", "plan",        "diagnose",
      "bench",        "compare",      "launch", "sweep create",  "sweep agent", "sweep run",
      "sweep status", "sweep report", "report", "board",         "audit"};
  static_assert(std::size(kNames) == static_cast<size_t>(reader::Verb::kAudit) + 1);
  std::vector<std::string_view> names;
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (readers & reader::bit(static_cast<reader::Verb>(i))) names.push_back(kNames[i]);
  return names;
}

}  // namespace octavo::config
