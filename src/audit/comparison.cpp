// Two audits side by side: a BF16 and an FP8 run of the same steps, or before and after a change.

#include <nlohmann/json.hpp>

#include "audit/audit.h"
#include "base/error.h"
#include "base/printed.h"

namespace octavo::audit {
namespace {

struct Line {
  std::string name;
  Time a, b;
};

// GEMMs by precision, the other classes as they are; what neither has is left out.
std::vector<Line> lines_of(const Audit& a, const Audit& b) {
  std::vector<Line> lines;
  const auto add = [&](std::string name, const Time& x, const Time& y) {
    if (x.calls > 0 || y.calls > 0) lines.push_back({std::move(name), x, y});
  };
  for (size_t i = 0; i < kPrecisions; ++i)
    add(str("GEMM ", name_of(static_cast<Precision>(i))), a.gemms[i], b.gemms[i]);
  for (size_t i = 0; i < kKinds; ++i)
    if (const auto kind = static_cast<Kind>(i); kind != Kind::kGemm && kind != Kind::kUnknownGemm)
      add(std::string(name_of(kind)), a.kinds[i], b.kinds[i]);
  add("all GPU work", a.total.work, b.total.work);
  const auto length = [](int64_t ns) { return Time{.calls = ns > 0, .ns = ns}; };
  add("FP8 beside the GEMMs", a.charged, b.charged);
  add("collectives alone", length(a.total.collective_ns - a.total.hidden_ns),
      length(b.total.collective_ns - b.total.hidden_ns));
  add("waiting for the host", length(a.total.gaps.host), length(b.total.gaps.host));
  add("first to last", length(a.total.span_ns), length(b.total.span_ns));
  return lines;
}

std::string ms_text(const Time& time) {
  return time.calls == 0 ? "-" : printed("%.3f", to_ms(time.ns));
}

std::string ratio_text(const Time& a, const Time& b) {
  return a.ns <= 0 || b.ns <= 0
             ? "-"
             : printed("%.2fx", static_cast<double>(b.ns) / static_cast<double>(a.ns));
}

}  // namespace

std::string comparison_text(const Audit& a, const Audit& b) {
  std::string out;
  for (const auto& [letter, audit] : {std::pair{'A', &a}, {'B', &b}})
    for (const FileAudit& file : audit->files)
      out += str(letter, ": ", file.path, ", ", name_of(file.format),
                 file.gpu.empty() ? "" : ", " + file.gpu, ", ", file.work.calls,
                 " kernels and copies\n");
  std::vector<std::vector<std::string>> rows = {
      {"class", "A calls", "A ms", "B calls", "B ms", "B / A", "B - A ms"}};
  for (const Line& line : lines_of(a, b))
    rows.push_back({line.name, str(line.a.calls), ms_text(line.a), str(line.b.calls),
                    ms_text(line.b), ratio_text(line.a, line.b),
                    printed("%+.3f", to_ms(line.b.ns - line.a.ns))});
  out += "\n" + table_text(rows);
  for (const auto& [letter, audit] : {std::pair{'A', &a}, {'B', &b}}) {
    out += str("\nverdict ", letter, ": ", audit->headline);
    for (const std::string& reason : audit->reasons) out += "; " + reason;
  }
  return out + "\n";
}

nlohmann::json comparison_json(const Audit& a, const Audit& b) {
  nlohmann::json classes = nlohmann::json::array();
  for (const Line& line : lines_of(a, b))
    classes.push_back({{"class", line.name},
                       {"a_calls", line.a.calls},
                       {"a_ms", to_ms(line.a.ns)},
                       {"b_calls", line.b.calls},
                       {"b_ms", to_ms(line.b.ns)}});
  return {{"classes", std::move(classes)}, {"a", json_of(a)}, {"b", json_of(b)}};
}

}  // namespace octavo::audit
