#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace octavo::tokenizer {
namespace {

// Offsets of words are 32 bits, and a pre-tokenizer may double a text once more.
constexpr size_t kMaxNormalized = size_t{2} << 30;
constexpr uint32_t kCapitalDottedI = 0x130;  // the only letter whose small form is two characters
constexpr std::string_view kSmallDottedI = "i\u0307";

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void replace_all(std::string_view text, const NormalizerStep& step, std::string& out) {
  size_t done = 0;
  for (size_t at; (at = text.find(step.pattern, done)) != std::string_view::npos;
       done = at + step.pattern.size()) {
    out.append(text.substr(done, at - done)).append(step.content);
    if (out.size() > kMaxNormalized) break;  // refused by the caller
  }
  out.append(text.substr(done));
}

}  // namespace

Normalizer::Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {
  const auto is_nfc = [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::kNfc;
  };
  if (std::any_of(steps_.begin(), steps_.end(), is_nfc)) nfc_.emplace();
}

void Normalizer::lowercase(std::string_view text, std::string& out) const {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    at += c.length;
    if (c.value == kCapitalDottedI)
      out += kSmallDottedI;
    else
      append_utf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))),
                  out);
  }
}

std::string_view Normalizer::strip(const NormalizerStep& step, std::string_view text) const {
  const auto is_space = [&](size_t at) {
    return (classes_.of(decode_utf8(text.data() + at).value) & kSpace) != 0;
  };
  while (step.left && !text.empty() && is_space(0))
    text.remove_prefix(decode_utf8(text.data()).length);
  while (step.right && !text.empty() && is_space(last_character(text)))
    text = text.substr(0, last_character(text));
  return text;
}

bool Normalizer::apply(const NormalizerStep& step, std::string_view text, std::string& out) const {
  switch (step.kind) {
    case NormalizerStep::Kind::kNfc:
      if (nfc_->surely_normal(text)) return false;
      out = nfc_->normalize(text);
      return true;
    case NormalizerStep::Kind::kLowercase:
      lowercase(text, out);
      return true;
    case NormalizerStep::Kind::kStrip:
      out = strip(step, text);
      return true;
    case NormalizerStep::Kind::kPrepend:
      out.reserve(step.content.size() + text.size());
      out.append(step.content).append(text);
      return true;
    case NormalizerStep::Kind::kReplace:
      replace_all(text, step, out);
      return true;
  }
  OCTAVO_ASSERT(!"a kind of step");
}

std::string_view Normalizer::normalize(std::string_view text, bool continues,
                                       std::string& buffer) const {
  std::string next;
  for (const NormalizerStep& step : steps_) {
    if (text.empty()) break;
    if (continues && step.kind == NormalizerStep::Kind::kPrepend) continue;
    next.clear();
    if (!apply(step, text, next)) continue;
    if (next.size() > kMaxNormalized)
      fail(ExitCode::kUsage, "tokenizer", "wanted a text below 2 GiB after its normalizers, found ",
           "a longer one; split it into documents");
    buffer.swap(next);
    text = buffer;
  }
  return text;
}

std::string Normalizer::normalize(std::string_view text) const {
  std::string buffer;
  return std::string(normalize(text, false, buffer));
}

}  // namespace octavo::tokenizer
