// The SQLite export of Nsight Systems (schema 3.x, nanoseconds). Tables are there when they have
// rows, and columns differ between versions. Correlation ids repeat over processes, so that a key
// is both; NVTX ranges stand for operations, with sizes when emit_nvtx or nsys recorded them.

#include <algorithm>
#include <unordered_map>

#include "audit/readers.h"
#include "audit/sqlite_file.h"
#include "base/error.h"

namespace octavo::audit {
namespace {

constexpr int64_t kPushPop = 59;
constexpr int kProcessShift = 24;  // globalTid: process above, thread below

class NsightReader {
 public:
  explicit NsightReader(const fs::path& path) : file_(path) {
    trace_.path = path;
    trace_.format = Format::kNsight;
  }

  Trace read() {
    if (!file_.has_table("CUPTI_ACTIVITY_KIND_KERNEL") && !file_.has_table("StringIds"))
      fail(ExitCode::kUsage, "audit", trace_.path.string(), ": wanted an Nsight Systems export, ",
           "found a database without its tables; nsys export --type sqlite FILE.nsys-rep");
    read_names();
    read_work();
    read_launches();
    read_ranges();
    file_.for_each("TARGET_INFO_GPU", {"name"}, [&](const SqliteFile::Row& row) {
      if (trace_.gpu.empty()) trace_.gpu = std::string(row.text(0).substr(0, 100));
    });
    trace_.dropped += trace_.names.dropped() + trace_.threads.dropped();
    trace_.check_size();
    return std::move(trace_);
  }

 private:
  void count() {
    if (++trace_.events % 65536 == 0) trace_.check_size();
  }

  void read_names() {
    file_.for_each("StringIds", {"id", "value"}, [&](const SqliteFile::Row& row) {
      count();
      const uint32_t number = trace_.names.number(row.text(1).substr(0, 64 << 10));
      if (number != 0 && names_.size() < 4'000'000) names_[row.integer(0)] = number;
    });
    file_.for_each("ENUM_CUDA_MEMCPY_OPER", {"id", "label"}, [&](const SqliteFile::Row& row) {
      if (copies_.size() < 100) copies_[row.integer(0)] = str("Memcpy ", row.text(1).substr(0, 60));
    });
  }

  uint32_t name_of_id(int64_t id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? 0 : found->second;
  }

  // A process and a correlation id in one number.
  int64_t key_of(int64_t global, int64_t correlation) {
    const auto process =
        static_cast<int64_t>(trace_.threads.number(str("process ", global >> kProcessShift)));
    return ((process << 32) | (correlation & 0xffffffff)) & INT64_MAX;
  }

  bool is_sound(int64_t begin, int64_t end) {
    count();
    if (begin >= 0 && end >= begin && end <= kMostTime) return true;
    ++trace_.malformed;
    return false;
  }

  void take_work(const SqliteFile::Row& row, uint32_t name, Activity activity) {
    if (!is_sound(row.integer(0), row.integer(1))) return;
    const std::string place = str("GPU ", row.integer(2), " of ", row.integer(5));
    const std::string stream = str(place, " context ", row.integer(3), " stream ", row.integer(4));
    trace_.work.push_back({.begin = row.integer(0),
                           .end = row.integer(1),
                           .correlation = key_of(row.integer(5), row.integer(6)),
                           .bytes = std::max<int64_t>(row.integer(8), 0),
                           .name = name,
                           .stream = trace_.threads.number(stream),
                           .device = trace_.threads.number(place),
                           .activity = activity});
  }

  void read_work() {
    using Columns = std::vector<std::string_view>;
    Columns columns = {"start",     "end",           "deviceId",      "contextId", "streamId",
                       "globalPid", "correlationId", "demangledName", "bytes",     "shortName"};
    file_.for_each("CUPTI_ACTIVITY_KIND_KERNEL", columns, [&](const SqliteFile::Row& row) {
      const uint32_t whole = name_of_id(row.integer(7));
      take_work(row, whole != 0 ? whole : name_of_id(row.integer(9)), Activity::kKernel);
    });
    columns[7] = "copyKind";
    file_.for_each("CUPTI_ACTIVITY_KIND_MEMCPY", columns, [&](const SqliteFile::Row& row) {
      const auto kind = copies_.find(row.integer(7));
      const std::string name = kind == copies_.end() ? "Memcpy" : kind->second;
      take_work(row, trace_.names.number(name), Activity::kMemcpy);
    });
    file_.for_each("CUPTI_ACTIVITY_KIND_MEMSET", columns, [&](const SqliteFile::Row& row) {
      take_work(row, trace_.names.number("Memset"), Activity::kMemset);
    });
    file_.for_each("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", columns, [&](const SqliteFile::Row& row) {
      trace_.has_graph_rows = true;
      take_work(row, trace_.names.number("CUDA graph replay"), Activity::kKernel);
    });
  }

  void read_launches() {
    file_.for_each("CUPTI_ACTIVITY_KIND_RUNTIME",
                   {"start", "end", "globalTid", "correlationId", "nameId"},
                   [&](const SqliteFile::Row& row) {
                     if (!is_sound(row.integer(0), row.integer(1))) return;
                     trace_.launches.push_back(
                         {.begin = row.integer(0),
                          .end = row.integer(1),
                          .correlation = key_of(row.integer(2), row.integer(3)),
                          .thread = trace_.threads.number(str("thread ", row.integer(2))),
                          .name = name_of_id(row.integer(4))});
                   });
  }

  // "aten::mm, seq = 12, op_id = 34, sizes = [[8, 4], [4, 2]]": the operation and its sizes.
  void read_ranges() {
    file_.for_each(
        "NVTX_EVENTS", {"start", "end", "eventType", "globalTid", "text", "textId"},
        [&](const SqliteFile::Row& row) {
          if (row.integer(2) != kPushPop || row.is_null(1)) return;
          if (!is_sound(row.integer(0), row.integer(1))) return;
          std::string_view text = row.text(4);
          if (row.is_null(4)) text = trace_.names.text(name_of_id(row.integer(5)));
          std::string shapes;
          constexpr std::string_view kSizes = "sizes = ";
          if (const size_t at = text.find(kSizes); at != text.npos && text.size() - at < 4096)
            shapes = str(text.substr(at + kSizes.size()), "|");
          std::erase(shapes, ' ');
          const uint32_t sizes = shapes.empty() ? 0 : trace_.names.number(shapes);
          const std::string name(text.substr(0, std::min(text.find(", "), size_t{200})));
          trace_.ops.push_back({.begin = row.integer(0),
                                .end = row.integer(1),
                                .thread = trace_.threads.number(str("thread ", row.integer(3))),
                                .name = trace_.names.number(name),
                                .shapes = sizes});
        });
  }

  SqliteFile file_;
  Trace trace_;
  std::unordered_map<int64_t, uint32_t> names_;
  std::unordered_map<int64_t, std::string> copies_;
};

}  // namespace

Trace read_nsight(const fs::path& path) {
  return NsightReader(path).read();
}

}  // namespace octavo::audit
