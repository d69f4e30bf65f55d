#include "audit/trace.h"

#include "audit/byte_source.h"
#include "audit/readers.h"
#include "base/error.h"
#include "base/printable.h"

namespace octavo::audit {

NameTable::NameTable() {
  number("");
}

uint32_t NameTable::number(std::string_view text) {
  if (const auto found = numbers_.find(text); found != numbers_.end()) return found->second;
  constexpr size_t kOverhead = 128;
  if (bytes_ + text.size() + kOverhead > kMostBytes) {
    ++dropped_;
    return 0;
  }
  bytes_ += text.size() + kOverhead;
  const auto next = static_cast<uint32_t>(texts_.size());
  numbers_.emplace(texts_.emplace_back(text), next);
  return next;
}

std::string_view name_of(Format format) {
  switch (format) {
    case Format::kKineto:
      return "PyTorch profiler";
    case Format::kNsight:
      return "Nsight Systems";
    case Format::kOctavo:
      return "octavo --trace";
  }
  return "";
}

void Trace::check_size() const {
  constexpr size_t kMost = size_t{640} << 20;
  const size_t bytes = work.size() * sizeof(GpuWork) + ops.size() * sizeof(HostOp) +
                       launches.size() * sizeof(Launch) + ranges.size() * sizeof(HostOp) +
                       spans.size() * sizeof(HostSpan);
  if (bytes > kMost)
    fail(ExitCode::kUsage, "audit", path.string(), ": wanted a trace of some steps, found more ",
         "than ", work.size() + ops.size() + launches.size(),
         " events; record fewer steps, or one rank alone");
}

Trace read_trace(const fs::path& path) {
  constexpr std::string_view kSqlite("SQLite format 3\0", 16);
  const std::string first = first_bytes(path, kSqlite.size());
  if (first.empty())
    fail(ExitCode::kUsage, "audit", "wanted a trace, found that ", path.string(),
         " is empty; was the profiler stopped before it wrote?");
  if (first == kSqlite) return read_nsight(path);
  const size_t begin = first.find_first_not_of(" \t\r\n");
  const bool is_json = begin != first.npos && (first[begin] == '{' || first[begin] == '[');
  if (is_json || first.starts_with("\x1f\x8b") || begin == first.npos) return read_chrome(path);
  fail(ExitCode::kUsage, "audit", "wanted a PyTorch profiler trace (.json, .json.gz), an Nsight ",
       "Systems SQLite export or a file of octavo --trace, found ", path.string(),
       " which begins with '", printable(first),
       "'; an .nsys-rep becomes one by: nsys export --type sqlite FILE.nsys-rep");
}

}  // namespace octavo::audit
