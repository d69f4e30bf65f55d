#pragma once
// What one file says, whatever its format: GPU work, who launched it, and the operations that were
// under way on the host. Times are nanoseconds of the trace's own clock.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"

namespace octavo::audit {

// Sums of times and bytes of untrusted traces: they stop at 10^18 instead of wrapping.
inline void add_bounded(int64_t& sum, int64_t more) {
  constexpr int64_t kMost = 1'000'000'000'000'000'000;
  sum = std::clamp(sum + std::clamp(more, -kMost, kMost), -kMost, kMost);
}
// What readers take for a point in time: nanoseconds up to the year 2096.
inline constexpr int64_t kMostTime = 4'000'000'000'000'000'000;

// Texts by number, each held once. 0 is "".
class NameTable {
 public:
  static constexpr size_t kMostBytes = size_t{128} << 20;

  NameTable();
  // Beyond kMostBytes new texts become 0, and are counted.
  uint32_t number(std::string_view text);
  const std::string& text(uint32_t number) const { return texts_.at(number); }
  size_t size() const { return texts_.size(); }
  int64_t dropped() const { return dropped_; }

 private:
  std::deque<std::string> texts_;  // whose addresses stay
  std::unordered_map<std::string_view, uint32_t> numbers_;
  size_t bytes_ = 0;
  int64_t dropped_ = 0;
};

inline constexpr uint32_t kNoOp = ~0u;
inline constexpr int64_t kNoId = -1;

enum class Activity : unsigned char { kKernel, kMemcpy, kMemset };

// One piece of GPU work.
struct GpuWork {
  int64_t begin = 0, end = 0;
  int64_t correlation = kNoId;  // to the launch
  int64_t external = kNoId;     // to the operation, where the profiler says it
  int64_t bytes = 0;            // of copies and collectives; 0: not said
  uint32_t name = 0, stream = 0;
  uint32_t device = 0;
  uint32_t op = kNoOp;      // index into ops: filled by attribute()
  uint32_t module = 0;      // a name: "nn.Module: Linear_3"; filled by attribute()
  uint32_t launch = kNoOp;  // index into launches: filled by attribute()
  Activity activity = Activity::kKernel;
};

// An operation on the host: aten::mm, an NVTX range, or a module of a model.
struct HostOp {
  int64_t begin = 0, end = 0;
  int64_t external = kNoId;
  uint32_t thread = 0, name = 0;
  uint32_t shapes = 0;  // "[[8,4],[4,2]]|[\"c10::BFloat16\",…]", as a name
  bool is_module = false;
};

// A call of the CUDA runtime or driver.
struct Launch {
  int64_t begin = 0, end = 0;
  int64_t correlation = kNoId;
  uint32_t thread = 0, name = 0;
};

// A collective of octavo's own trace: as the host saw it.
struct HostSpan {
  int64_t begin = 0, end = 0, bytes = 0;
  uint32_t name = 0;
};

enum class Format : unsigned char { kKineto, kNsight, kOctavo };
std::string_view name_of(Format format);

struct Trace {
  fs::path path;
  Format format = Format::kKineto;
  std::string gpu;  // "NVIDIA H100 80GB HBM3"; "" when the trace does not say
  int64_t rank = kNoId, world_size = kNoId;
  NameTable names, threads;
  std::vector<GpuWork> work;
  std::vector<HostOp> ops;
  std::vector<Launch> launches;
  std::vector<HostOp> ranges;  // octavo's own
  std::vector<HostSpan> spans;
  int64_t events = 0, malformed = 0, dropped = 0;
  bool is_cut = false;          // ended inside of its text
  bool has_graph_rows = false;  // Nsight: a replay of a CUDA graph is one row without its kernels

  // Memory that events take; readers stop when it is more than anybody has.
  void check_size() const;
};

// Any of the three formats, told apart by their first bytes. A file that is none of them, or is
// damaged, fails (kUsage, kDamaged); one that is cut short is read as far as it goes.
Trace read_trace(const fs::path& path);

}  // namespace octavo::audit
