#include "tokenizer/hf_steps.h"

#include <utility>

#include "tokenizer/unicode.h"

namespace octavo::tokenizer {
namespace {

constexpr size_t kMaxSteps = 16;
constexpr int64_t kMaxStripped = 64;  // characters
constexpr size_t kMaxGrowth = 64;

using Type = Json::value_t;

// The parts of a Sequence, or the one thing that is none.
std::vector<const Json*> parts_of(const HfSource& source, const Json& value, std::string_view what,
                                  const char* list) {
  if (source.text(value, "type") != "Sequence") return {&value};
  source.only(value, what, {"type", list});
  std::vector<const Json*> parts;
  for (const Json& part : source.field(value, list, Type::array)) {
    if (part.is_object() && part.contains("type") && part["type"] == "Sequence")
      for (const Json* inner : parts_of(source, part, what, list)) parts.push_back(inner);
    else
      parts.push_back(&part);
    if (parts.size() > kMaxSteps) source.refuse(what, str("at most ", kMaxSteps, " parts"), "more");
  }
  return parts;
}

// A text that is searched for or put in.
std::string literal(const HfSource& source, const Json& object, const char* name, size_t least) {
  std::string text = source.text(object, name);
  if (text.size() < least || text.size() > kMaxLiteral)
    source.refuse(name, str(least, " to ", kMaxLiteral, " bytes"), str(text.size()));
  return text;
}

std::string one_character(const HfSource& source, const Json& object, const char* name) {
  std::string text = literal(source, object, name, 1);
  if (decode_utf8(text.data()).length != text.size())
    source.damaged(name, ": wanted one character, found '", text, "'");
  return text;
}

std::string string_pattern(const HfSource& source, const Json& part, std::string_view where) {
  const Json& pattern = source.field(part, "pattern", Type::object);
  source.only(pattern, where, {"String"});
  return literal(source, pattern, "String", 1);
}

NormalizerStep normalizer_step(const HfSource& source, const Json& part) {
  using Kind = NormalizerStep::Kind;
  const std::string type = source.text(part, "type");
  if (type == "NFC" || type == "Lowercase") {
    source.only(part, type, {"type"});
    return {type == "NFC" ? Kind::kNfc : Kind::kLowercase, {}, {}};
  }
  if (type == "Strip") {
    source.only(part, type, {"type", "strip_left", "strip_right"});
    return {Kind::kStrip,
            {},
            {},
            source.flag(part, "strip_left", false),
            source.flag(part, "strip_right", false)};
  }
  if (type == "Prepend") {
    source.only(part, type, {"type", "prepend"});
    return {Kind::kPrepend, {}, literal(source, part, "prepend", 0)};
  }
  if (type == "Replace") {
    source.only(part, type, {"type", "pattern", "content"});
    return {Kind::kReplace, string_pattern(source, part, "Replace pattern"),
            literal(source, part, "content", 0)};
  }
  source.refuse("normalizer", "NFC, Lowercase, Strip, Prepend, Replace or none", type);
}

CutMode cut_mode(const HfSource& source, const Json& part) {
  static constexpr std::pair<std::string_view, CutMode> kModes[] = {
      {"Isolated", CutMode::kIsolated},
      {"MergedWithPrevious", CutMode::kAfter},
      {"MergedWithNext", CutMode::kBefore},
      {"Contiguous", CutMode::kContiguous}};
  const std::string behavior = source.text(part, "behavior");
  const bool inverted = source.flag(part, "invert", false);
  for (const auto& [name, mode] : kModes) {
    if (behavior != name) continue;
    // What is between the matches counts as the matches: only the two that lean change places.
    if (inverted && mode == CutMode::kAfter) return CutMode::kBefore;
    if (inverted && mode == CutMode::kBefore) return CutMode::kAfter;
    return mode;
  }
  source.refuse("Split behavior", "Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                behavior);
}

Stage split_stage(const HfSource& source, const Json& part) {
  source.only(part, "Split", {"type", "pattern", "behavior", "invert"});
  const CutMode mode = cut_mode(source, part);
  const Json& pattern = source.field(part, "pattern", Type::object);
  source.only(pattern, "Split pattern", {"Regex", "String"});
  if (pattern.contains("String"))
    return {StageKind::kLiteral, string_pattern(source, part, "Split pattern"), mode};
  return stage_of_pattern(source.text(pattern, "Regex"), mode);
}

Prefix prefix_of(const HfSource& source, const Json& part) {
  static constexpr std::pair<std::string_view, Prefix> kPrefixes[] = {
      {"always", Prefix::kAlways}, {"first", Prefix::kFirst}, {"never", Prefix::kNever}};
  const std::string scheme =
      part.contains("prepend_scheme") ? source.text(part, "prepend_scheme") : "always";
  for (const auto& [name, prefix] : kPrefixes) {
    if (scheme != name) continue;
    if (prefix != Prefix::kNever && !source.flag(part, "add_prefix_space", true))
      source.damaged("Metaspace: prepend_scheme is '", scheme, "' and add_prefix_space is false");
    return prefix;
  }
  source.refuse("prepend_scheme", "always, first or never", scheme);
}

void check_metaspace(const HfSource& source, const Json& part) {
  source.only(part, "Metaspace",
              {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
}

void add_stages(const HfSource& source, const Json& part, std::vector<Stage>& stages) {
  const std::string type = source.text(part, "type");
  if (type == "ByteLevel") {
    source.only(part, type, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (source.flag(part, "add_prefix_space", true)) stages.push_back({StageKind::kPrefixSpace});
    if (source.flag(part, "use_regex", true)) stages.push_back({StageKind::kGpt2});
  } else if (type == "Digits") {
    source.only(part, type, {"type", "individual_digits"});
    const bool alone = source.field(part, "individual_digits", Type::boolean).get<bool>();
    stages.push_back({alone ? StageKind::kDigits : StageKind::kDigitRuns});
  } else if (type == "Split") {
    stages.push_back(split_stage(source, part));
  } else if (type == "Metaspace") {
    check_metaspace(source, part);
    const std::string mark = one_character(source, part, "replacement");
    stages.push_back({StageKind::kMetaspace, mark, CutMode::kIsolated, prefix_of(source, part)});
    if (source.flag(part, "split", true))
      stages.push_back({StageKind::kLiteral, mark, CutMode::kBefore});
  } else {
    source.refuse("pre_tokenizer", "Split, Digits, Metaspace or ByteLevel", type);
  }
}

size_t strip_count(const HfSource& source, const Json& part, const char* name) {
  const int64_t count = json_int(part, name, source.name());
  if (count < 0 || count > kMaxStripped)
    source.refuse(name, str("0 to ", kMaxStripped), str(count));
  return static_cast<size_t>(count);
}

DecoderStep decoder_step(const HfSource& source, const Json& part) {
  using Kind = DecoderStep::Kind;
  const std::string type = source.text(part, "type");
  if (type == "Replace") {
    source.only(part, type, {"type", "pattern", "content"});
    return {Kind::kReplace, string_pattern(source, part, "Replace pattern"),
            literal(source, part, "content", 0)};
  }
  if (type == "ByteFallback" || type == "Fuse") {
    source.only(part, type, {"type"});
    return {type == "Fuse" ? Kind::kFuse : Kind::kByteFallback, {}, {}};
  }
  if (type == "Strip") {
    source.only(part, type, {"type", "content", "start", "stop"});
    return {Kind::kStrip,
            one_character(source, part, "content"),
            {},
            strip_count(source, part, "start"),
            strip_count(source, part, "stop")};
  }
  if (type == "Metaspace") {
    check_metaspace(source, part);
    return {Kind::kMetaspace,
            one_character(source, part, "replacement"),
            " ",
            0,
            0,
            prefix_of(source, part) != Prefix::kNever};
  }
  source.refuse("decoder", "Replace, ByteFallback, Fuse, Strip or Metaspace", type);
}

// Steps that each make a text longer could together make it any length.
template <typename Step>
void check_growth(const HfSource& source, std::string_view what, const std::vector<Step>& steps) {
  size_t growth = 1;
  for (const Step& step : steps) {
    if (!step.pattern.empty()) growth *= 1 + step.content.size() / step.pattern.size();
    if (growth > kMaxGrowth)
      source.refuse(what, str("steps that make a text at most ", kMaxGrowth, " times as long"),
                    "more");
  }
}

bool is_null_or_missing(const Json& root, const char* name) {
  return !root.contains(name) || root[name].is_null();
}

}  // namespace

bool is_byte_level(const HfSource& source, const Json& root) {
  if (is_null_or_missing(root, "pre_tokenizer")) return false;
  const auto parts = parts_of(source, source.field(root, "pre_tokenizer", Type::object),
                              "pre_tokenizer", "pretokenizers");
  if (parts.empty()) source.refuse("pre_tokenizer", str("1 to ", kMaxSteps, " parts"), "none");
  for (const Json* part : parts) {
    // After ByteLevel the text is written in its alphabet; nothing may cut it there.
    const std::string type = source.text(*part, "type");
    if (type == "ByteLevel" && part != parts.back())
      source.refuse("pre_tokenizer", "ByteLevel as the last part and only there", type);
  }
  return source.text(*parts.back(), "type") == "ByteLevel";
}

std::vector<NormalizerStep> read_normalizer(const HfSource& source, const Json& root) {
  std::vector<NormalizerStep> steps;
  if (is_null_or_missing(root, "normalizer")) return steps;
  for (const Json* part : parts_of(source, root["normalizer"], "normalizer", "normalizers"))
    steps.push_back(normalizer_step(source, *part));
  check_growth(source, "normalizer", steps);
  return steps;
}

std::vector<Stage> read_pre_tokenizer(const HfSource& source, const Json& root) {
  std::vector<Stage> stages;
  if (is_null_or_missing(root, "pre_tokenizer")) return stages;
  for (const Json* part : parts_of(source, root["pre_tokenizer"], "pre_tokenizer", "pretokenizers"))
    add_stages(source, *part, stages);
  return stages;
}

std::vector<DecoderStep> read_decoder(const HfSource& source, const Json& root, bool byte_level) {
  const Json& decoder = source.field(root, "decoder", Type::object);
  const auto parts = parts_of(source, decoder, "decoder", "decoders");
  if (byte_level) {
    if (parts.size() != 1 || source.text(*parts.front(), "type") != "ByteLevel")
      source.refuse("decoder", "ByteLevel", source.text(decoder, "type"));
    return {};
  }
  std::vector<DecoderStep> steps;
  for (const Json* part : parts) steps.push_back(decoder_step(source, *part));
  check_growth(source, "decoder", steps);
  if (steps.empty()) source.refuse("decoder", str("1 to ", kMaxSteps, " parts"), "none");
  return steps;
}

void check_first_prefix(const HfSource& source, const std::vector<NormalizerStep>& normalizer,
                        const std::vector<Stage>& stages) {
  const auto is_first = [](const Stage& stage) { return stage.prefix == Prefix::kFirst; };
  if (std::none_of(stages.begin(), stages.end(), is_first)) return;
  for (const NormalizerStep& step : normalizer) {
    const bool replaces_many =
        step.kind == NormalizerStep::Kind::kReplace &&
        (step.content.empty() || decode_utf8(step.pattern.data()).length != step.pattern.size());
    if (step.left || replaces_many)
      source.refuse("prepend_scheme", "'always' or 'never' behind a normalizer that shortens text",
                    "'first'");
  }
}

}  // namespace octavo::tokenizer
