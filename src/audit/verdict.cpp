// What the numbers mean: is FP8 on, what runs beside it and why, what it costs, what to change.

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "audit/audit.h"
#include "base/error.h"
#include "base/printed.h"
#include "base/text.h"

namespace octavo::audit {
namespace {

constexpr double kWorthSaying = 0.02;  // of the GEMM time, for a group of GEMMs
constexpr double kManyGaps = 0.05, kMuchExposed = 0.05, kMuchCopied = 0.03;
constexpr int64_t kVocabulary = 30'000;  // a side of a GEMM from which on it is the output head's
constexpr size_t kMostGroups = 3;

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string percent(double value) {
  return printed(value > 0 && value < 0.0095 ? "%.1f%%" : "%.0f%%", 100 * value);
}

// GEMMs of one precision, shape and kind of operation that did not run in FP8.
struct Group {
  Precision precision = Precision::kUnknown;
  GemmShape shape;
  std::string_view op;
  Time time;
  std::vector<std::string> modules;
};

// The largest size that few GEMMs have: what most have is the tokens of a micro-batch.
int64_t vocabulary_of(const Audit& audit) {
  std::map<int64_t, int64_t> calls;  // by size
  int64_t all = 0, largest = 0;
  for (const GemmRow& row : audit.gemm_rows) {
    if (!row.shape.is_known()) continue;
    all += row.time.calls;
    for (const int64_t size : std::set{row.shape.m, row.shape.n, row.shape.k})
      calls[size] += row.time.calls;
  }
  for (const auto& [size, count] : calls)
    if (size >= kVocabulary && count <= all / 2) largest = size;
  return largest;
}

bool is_head(const GemmShape& shape, int64_t vocabulary) {
  return vocabulary > 0 &&
         (shape.m == vocabulary || shape.n == vocabulary || shape.k == vocabulary);
}

std::string why(const Group& group, int64_t multiple) {
  const GemmShape& s = group.shape;
  if (!s.is_known()) return "no shapes in the trace";
  for (const auto& [name, size] : {std::pair{"K", s.k}, {"N", s.n}})
    if (size % multiple != 0) return str(name, " = ", size, " is no multiple of ", multiple);
  if (group.op == "aten::bmm" || group.op == "aten::baddbmm") return "batched: not a linear layer";
  return "its sizes allow FP8: left out by a filter, or never converted";
}

std::string phrase(const Group& group, int64_t multiple, int64_t vocabulary) {
  const GemmShape& s = group.shape;
  const std::string precision(name_of(group.precision));
  std::string what = str(group.time.calls, " GEMMs");
  if (s.is_known())
    what = str(group.time.calls, " of ", s.m, " x ", s.n, " x ", s.k,
               is_head(s, vocabulary) ? ", the output head," : "");
  if (!group.modules.empty())
    what += str(
        " (", join(std::span(group.modules).first(std::min<size_t>(2, group.modules.size())), ", "),
        group.modules.size() > 2 ? ", …)" : ")");
  return str(what, " in ", precision, " (", why(group, multiple), ")");
}

// Longest first.
std::vector<Group> left_out(const Audit& audit) {
  std::map<std::tuple<Precision, GemmShape, std::string_view>, Group> groups;
  for (const GemmRow& row : audit.gemm_rows) {
    if (is_low(row.precision) || row.precision == Precision::kUnknown) continue;
    const std::string_view op = row.shape.is_known() ? std::string_view(row.op) : "";
    Group& group = groups[{row.precision, row.shape, op}];
    group.precision = row.precision;
    group.shape = row.shape;
    group.op = op;
    group.time.calls += row.time.calls;
    add_bounded(group.time.ns, row.time.ns);
    for (const std::string& module : row.modules)
      if (group.modules.size() < 8) group.modules.push_back(module);
  }
  std::vector<Group> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::ranges::stable_sort(sorted, std::greater<>(), [](const Group& g) { return g.time.ns; });
  return sorted;
}

std::string left_out_text(const Audit& audit) {
  const int64_t mx = audit.gemms[static_cast<size_t>(Precision::kMxfp8)].ns;
  const int64_t multiple = mx > audit.low_gemm_ns() / 2 ? 32 : 16;
  const int64_t vocabulary = vocabulary_of(audit);
  std::vector<std::string> phrases;
  size_t small = 0;
  int64_t small_ns = 0;
  for (const Group& group : left_out(audit)) {
    if (phrases.size() < kMostGroups && share(group.time.ns, audit.gemm_ns()) >= kWorthSaying) {
      phrases.push_back(phrase(group, multiple, vocabulary));
    } else {
      small += static_cast<size_t>(group.time.calls);
      add_bounded(small_ns, group.time.ns);
    }
  }
  if (small > 0)
    phrases.push_back(str(small, phrases.empty() ? " GEMMs" : " more GEMMs",
                          " in 16 bits or more, ", percent(share(small_ns, audit.gemm_ns())),
                          " of GEMM time"));
  return join(phrases, "; ");
}

// "BF16 87%, FP32 13%"
std::string precisions_text(const Audit& audit) {
  std::vector<std::pair<int64_t, std::string>> parts;
  for (size_t i = 0; i < kPrecisions; ++i)
    if (share(audit.gemms[i].ns, audit.gemm_ns()) >= 0.001)
      parts.emplace_back(audit.gemms[i].ns,
                         str(name_of(static_cast<Precision>(i)), " ",
                             percent(share(audit.gemms[i].ns, audit.gemm_ns()))));
  std::ranges::sort(parts, std::greater<>());
  std::vector<std::string> names;
  for (auto& [ns, text] : parts) names.push_back(text);
  return join(names, ", ");
}

void add_costs(const Audit& audit, std::vector<std::string>& reasons) {
  if (audit.charged.ns > 0)
    reasons.push_back(str("quantizing costs ",
                          percent(share(audit.charged.ns, audit.total.work.ns)), " of GPU time"));
  const FileAudit& total = audit.total;
  if (const double gaps = share(total.gaps.host, total.span_ns); gaps >= kManyGaps) {
    const double after = share(total.gaps.sync, total.gaps.host);
    reasons.push_back(str(percent(gaps), " launch gaps",
                          after > 0.5
                              ? ", most after the host waited for the GPU (.item(), .cpu(), "
                                "nonzero): remove those waits"
                              : ": use CUDA graphs or compile"));
  }
  const int64_t exposed = total.collective_ns - total.hidden_ns;
  if (const double part = share(exposed, total.span_ns); part >= kMuchExposed)
    reasons.push_back(str("collectives that nothing hides take ", percent(part),
                          " of the time: overlap them with compute"));
  const int64_t copies = audit.kinds[static_cast<size_t>(Kind::kMemcpy)].ns;
  if (const double part = share(copies, total.work.ns); part >= kMuchCopied)
    reasons.push_back(str("memory copies take ", percent(part), " of GPU time"));
}

void add_doubts(const Audit& audit, std::vector<std::string>& reasons) {
  int64_t slow = 0, disputed = 0, unsure = 0;
  for (const GemmRow& row : audit.gemm_rows) {
    if (row.precision == Precision::kFp32) add_bounded(slow, row.time.ns);
    if (row.is_disputed) disputed += row.time.calls;
    if (!row.is_sure && row.kernel_class.kind == Kind::kGemm) add_bounded(unsure, row.time.ns);
  }
  const int64_t gemm = audit.gemm_ns();
  if (const double part = share(slow, gemm); part >= kWorthSaying)
    reasons.push_back(str(percent(part),
                          " of GEMM time in FP32 without tensor cores: allow TF32 "
                          "(torch.set_float32_matmul_precision) or use BF16"));
  if (const double part = share(unsure, gemm); part >= kWorthSaying)
    reasons.push_back(str("the precision of ", percent(part), " of GEMM time is doubtful"));
  if (disputed > 0)
    reasons.push_back(str(disputed,
                          " GEMMs whose operation and kernel name disagree on the "
                          "precision"));
  const Time& unknown = audit.kinds[static_cast<size_t>(Kind::kUnknownGemm)];
  if (unknown.calls > 0)
    reasons.push_back(str(unknown.calls, " kernels named like GEMMs that no rule knows, ",
                          percent(share(unknown.ns, gemm)), " of GEMM time: listed above"));
  if (audit.total.is_cut)
    reasons.emplace_back("a trace ends in the middle: judged by what is there");
  if (audit.total.has_graph_rows)
    reasons.emplace_back(
        "CUDA graphs were recorded as one row each, without their kernels: record "
        "with nsys profile --cuda-graph-trace=node");
}

}  // namespace

void judge(Audit& audit) {
  audit.reasons.clear(), audit.hint.clear();
  const int64_t gemm = audit.gemm_ns(), low = audit.low_gemm_ns();
  if (audit.total.work.calls == 0) {
    audit.headline =
        audit.ranges.empty() && audit.host_collectives.empty()
            ? "no GPU work in the trace: was the profiler told to record CUDA activities?"
            : "octavo's own timeline: the host's ranges and collectives, no kernels. Which GEMMs "
              "run "
              "in FP8 is in the run's receipt and in octavo diagnose; kernels are in a trace of "
              "nsys";
    return;
  }
  const bool asked = low > 0 || audit.charged.calls > 0;
  if (gemm == 0) {
    audit.headline = str("no GEMM among ", audit.total.work.calls, " kernels and copies");
  } else if (asked) {
    const bool fp4 = audit.gemms[static_cast<size_t>(Precision::kNvfp4)].ns > 0 ||
                     audit.gemms[static_cast<size_t>(Precision::kMxfp4)].ns > 0;
    audit.headline = str("FP8 asked for, ", percent(share(low, gemm)), " of GEMM time in FP8",
                         fp4 ? " or FP4" : "");
    if (const std::string others = left_out_text(audit); !others.empty())
      audit.headline += ": " + others;
  } else {
    audit.headline = str("no FP8 kernel of any kind ran; GEMM time is ", precisions_text(audit));
    audit.hint =
        "FP8 was asked for? Then no layer was converted: look at converters and filter_fqns "
        "(torchtitan), module_filter_fn (torchao), fp8_autocast (Transformer Engine), "
        "--fp8-format (Megatron)";
  }
  add_costs(audit, audit.reasons);
  add_doubts(audit, audit.reasons);
}

}  // namespace octavo::audit
