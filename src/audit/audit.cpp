#include "audit/audit.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/printable.h"

namespace octavo::audit {
namespace {

constexpr size_t kMostModules = 8;  // names kept for a row
constexpr size_t kMostRows = 200'000;

void add_gaps(Gaps& sum, const Gaps& more) {
  add_bounded(sum.host, more.host);
  add_bounded(sum.sync, more.sync);
  add_bounded(sum.queued, more.queued);
  add_bounded(sum.unknown, more.unknown);
  sum.count += more.count;
}

// One file into the sums of an audit.
class FileAuditor {
 public:
  FileAuditor(Audit& audit, Trace trace) : audit_(audit), trace_(std::move(trace)) {}

  void run() {
    describe();
    file_.attribution = attribute(trace_);
    for (const GpuWork& work : trace_.work) take(work);
    for (auto& [key, row] : gemms_) audit_.gemm_rows.push_back(std::move(row));
    for (auto& [name, row] : kernels_) audit_.kernels.push_back(std::move(row));
    measure_devices();
    if (trace_.format == Format::kOctavo) take_host();
    audit_.files.push_back(std::move(file_));
  }

 private:
  void describe() {
    file_.path = printable(trace_.path.string(), 300);
    file_.gpu = printable(trace_.gpu, 100);
    file_.format = trace_.format;
    file_.rank = trace_.rank;
    file_.world_size = trace_.world_size;
    file_.events = trace_.events;
    file_.malformed = trace_.malformed;
    file_.dropped = trace_.dropped;
    file_.is_cut = trace_.is_cut;
    file_.has_graph_rows = trace_.has_graph_rows;
  }

  const KernelClass& class_of(const GpuWork& work) {
    if (work.activity != Activity::kKernel) {
      static const KernelClass kCopy{.kind = Kind::kMemcpy, .library = "CUDA"};
      static const KernelClass kSet{.kind = Kind::kMemset, .library = "CUDA"};
      return work.activity == Activity::kMemcpy ? kCopy : kSet;
    }
    const auto found = classes_.find(work.name);
    if (found != classes_.end()) return found->second;
    return classes_.emplace(work.name, classify_kernel(trace_.names.text(work.name))).first->second;
  }

  std::string_view op_name(const GpuWork& work) const {
    return work.op == kNoOp ? std::string_view() : trace_.names.text(trace_.ops[work.op].name);
  }

  void take(const GpuWork& work) {
    const KernelClass& known = class_of(work);
    const int64_t length = work.end - work.begin;
    Kind kind = known.kind;
    // cuBLAS clears what split K adds up in: that belongs to its GEMM.
    if (kind == Kind::kMemset && is_gemm_op(op_name(work))) kind = Kind::kGemmHelper;
    file_.work.add(length);
    audit_.kinds.at(static_cast<size_t>(kind)).add(length);
    if (work.op == kNoOp && work.launch == kNoOp) file_.unattributed.add(length);
    if (is_charged_to_fp8(known)) {
      audit_.charged.add(length);
      if (known.is_fused) audit_.charged_fused.add(length);
    }
    if (kind == Kind::kGemmHelper) audit_.gemm_helpers.add(length);
    if (kind == Kind::kOther) audit_.unrecognized.add(length);
    if (kind == Kind::kGemm || kind == Kind::kUnknownGemm) {
      take_gemm(work, known, length);
      return;
    }
    if (kind == Kind::kAttention)
      audit_.attention.at(static_cast<size_t>(known.precision)).add(length);
    take_kernel(work, known, kind, length);
  }

  void take_kernel(const GpuWork& work, const KernelClass& known, Kind kind, int64_t length) {
    if (kernels_.size() >= kMostRows) return;
    KernelRow& row = kernels_[{work.name, kind}];
    if (row.kernel.empty()) {
      row.kernel = trace_.names.text(work.name);
      row.kernel_class = known;
      row.kernel_class.kind = kind;
    }
    row.time.add(length);
    add_bounded(row.bytes, work.bytes);
  }

