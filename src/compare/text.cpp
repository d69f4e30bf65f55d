// The comparison on a terminal.

#include <algorithm>

#include "base/error.h"
#include "base/printed.h"
#include "compare/comparison.h"

namespace octavo::compare {
namespace {

// What is open and what is decided, when that differs: two short runs say enough about speed.
std::string parts_text(const Comparison& c) {
  if (c.verdict != Verdict::kNotEnoughData) return "";
  std::string open, decided;
  for (const Judgement& line : c.judgements) {
    if (line.verdict == Verdict::kNotAsked) continue;
    if (line.verdict == Verdict::kNotEnoughData)
      open += str(open.empty() ? "" : ", ", line.name);
    else
      decided += str(decided.empty() ? "" : ", ", line.name, " ", name_of(line.verdict));
  }
  return str(open.empty() ? "" : " for " + open, decided.empty() ? "" : "; " + decided);
}

std::string side_text(const char* side, const std::string& label, const RunFolder& run) {
  const bool named = run.is_foreign() && label == run.name();
  return str(side, ": ", label, "  (", named ? run.format : run.folder.string(), ")\n");
}

}  // namespace

std::string text_of(const Comparison& c) {
  std::string out =
      side_text("A", c.label_a, *c.pairs[0].a) + side_text("B", c.label_b, *c.pairs[0].b);
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
  return out + str("\nverdict: ", name_of(c.verdict), parts_text(c), "\n");
}

}  // namespace octavo::compare
