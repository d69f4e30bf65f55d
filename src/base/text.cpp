#include "base/text.h"

#include <algorithm>
#include <numeric>

namespace octavo {
namespace {

// Or `enough`, when it is as large as that.
size_t edit_distance(std::string_view a, std::string_view b, size_t enough) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0], least = row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min(std::min(row[j], row[j - 1]) + 1, substituted);
      least = std::min(least, row[j]);
    }
    if (least >= enough) return enough;  // no later row has less
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > 64) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, name.size() / 2) + 1;
  for (const auto candidate : candidates) {
    // A name that is a part of another is near it, however long the rest ("lr" and "max_lr").
    const bool is_part = name.size() > 1 && candidate.find(name) != std::string_view::npos;
    const size_t longer = std::max(name.size(), candidate.size());
    const size_t least = longer - std::min(name.size(), candidate.size());
    if (!is_part && least >= best_distance) continue;
    size_t distance = edit_distance(name, candidate, best_distance);
    if (is_part) distance = std::min(distance, size_t{2});
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return std::string(best);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string result;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) result += separator;
    result += parts[i];
  }
  return result;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::string counted(uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

bool glob_match(std::string_view pattern, std::string_view name) {
  // Greedy with one backtrack point: linear in practice, never exponential.
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {  // before letters: a name may hold a star too
      star = p++;
      mark = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace octavo
