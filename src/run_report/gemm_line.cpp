#include "run_report/gemm_line.h"

#include <algorithm>

#include "base/error.h"

namespace octavo::run_report {
namespace {

// Blocks differ in the number in their layers' names alone.
std::string without_numbers(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (c < '0' || c > '9')
      pattern += c;
    else if (pattern.empty() || pattern.back() != '*')
      pattern += '*';
  }
  return pattern;
}

}  // namespace

std::string GemmGroup::name() const {
  return layers > 1 ? str(pattern, " (", layers, ")") : line.layer;
}

std::vector<GemmGroup> grouped(const std::vector<GemmLine>& lines) {
  std::vector<GemmGroup> groups;
  for (const GemmLine& line : lines) {
    const std::string pattern = without_numbers(line.layer);
    const auto same = std::ranges::find_if(groups, [&](const GemmGroup& g) {
      return g.pattern == pattern && g.line.gemm == line.gemm &&
             g.line.precision == line.precision && g.line.reason == line.reason;
    });
    if (same == groups.end()) {
      groups.push_back({line, pattern, line.layers});
    } else {
      same->line.flops_share += line.flops_share;
      same->line.ran_fp8 += line.ran_fp8;
      same->line.ran_other += line.ran_other;
      same->layers += line.layers;
    }
  }
  return groups;
}

}  // namespace octavo::run_report
