#include <algorithm>

#include "audit/audit.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/printed.h"
#include "base/progress.h"
#include "base/text.h"

namespace octavo::audit {
namespace {

using Rows = std::vector<std::vector<std::string>>;
constexpr size_t kMostShown = 15, kMostListed = 8, kNameColumns = 70;

std::string ms(int64_t ns) {
  const double value = to_ms(ns);
  return printed(value < 10 ? "%.3f" : "%.1f", value);
}

std::string percent_of(int64_t part, int64_t whole) {
  return whole > 0 ? printed("%.1f%%", 100 * static_cast<double>(part) / static_cast<double>(whole))
                   : std::string("-");
}

std::string kernel_text(const std::string& name) {
  std::string plain = normalized_name(name);
  for (const std::string_view noise : {"at::native::", "(anonymous namespace)::"})
    for (size_t at = plain.find(noise); at != plain.npos; at = plain.find(noise))
      plain.erase(at, noise.size());
  return printable(plain, kNameColumns);
}

std::string file_text(const FileAudit& file) {
  std::string rank = file.rank < 0 ? "" : str(", rank ", file.rank);
  if (file.rank >= 0 && file.world_size > 0) rank += str(" of ", file.world_size);
  std::string out = str(file.path, ": ", name_of(file.format),
                        file.gpu.empty() ? "" : ", " + file.gpu, rank, "\n");
  if (file.work.calls > 0)
    out += str("  ", file.work.calls, " kernels and copies, ", ms(file.work.ns), " ms of work in ",
               ms(file.span_ns), " ms", file.devices > 1 ? str(" on ", file.devices, " GPUs") : "",
               "; busy ", percent_of(file.busy_ns, file.span_ns), "\n");
  std::vector<std::string> notes;
  if (file.is_cut) notes.emplace_back("the file ends in the middle: read as far as it goes");
  if (file.malformed > 0)
    notes.push_back(str(file.malformed, " events without sound times skipped"));
  if (file.dropped > 0) notes.push_back(str(file.dropped, " events or names were dropped"));
  if (file.attribution.ids_are_correlations)
    notes.emplace_back(
        "External id repeats the correlation (an old kineto): operations found by "
        "time");
  if (file.attribution.in_graphs > 0)
    notes.push_back(str(file.attribution.in_graphs, " kernels of CUDA graphs: without operations"));
  if (file.unattributed.calls > 0)
    notes.push_back(str("unattributed: ", file.unattributed.calls, " kernels, ",
                        percent_of(file.unattributed.ns, file.work.ns),
                        " of the time, have no launch in the trace"));
  for (const std::string& note : notes) out += "  " + note + "\n";
  return out;
}

std::string gemm_precisions_text(const Audit& audit) {
  Rows rows = {{"GEMMs by precision", "calls", "ms", "of GEMM time"}};
  for (size_t i = kPrecisions; i-- > 0;) {
    const Time& time = audit.gemms[i];
    if (time.calls > 0)
      rows.push_back({std::string(name_of(static_cast<Precision>(i))), str(time.calls), ms(time.ns),
                      percent_of(time.ns, audit.gemm_ns())});
  }
  if (audit.gemm_helpers.calls > 0)
    rows.push_back({"helpers", str(audit.gemm_helpers.calls), ms(audit.gemm_helpers.ns),
                    percent_of(audit.gemm_helpers.ns, audit.gemm_ns())});
  for (size_t i = kPrecisions; i-- > 0;)
    if (const Time& time = audit.attention[i]; time.calls > 0)
      rows.push_back({str("attention, ", name_of(static_cast<Precision>(i))), str(time.calls),
                      ms(time.ns), ""});
  return rows.size() > 1 ? table_text(rows) : "";
}

std::string gemms_text(const Audit& audit) {
  if (audit.gemm_rows.empty()) return "";
  Rows rows = {{"GEMM", "calls", "ms", "of GEMM time", "M x N x K, or operation", "kernel"}};
  for (const GemmRow& row : audit.gemm_rows) {
    if (rows.size() > kMostShown) break;
    const GemmShape& s = row.shape;
    std::string shape = row.op.empty() ? "-" : printable(row.op, 40);
    if (s.is_known())
      shape = str(s.batch > 1 ? str(s.batch, " x ") : "", s.m, " x ", s.n, " x ", s.k);
    rows.push_back(
        {str(name_of(row.precision), row.is_sure ? "" : "?", row.is_disputed ? " (disputed)" : ""),
         str(row.time.calls), ms(row.time.ns), percent_of(row.time.ns, audit.gemm_ns()), shape,
         kernel_text(row.kernel)});
  }
  std::string out = table_text(rows);
  if (audit.gemm_rows.size() > kMostShown)
    out += str("  … and ", audit.gemm_rows.size() - kMostShown, " more: --json has all\n");
  if (std::ranges::any_of(audit.gemm_rows, [](const GemmRow& row) { return !row.is_sure; }))
    out += "  ?: doubtful; the name alone does not prove it\n";
  return out;
}

std::string kinds_text(const Audit& audit) {
  Rows rows = {{"where GPU time went", "calls", "ms", "share"}};
  std::vector<size_t> order;
  for (size_t i = 0; i < kKinds; ++i)
    if (audit.kinds[i].calls > 0) order.push_back(i);
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return audit.kinds[i].ns; });
  for (const size_t i : order)
    rows.push_back({std::string(name_of(static_cast<Kind>(i))), str(audit.kinds[i].calls),
                    ms(audit.kinds[i].ns), percent_of(audit.kinds[i].ns, audit.total.work.ns)});
  return rows.size() > 1 ? table_text(rows) : "";
}

