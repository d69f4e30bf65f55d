// The comparison on a terminal.

#include <algorithm>

#include "base/error.h"
#include "report/comparison.h"

namespace octavo::report {
namespace {

// Bytes are not columns: UTF-8's following bytes take none.
size_t columns_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      widths.resize(std::max(widths.size(), i + 1));
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i)
      line += " " + row[i] + std::string(widths[i] - columns_of(row[i]) + 1, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::string text_of(const Comparison& c) {
  std::string out = str("A: ", c.label_a, "  (", c.pairs[0].a->folder.string(), ")\nB: ", c.label_b,
                        "  (", c.pairs[0].b->folder.string(), ")\n");
  if (c.pairs.size() > 1) out += str(c.pairs.size(), " pairs, a seed each\n");
  std::vector<std::vector<std::string>> rows = {{"", "A", "B", "B against A", "wanted", "verdict"}};
  for (const Judgement& line : c.judgements)
    rows.push_back({line.name, line.a.empty() ? "–" : line.a, line.b.empty() ? "–" : line.b,
                    line.gap.empty() ? "–" : line.gap, line.bound.empty() ? "–" : line.bound,
                    std::string(name_of(line.verdict))});
  out += "\n" + table_text(rows) + "\n";
  for (const Judgement& line : c.judgements)
    if (!line.why.empty()) out += str("  ", line.name, ": ", line.why, "\n");
  for (const std::string& remark : c.remarks) out += str("  note: ", remark, "\n");
  return out + str("\nverdict: ", name_of(c.verdict), "\n");
}

}  // namespace octavo::report
