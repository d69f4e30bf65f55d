#include "audit/attribution.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace octavo::audit {
namespace {

constexpr std::string_view kGraphLaunch = "raphLaunch";  // cudaGraphLaunch, cuGraphLaunch

constexpr size_t kMostNested = 256;  // ranges that are looked at around a launch

struct Enclosing {
  uint32_t op = kNoOp, module = kNoOp;
};

template <typename T>
std::vector<uint32_t> in_order(const std::vector<T>& items) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const T &x = items[a], &y = items[b];
    if (x.thread != y.thread) return x.thread < y.thread;
    if (x.begin != y.begin) return x.begin < y.begin;
    return x.end > y.end;
  });
  return order;
}

// For each launch the innermost operation and module around it: one sweep over both in time.
std::vector<Enclosing> enclosing_of(const Trace& trace) {
  const std::vector<uint32_t> ops = in_order(trace.ops), launches = in_order(trace.launches);
  std::vector<Enclosing> found(trace.launches.size());
  std::vector<uint32_t> open;
  size_t next = 0;
  uint32_t thread = 0;
  for (const uint32_t index : launches) {
    const Launch& launch = trace.launches[index];
    if (launch.thread != thread) {
      open.clear();
      thread = launch.thread;
    }
    for (; next < ops.size(); ++next) {
      const HostOp& op = trace.ops[ops[next]];
      if (op.thread > launch.thread || (op.thread == launch.thread && op.begin > launch.begin))
        break;
      if (op.thread < launch.thread) continue;
      while (!open.empty() && trace.ops[open.back()].end <= op.begin) open.pop_back();
      open.push_back(ops[next]);
    }
    while (!open.empty() && trace.ops[open.back()].end < launch.begin) open.pop_back();
    const size_t deepest = open.size() > kMostNested ? open.size() - kMostNested : 0;
    for (size_t i = open.size(); i-- > deepest;) {
      const HostOp& op = trace.ops[open[i]];
      if (op.end < launch.begin) continue;  // overlaps without nesting: not around the launch
      uint32_t& place = op.is_module ? found[index].module : found[index].op;
      if (place == kNoOp) place = open[i];
      if (found[index].op != kNoOp && found[index].module != kNoOp) break;
    }
  }
  return found;
}

bool ids_repeat_correlations(const Trace& trace) {
  bool any = false;
  for (const GpuWork& work : trace.work) {
    if (work.external == kNoId) continue;
    if (work.external != work.correlation) return false;
    any = true;
  }
  return any;
}

std::unordered_map<int64_t, uint32_t> ops_by_id(const Trace& trace) {
  std::unordered_map<int64_t, uint32_t> found;
  found.reserve(trace.ops.size());
  for (uint32_t i = 0; i < trace.ops.size(); ++i)
    if (trace.ops[i].external != kNoId && !trace.ops[i].is_module)
      found.try_emplace(trace.ops[i].external, i);
  return found;
}

}  // namespace

Attribution attribute(Trace& trace) {
  Attribution result;
  result.ids_are_correlations = ids_repeat_correlations(trace);
  const std::vector<Enclosing> enclosing = enclosing_of(trace);
  std::unordered_map<int64_t, uint32_t> launches;
  launches.reserve(trace.launches.size());
  for (uint32_t i = 0; i < trace.launches.size(); ++i)
    if (trace.launches[i].correlation != kNoId)
      launches.try_emplace(trace.launches[i].correlation, i);
  std::unordered_map<int64_t, uint32_t> by_id;
  if (!result.ids_are_correlations) by_id = ops_by_id(trace);
  for (GpuWork& work : trace.work) {
    const auto launch = launches.find(work.correlation);
    if (work.correlation != kNoId && launch != launches.end()) work.launch = launch->second;
    const bool in_graph =
        work.launch != kNoOp &&
        trace.names.text(trace.launches[work.launch].name).find(kGraphLaunch) != std::string::npos;
    if (in_graph) {
      ++result.in_graphs;
      continue;
    }
    if (work.launch != kNoOp) {
      const Enclosing& around = enclosing[work.launch];
      work.op = around.op;
      if (around.module != kNoOp) work.module = trace.ops[around.module].name;
    }
    const auto same = work.external == kNoId ? by_id.end() : by_id.find(work.external);
    if (same != by_id.end()) {
      work.op = same->second;
      ++result.by_id;
    } else if (work.op != kNoOp) {
      ++result.by_time;
    } else {
      ++result.unknown;
    }
  }
  return result;
}

}  // namespace octavo::audit
