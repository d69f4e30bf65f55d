#pragma once
// What really ran, from traces of anybody's trainer: GEMMs by precision and shape, what FP8 costs
// beside them, collectives and how much of them is hidden, and why the GPU waited.

#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "audit/attribution.h"
#include "audit/gemm_op.h"
#include "audit/kernel_class.h"
#include "audit/timeline.h"
#include "audit/trace.h"

namespace octavo::audit {

inline double to_ms(int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

struct Time {
  int64_t calls = 0, ns = 0;
  void add(int64_t length) {
    ++calls;
    add_bounded(ns, length);
  }
};

// A kernel of one name, launched by one operation with one shape.
struct GemmRow {
  std::string kernel, op;  // op: "" when the trace does not say
  GemmShape shape;
  KernelClass kernel_class;
  Precision precision = Precision::kUnknown;  // by name and operation together
  bool is_sure = true;
  bool is_disputed = false;  // name and operation contradict each other
  Time time;
  std::vector<std::string> modules;  // some of those that called it
};

struct KernelRow {
  std::string kernel;
  KernelClass kernel_class;
  Time time;
  int64_t bytes = 0;
};

// One file: a rank, or a node.
struct FileAudit {
  std::string path, gpu;
  Format format = Format::kKineto;
  int64_t rank = kNoId, world_size = kNoId;
  int64_t events = 0, malformed = 0, dropped = 0;
  bool is_cut = false, has_graph_rows = false;
  size_t devices = 0;
  Time work;                         // all GPU work
  int64_t span_ns = 0, busy_ns = 0;  // first to last, and when something ran; summed over devices
  int64_t collective_ns = 0, hidden_ns = 0;  // when a collective ran, and compute at the same time
  Gaps gaps;
  Attribution attribution;
  Time unattributed;
};

// A trace of octavo itself: the host's ranges, and collectives.
struct HostRow {
  std::string name;
  Time time;            // inside of the range
  int64_t self_ns = 0;  // without the ranges inside of it
  int64_t bytes = 0;
};

struct Audit {
  std::vector<FileAudit> files;
  FileAudit total;  // sums of the files
  std::array<Time, kKinds> kinds{};
  std::array<Time, kPrecisions> gemms{}, attention{};  // by precision
  Time gemm_helpers, charged, charged_fused, unrecognized;
  std::vector<GemmRow> gemm_rows;                 // longest first, as all lists here
  std::vector<KernelRow> kernels;                 // everything that is no GEMM
  std::vector<HostRow> ranges, host_collectives;  // octavo's own
  std::string headline;                           // the verdict
  std::vector<std::string> reasons;
  std::string hint;  // where to look when the verdict is a surprise

  int64_t gemm_ns() const;  // with helpers and unknown ones
  int64_t low_gemm_ns() const;
};

Audit audit_traces(const std::vector<fs::path>& paths);

// Fills headline, reasons and hint: what the numbers mean, and what to do.
void judge(Audit& audit);

std::string text_of(const Audit& audit);
nlohmann::json json_of(const Audit& audit);

// Two audits side by side, a line for each class of kernels.
std::string comparison_text(const Audit& a, const Audit& b);
nlohmann::json comparison_json(const Audit& a, const Audit& b);

}  // namespace octavo::audit
