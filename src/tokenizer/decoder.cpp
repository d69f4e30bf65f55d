#include "tokenizer/decoder.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "tokenizer/unicode.h"

namespace octavo::tokenizer {
namespace {

constexpr std::string_view kReplacementCharacter = "\uFFFD";

// "<0x0A>" as the Hugging Face library reads it, which takes "<0x+A>" too.
std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits.front() == '+') digits.remove_prefix(1);
  uint8_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  return static_cast<char>(value);
}

std::string replaced(std::string_view token, std::string_view pattern, std::string_view content) {
  std::string out;
  size_t done = 0;
  for (size_t at; (at = token.find(pattern, done)) != std::string_view::npos;
       done = at + pattern.size())
    out.append(token.substr(done, at - done)).append(content);
  return out.append(token.substr(done));
}

void join_bytes(std::vector<std::string>& tokens, bool continues) {
  std::vector<std::string> joined;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (continues || find_invalid_utf8(bytes) == std::string_view::npos) {
      joined.push_back(std::move(bytes));
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) joined.emplace_back(kReplacementCharacter);
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of_token(token)) {
      bytes.push_back(*byte);
      continue;
    }
    flush();
    joined.push_back(std::move(token));
  }
  flush();
  tokens = std::move(joined);
}

void fuse(std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, all);
}

void strip_token(const DecoderStep& step, bool keeps_start, std::string& token) {
  std::string_view left = token;
  for (size_t i = 0; !keeps_start && i < step.start && left.starts_with(step.pattern); ++i)
    left.remove_prefix(step.pattern.size());
  for (size_t i = 0; i < step.stop && left.ends_with(step.pattern); ++i)
    left.remove_suffix(step.pattern.size());
  token = std::string(left);
}

}  // namespace

std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens,
                          bool continues) {
  bool fused = false;
  for (const DecoderStep& step : steps) {
    switch (step.kind) {
      case DecoderStep::Kind::kReplace:
        for (std::string& token : tokens) token = replaced(token, step.pattern, step.content);
        break;
      case DecoderStep::Kind::kMetaspace:
        for (size_t i = 0; i < tokens.size(); ++i) {
          const bool drops = i == 0 && step.drops_first && !continues;
          tokens[i] = replaced(tokens[i], step.pattern, drops ? "" : step.content);
        }
        break;
      case DecoderStep::Kind::kByteFallback:
        join_bytes(tokens, continues);
        break;
      case DecoderStep::Kind::kFuse:
        fuse(tokens);
        fused = true;
        break;
      case DecoderStep::Kind::kStrip:
        for (std::string& token : tokens) strip_token(step, continues && fused, token);
        break;
    }
  }
  fuse(tokens);
  return std::move(tokens.front());
}

}  // namespace octavo::tokenizer