  void take_gemm(const GpuWork& work, const KernelClass& known, int64_t length) {
    const uint32_t op = work.op == kNoOp ? 0 : trace_.ops[work.op].name;
    const uint32_t shapes = work.op == kNoOp ? 0 : trace_.ops[work.op].shapes;
    const auto key = std::tuple(work.name, op, shapes);
    auto found = gemms_.find(key);
    if (found == gemms_.end()) {
      GemmRow row;
      row.kernel = trace_.names.text(work.name);
      row.op = trace_.names.text(op);
      row.kernel_class = known;
      row.shape = shape_of_op(row.op, trace_.names.text(shapes));
      const Precision by_op = precision_of_op(row.op, trace_.names.text(shapes));
      row.precision = agreed_precision(known.precision, by_op, row.is_disputed);
      const bool is_told = by_op != Precision::kUnknown && by_op == row.precision;
      row.is_sure = (known.is_sure || is_told) && !row.is_disputed && known.kind == Kind::kGemm;
      if (gemms_.size() >= kMostRows) {  // sums stay right; rows beyond have no shape
        row.shape = {};
        found = gemms_.try_emplace({work.name, 0, 0}, row).first;
      } else {
        found = gemms_.emplace(key, std::move(row)).first;
      }
    }
    GemmRow& row = found->second;
    row.time.add(length);
    audit_.gemms.at(static_cast<size_t>(row.precision)).add(length);
    if (work.module != 0 && row.modules.size() < kMostModules) {
      const std::string& module = trace_.names.text(work.module);
      if (std::ranges::find(row.modules, module) == row.modules.end())
        row.modules.push_back(module);
    }
  }

  void measure_devices() {
    std::map<uint32_t, std::vector<const GpuWork*>> devices;
    for (const GpuWork& work : trace_.work) devices[work.device].push_back(&work);
    file_.devices = devices.size();
    for (auto& [device, work] : devices) {
      std::ranges::sort(work, {}, [](const GpuWork* one) { return one->begin; });
      std::vector<Interval> all, collectives, compute;
      for (const GpuWork* one : work) {
        const Interval interval{one->begin, one->end};
        all.push_back(interval);
        if (class_of(*one).kind == Kind::kCollective)
          collectives.push_back(interval);
        else if (one->activity == Activity::kKernel)
          compute.push_back(interval);
      }
      const std::vector<Interval> busy = union_of(std::move(all));
      const std::vector<Interval> talking = union_of(std::move(collectives));
      if (!busy.empty()) add_bounded(file_.span_ns, busy.back().second - busy.front().first);
      add_bounded(file_.busy_ns, length_of(busy));
      add_bounded(file_.collective_ns, length_of(talking));
      add_bounded(file_.hidden_ns, overlap_of(talking, union_of(std::move(compute))));
      add_gaps(file_.gaps, gaps_of(trace_, work));
    }
  }

  // Ranges of one thread lie inside each other: a range's own time is what those inside leave.
  void take_host() {
    std::map<uint32_t, HostRow> ranges, collectives;
    std::ranges::sort(trace_.ranges, [](const HostOp& a, const HostOp& b) {
      return std::tuple(a.thread, a.begin, -a.end) < std::tuple(b.thread, b.begin, -b.end);
    });
    std::vector<const HostOp*> open;
    for (const HostOp& range : trace_.ranges) {
      while (!open.empty() &&
             (open.back()->thread != range.thread || open.back()->end <= range.begin))
        open.pop_back();
      HostRow& row = ranges[range.name];
      row.time.add(range.end - range.begin);
      add_bounded(row.self_ns, range.end - range.begin);
      if (!open.empty()) add_bounded(ranges[open.back()->name].self_ns, range.begin - range.end);
      open.push_back(&range);
    }
    for (const HostSpan& span : trace_.spans) {
      HostRow& row = collectives[span.name];
      row.time.add(span.end - span.begin);
      add_bounded(row.bytes, span.bytes);
    }
    for (auto& [name, row] : ranges) {
      row.name = trace_.names.text(name);
      audit_.ranges.push_back(std::move(row));
    }
    for (auto& [name, row] : collectives) {
      row.name = trace_.names.text(name);
      audit_.host_collectives.push_back(std::move(row));
    }
  }

