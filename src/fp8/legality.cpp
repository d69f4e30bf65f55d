#include "fp8/legality.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace octavo::fp8 {
namespace {

std::string broken(const char* what, int64_t size, int64_t multiple) {
  OCTAVO_ASSERT(size > 0);
  return size % multiple == 0 ? "" : str(what, " ", size, " is not a multiple of ", multiple);
}

// How many blocks "first", "first:3" and the same with `word` "last" mean; none: it is no such
// pattern.
std::optional<int64_t> blocks_meant(std::string_view pattern, std::string_view word) {
  if (!pattern.starts_with(word)) return std::nullopt;
  pattern.remove_prefix(word.size());
  if (pattern.empty()) return 1;
  int64_t count = 0;
  const char* const end = pattern.data() + pattern.size();
  if (pattern.front() != ':') return std::nullopt;
  const auto [stop, error] = std::from_chars(pattern.data() + 1, end, count);
  return error == std::errc() && stop == end && count > 0 ? std::optional(count) : std::nullopt;
}

constexpr std::string_view kNone = "none";

bool matches(const std::string& pattern, const std::string& layer, int64_t block, int64_t blocks) {
  if (pattern == kNone) return false;
  if (const auto count = blocks_meant(pattern, "first")) return block >= 0 && block < *count;
  if (const auto count = blocks_meant(pattern, "last"))
    return block >= 0 && block >= blocks - *count;
  return glob_match(pattern, layer);
}

}  // namespace

std::string refusal(Recipe recipe, int64_t outputs, int64_t inputs) {
  const int64_t multiple = traits_of(recipe).side_multiple;
  const std::string first = broken("outputs", outputs, multiple);
  const std::string second = broken("inputs", inputs, multiple);
  return first.empty() || second.empty() ? first + second : first + ", " + second;
}

std::string token_refusal(Recipe recipe, int64_t tokens) {
  return broken("tokens", tokens, traits_of(recipe).token_multiple);
}

int64_t padding(Recipe recipe, int64_t tokens) {
  const int64_t multiple = traits_of(recipe).token_multiple;
  return (multiple - tokens % multiple) % multiple;
}

std::string skipped_by(std::span<const std::string> patterns, const std::string& layer,
                       int64_t block, int64_t blocks) {
  for (const std::string& pattern : patterns)
    if (matches(pattern, layer, block, blocks)) return pattern;
  return "";
}

std::vector<std::string> default_skip(Recipe recipe, int64_t blocks) {
  // At least one, and never all.
  const int64_t kept = std::min((15 * blocks + 99) / 100, blocks - 1);
  if (!is_fp4(recipe) || kept < 1) return {};
  return {str("last:", kept)};
}

std::vector<std::string> unmatched(std::span<const std::string> patterns,
                                   std::span<const LayerName> layers, int64_t blocks) {
  std::vector<std::string> idle;
  for (const std::string& pattern : patterns) {
    const bool used = std::any_of(layers.begin(), layers.end(), [&](const LayerName& layer) {
      return matches(pattern, layer.name, layer.block, blocks);
    });
    if (!used && pattern != kNone) idle.push_back(pattern);
  }
  return idle;
}

std::string skip_problem(std::span<const std::string> patterns, std::span<const LayerName> layers,
                         int64_t blocks) {
  const std::vector<std::string> idle = unmatched(patterns, layers, blocks);
  if (idle.empty()) return "";
  const std::string& wrong = idle.front();
  std::vector<std::string_view> known = {"first", "last", "none"};
  for (const LayerName& layer : layers) known.push_back(layer.name);
  // "h.0" alone is meant as its layers.
  const std::string inside = wrong + ".*";
  const bool is_folder = std::ranges::any_of(
      layers, [&](const LayerName& layer) { return glob_match(inside, layer.name); });
  const std::string meant = is_folder ? inside : nearest_name(wrong, known);
  return str("fp8_skip: no layer is named '", wrong.substr(0, 80),
             "'; wanted first, last, last:3, none, or a pattern over names such as ",
             layers.empty() ? "h.0.attn.c_attn" : layers.front().name,
             meant.empty() ? "" : str("; did you mean '", meant, "'?"));
}

}  // namespace octavo::fp8
