#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace octavo::tokenizer {
namespace {

constexpr uint32_t kTableSize = 0x20000;     // planes 0 and 1; later ones are never cut points
constexpr uint32_t kFirstCombining = 0x300;  // everything below is in form C and joins nothing
constexpr uint32_t kJamoFirst = 0x1100, kJamoLast = 0x11FF;
constexpr int kMaxDecomposition = 32;  // the longest canonical one has 4

int canonical_class(uint32_t code_point) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->combining_class;
}

size_t decompose(uint32_t code_point, utf8proc_int32_t* out) {
  int last_boundclass = UTF8PROC_BOUNDCLASS_START;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), out, kMaxDecomposition,
                              UTF8PROC_DECOMPOSE, &last_boundclass);
  OCTAVO_ASSERT(count >= 1 && count <= kMaxDecomposition);
  return static_cast<size_t>(count);
}

size_t compose(utf8proc_int32_t* code_points, size_t count) {
  const auto left =
      utf8proc_normalize_utf32(code_points, static_cast<utf8proc_ssize_t>(count),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  OCTAVO_ASSERT(left >= 0);
  return static_cast<size_t>(left);
}

bool is_surrogate(uint32_t c) {
  return c >= 0xD800 && c < 0xE000;
}

std::vector<bool> find_boundaries() {
  std::vector<bool> found(kTableSize, false), joins(kTableSize, false);
  utf8proc_int32_t parts[kMaxDecomposition];
  for (uint32_t c = 0; c < kTableSize; ++c) {
    if (is_surrogate(c) || canonical_class(c) != 0) continue;
    const size_t count = decompose(c, parts);
    for (size_t i = 1; i < count; ++i)
      if (static_cast<uint32_t>(parts[i]) < kTableSize) joins[parts[i]] = true;
    found[c] = compose(parts, count) == 1 && static_cast<uint32_t>(parts[0]) == c;
  }
  for (uint32_t c = 0; c < kTableSize; ++c)
    if (joins[c] || (c >= kJamoFirst && c <= kJamoLast)) found[c] = false;
  return found;
}

}  // namespace

const std::vector<bool>& Nfc::boundaries() {
  static const std::vector<bool> found = find_boundaries();
  return found;
}

bool Nfc::surely_normal(std::string_view text) const {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    if (c.value >= kFirstCombining && !is_boundary(c.value)) return false;
    at += c.length;
  }
  return true;
}

std::string Nfc::normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  size_t start = 0;  // of the run that begins at the last boundary
  bool simple = true;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    if (is_boundary(c.value)) {
      if (!simple) {
        normalize_run(text.substr(start, at - start), out);
        start = at;
        simple = true;
      } else {
        // Everything but this character, which a mark may still join, is settled.
        out.append(text.substr(start, at - start));
        start = at;
      }
    } else {
      simple = false;
    }
    at += c.length;
  }
  if (simple)
    out.append(text.substr(start));
  else
    normalize_run(text.substr(start), out);
  return out;
}

void Nfc::normalize_run(std::string_view run, std::string& out) const {
  std::vector<utf8proc_int32_t> points;
  utf8proc_int32_t parts[kMaxDecomposition];
  for (size_t at = 0; at < run.size();) {
    const CodePoint c = decode_utf8(run.data() + at);
    points.insert(points.end(), parts, parts + decompose(c.value, parts));
    at += c.length;
  }
  const auto is_mark = [](utf8proc_int32_t c) { return canonical_class(c) != 0; };
  for (auto it = points.begin(); it != points.end();) {
    const auto begin = std::find_if(it, points.end(), is_mark);
    const auto end = std::find_if_not(begin, points.end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return canonical_class(a) < canonical_class(b);
    });
    it = end;
  }
  points.resize(compose(points.data(), points.size()));
  for (const utf8proc_int32_t c : points) append_utf8(static_cast<uint32_t>(c), out);
}

}  // namespace octavo::tokenizer
