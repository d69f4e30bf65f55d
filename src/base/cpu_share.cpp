#include "base/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/text.h"

namespace octavo {
namespace {

constexpr int kMostCpus = 1 << 16;         // the kernel's own limit is 8192
constexpr size_t kMostOfLine = 1 << 16;    // bytes
constexpr size_t kMostLines = 1 << 16;     // of mountinfo: one for each mount
constexpr double kLargestQuota = 1 << 20;  // CPUs

std::vector<std::string> lines_in(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; lines.size() < kMostLines && std::getline(file, line);)
    if (line.size() <= kMostOfLine) lines.push_back(std::move(line));
  return lines;
}

std::string first_line_in(const fs::path& path) {
  const std::vector<std::string> lines = lines_in(path);
  return lines.empty() ? "" : lines.front();
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "0-3,8": the kernel's way to write a set of CPUs.
std::vector<int> cpus_of_list(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string& part : split(trim(text), ',')) {
    const size_t dash = part.find('-');
    const auto first = number_of<int>(std::string_view(part).substr(0, dash));
    const auto last =
        dash == part.npos ? first : number_of<int>(std::string_view(part).substr(dash + 1));
    if (!first || !last || *first < 0 || *last >= kMostCpus) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

// Hardware threads of one core name the same siblings; one without a file is a core of its own.
int cores_of(const std::vector<int>& cpus, const fs::path& root) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const fs::path topology =
        root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    std::string siblings = first_line_in(topology / "thread_siblings_list");
    if (siblings.empty()) siblings = first_line_in(topology / "core_cpus_list");
    cores.insert(siblings.empty() ? "cpu" + std::to_string(cpu) : siblings);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

// A hierarchy of control groups, as /proc/self/mountinfo says where it is mounted, and the group
// of this process in it.
struct Hierarchy {
  std::string root, mount_point;  // the group that the mount shows, and where
  bool unified = false;           // version 2
};

// "36 35 98:0 /root /mount/point rw,… [tags] - type source options"
std::optional<Hierarchy> hierarchy_of(const std::string& line) {
  const size_t dash = line.find(" - ");
  if (dash == line.npos) return std::nullopt;
  const std::vector<std::string> left = split(line.substr(0, dash), ' ');
  const std::vector<std::string> right = split(line.substr(dash + 3), ' ');
  if (left.size() < 5 || right.size() < 3) return std::nullopt;
  const std::vector<std::string> options = split(right[2], ',');
  const bool unified = right[0] == "cgroup2";
  const bool with_cpu =
      unified || (right[0] == "cgroup" && std::ranges::find(options, "cpu") != options.end());
  if (!with_cpu) return std::nullopt;
  return Hierarchy{.root = left[3], .mount_point = left[4], .unified = unified};
}

// "0::/a/b" in version 2, "4:cpu,cpuacct:/a/b" in version 1.
std::string group_in(const Hierarchy& hierarchy, const std::vector<std::string>& groups) {
  for (const std::string& line : groups) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::vector<std::string> controllers =
        split(std::string_view(line).substr(first + 1, second - first - 1), ',');
    const bool is_unified = line.starts_with("0::");
    const bool has_cpu = std::ranges::find(controllers, "cpu") != controllers.end();
    if (hierarchy.unified ? is_unified : has_cpu) return line.substr(second + 1);
  }
  return "/";
}

double quota_of(std::optional<double> quota, std::optional<double> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
  const double cpus = *quota / *period;
  return cpus < kLargestQuota ? cpus : 0;
}

double quota_in(const fs::path& folder, bool unified) {
  if (unified) {  // "max 100000" or "250000 100000"
    const std::vector<std::string> words = split(first_line_in(folder / "cpu.max"), ' ');
    return words.size() == 2 ? quota_of(number_of<double>(words[0]), number_of<double>(words[1]))
                             : 0;
  }
  return quota_of(number_of<double>(first_line_in(folder / "cpu.cfs_quota_us")),
                  number_of<double>(first_line_in(folder / "cpu.cfs_period_us")));
}

double smaller_quota(double a, double b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

// The group's own and those of all above it that this process can see: each limits.
double quota_in(const Hierarchy& hierarchy, const std::string& group, const fs::path& root) {
  // A container may show its own group as the root of the mount; what lies outside is not there.
  std::string below = group;
  if (hierarchy.root != "/") {
    const bool inside = group == hierarchy.root || group.starts_with(hierarchy.root + "/");
    below = inside ? group.substr(hierarchy.root.size()) : "";
  }
  fs::path folder = root / fs::path(hierarchy.mount_point).relative_path();
  double quota = quota_in(folder, hierarchy.unified);
  for (const std::string& name : split(below, '/')) {
    if (name.empty()) continue;
    if (name == "..") break;  // outside of this process's view
    folder /= name;
    quota = smaller_quota(quota, quota_in(folder, hierarchy.unified));
  }
  return quota;
}

double own_quota(const fs::path& root) {
  const std::vector<std::string> groups = lines_in(root / "proc/self/cgroup");
  double quota = 0;
  for (const std::string& line : lines_in(root / "proc/self/mountinfo"))
    if (const std::optional<Hierarchy> hierarchy = hierarchy_of(line))
      quota = smaller_quota(quota, quota_in(*hierarchy, group_in(*hierarchy, groups), root));
  return quota;
}

}  // namespace

int CpuShare::threads() const {
  return quota > 0 ? std::min(cores, static_cast<int>(std::ceil(quota))) : cores;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int size = CPU_SETSIZE; size <= kMostCpus; size *= 2) {  // until the kernel's set fits
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(size));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    CPU_ZERO_S(bytes, set);
    const bool fits = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; fits && cpu < size; ++cpu)
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (fits) break;
  }
  if (cpus.empty())
    for (int cpu = 0; cpu < std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
         ++cpu)
      cpus.push_back(cpu);
  return cpus;
}

CpuShare cpu_share(const std::vector<int>& allowed, const fs::path& root) {
  CpuShare share;
  share.cpus = std::max(1, static_cast<int>(allowed.size()));
  share.cores = cores_of(allowed, root);
  const std::vector<int> online =
      cpus_of_list(first_line_in(root / "sys/devices/system/cpu/online"));
  share.node_cores = std::max(share.cores, online.empty() ? 1 : cores_of(online, root));
  share.quota = own_quota(root);
  return share;
}

int threads_of_rank(const CpuShare& share, int local_ranks, bool bind) {
  if (local_ranks <= 1) return share.threads();
  if (!bind) return std::max(1, share.threads() / local_ranks);
  CpuShare node = share;
  node.cores = share.node_cores;
  return std::min(share.threads(), std::max(1, node.threads() / local_ranks));
}

std::string words_of(const CpuShare& share) {
  std::string text = str(share.cores);
  if (share.cores != share.node_cores) text += str(" of ", share.node_cores);
  text += share.node_cores == 1 ? " physical core" : " physical cores";
  if (share.cpus != share.cores) text += str(" (", share.cpus, " hardware threads)");
  if (share.quota > 0) text += str(", CPU quota ", share.quota);
  return text;
}

}  // namespace octavo