  Audit& audit_;
  Trace trace_;
  FileAudit file_;
  std::unordered_map<uint32_t, KernelClass> classes_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, GemmRow> gemms_;
  std::map<std::pair<uint32_t, Kind>, KernelRow> kernels_;
};

// Rows of several files that say the same become one.
template <typename Row, typename Key>
void join_rows(std::vector<Row>& rows, Key&& key_of, void (*add)(Row&, const Row&)) {
  std::map<decltype(key_of(rows.front())), Row> joined;
  for (Row& row : rows) {
    auto key = key_of(row);
    const auto found = joined.find(key);
    if (found == joined.end())
      joined.emplace(std::move(key), std::move(row));
    else
      add(found->second, row);
  }
  rows.clear();
  for (auto& [key, row] : joined) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, std::greater<>(), [](const Row& row) { return row.time.ns; });
}

void add_time(Time& sum, const Time& more) {
  sum.calls += more.calls;
  add_bounded(sum.ns, more.ns);
}

void join_files(Audit& audit) {
  FileAudit& total = audit.total;
  for (const FileAudit& file : audit.files) {
    total.events += file.events;
    total.malformed += file.malformed;
    total.dropped += file.dropped;
    total.is_cut = total.is_cut || file.is_cut;
    total.has_graph_rows = total.has_graph_rows || file.has_graph_rows;
    total.devices += file.devices;
    add_time(total.work, file.work);
    add_time(total.unattributed, file.unattributed);
    add_bounded(total.span_ns, file.span_ns);
    add_bounded(total.busy_ns, file.busy_ns);
    add_bounded(total.collective_ns, file.collective_ns);
    add_bounded(total.hidden_ns, file.hidden_ns);
    add_gaps(total.gaps, file.gaps);
    total.attribution.by_id += file.attribution.by_id;
    total.attribution.by_time += file.attribution.by_time;
    total.attribution.in_graphs += file.attribution.in_graphs;
    total.attribution.unknown += file.attribution.unknown;
  }
}

}  // namespace

int64_t Audit::gemm_ns() const {
  return kinds[static_cast<size_t>(Kind::kGemm)].ns +
         kinds[static_cast<size_t>(Kind::kGemmHelper)].ns +
         kinds[static_cast<size_t>(Kind::kUnknownGemm)].ns;
}

int64_t Audit::low_gemm_ns() const {
  int64_t sum = 0;
  for (size_t i = 0; i < kPrecisions; ++i)
    if (is_low(static_cast<Precision>(i))) sum += gemms[i].ns;
  return sum;
}

Audit audit_traces(const std::vector<fs::path>& paths) {
  Audit audit;
  for (const fs::path& path : paths) FileAuditor(audit, read_trace(path)).run();
  join_files(audit);
  join_rows(
      audit.gemm_rows,
      [](const GemmRow& row) { return std::tuple(row.kernel, row.op, row.shape, row.precision); },
      +[](GemmRow& sum, const GemmRow& more) {
        add_time(sum.time, more.time);
        for (const std::string& module : more.modules)
          if (sum.modules.size() < kMostModules &&
              std::ranges::find(sum.modules, module) == sum.modules.end())
            sum.modules.push_back(module);
      });
  join_rows(
      audit.kernels,
      [](const KernelRow& row) { return std::pair(row.kernel, row.kernel_class.kind); },
      +[](KernelRow& sum, const KernelRow& more) {
        add_time(sum.time, more.time);
        add_bounded(sum.bytes, more.bytes);
      });
  const auto add_host = +[](HostRow& sum, const HostRow& more) {
    add_time(sum.time, more.time);
    add_bounded(sum.self_ns, more.self_ns);
    add_bounded(sum.bytes, more.bytes);
  };
  const auto host_name = [](const HostRow& row) { return row.name; };
  join_rows(audit.ranges, host_name, add_host);
  join_rows(audit.host_collectives, host_name, add_host);
  judge(audit);
  return audit;
}

}  // namespace octavo::audit