std::string times_text(const Audit& audit) {
  const FileAudit& total = audit.total;
  std::string out;
  if (audit.charged.calls > 0)
    out += str("FP8 beside the GEMMs (casts, maxima, transposes, scales): ", ms(audit.charged.ns),
               " ms, ", percent_of(audit.charged.ns, total.work.ns), " of GPU time",
               audit.charged_fused.ns > 0
                   ? str("; ", ms(audit.charged_fused.ns), " ms of it also compute an activation")
                   : "",
               "\n");
  if (total.collective_ns > 0)
    out += str("collectives: ", ms(total.collective_ns), " ms, ",
               percent_of(total.hidden_ns, total.collective_ns), " of that behind compute; ",
               percent_of(total.collective_ns - total.hidden_ns, total.span_ns),
               " of the time is spent on them alone\n");
  const Gaps& gaps = total.gaps;
  if (const int64_t idle = total.span_ns - total.busy_ns; idle > 0)
    out += str("GPU idle: ", percent_of(idle, total.span_ns), " of the time; waiting for the host ",
               percent_of(gaps.host, total.span_ns), " (", gaps.count, " gaps, ",
               percent_of(gaps.sync, total.span_ns), " after a synchronization), for other work ",
               percent_of(gaps.queued, total.span_ns), ", unknown ",
               percent_of(gaps.unknown, total.span_ns), "\n");
  Rows copies = {{"memory copies", "calls", "ms", "bytes"}};
  for (const KernelRow& row : audit.kernels)
    if (row.kernel_class.kind == Kind::kMemcpy && copies.size() <= kMostListed)
      copies.push_back({printable(row.kernel, kNameColumns), str(row.time.calls), ms(row.time.ns),
                        format_bytes(static_cast<double>(row.bytes))});
  return out + (copies.size() > 1 ? table_text(copies) : "");
}

// What no rule knows: named, so that nobody takes silence for an answer.
std::string unknown_text(const Audit& audit) {
  Rows gemms = {{"named like a GEMM, and no rule knows it", "calls", "ms"}};
  for (const GemmRow& row : audit.gemm_rows)
    if (row.kernel_class.kind == Kind::kUnknownGemm && gemms.size() <= kMostListed)
      gemms.push_back({kernel_text(row.kernel), str(row.time.calls), ms(row.time.ns)});
  Rows others = {{str("not recognized: ", percent_of(audit.unrecognized.ns, audit.total.work.ns),
                      " of GPU time"),
                  "calls", "ms"}};
  for (const KernelRow& row : audit.kernels)
    if (row.kernel_class.kind == Kind::kOther && others.size() <= kMostListed)
      others.push_back({kernel_text(row.kernel), str(row.time.calls), ms(row.time.ns)});
  return (gemms.size() > 1 ? table_text(gemms) : "") +
         (others.size() > 1 ? table_text(others) : "");
}

std::string host_text(const Audit& audit) {
  std::string out;
  Rows ranges = {{"ranges of the host", "calls", "ms", "of it alone"}};
  for (const HostRow& row : audit.ranges)
    if (ranges.size() <= kMostShown)
      ranges.push_back({printable(row.name, kNameColumns), str(row.time.calls), ms(row.time.ns),
                        ms(row.self_ns)});
  Rows spans = {{"collectives", "calls", "ms", "bytes"}};
  for (const HostRow& row : audit.host_collectives)
    if (spans.size() <= kMostShown)
      spans.push_back({printable(row.name, kNameColumns), str(row.time.calls), ms(row.time.ns),
                       format_bytes(static_cast<double>(row.bytes))});
  return (ranges.size() > 1 ? table_text(ranges) : "") +
         (spans.size() > 1 ? table_text(spans) : "");
}

}  // namespace

std::string text_of(const Audit& audit) {
  std::string out;
  for (const FileAudit& file : audit.files) out += file_text(file);
  for (const std::string& part : {gemm_precisions_text(audit), gemms_text(audit), kinds_text(audit),
                                  times_text(audit), unknown_text(audit), host_text(audit)})
    if (!part.empty()) out += "\n" + part;
  out += str("\nverdict: ", audit.headline);
  for (const std::string& reason : audit.reasons) out += "; " + reason;
  return out + (audit.hint.empty() ? "\n" : str("\n  ", audit.hint, "\n"));
}

}  // namespace octavo::audit
