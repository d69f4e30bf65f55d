// Environment, network, disk, memory and processor of this machine.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/statvfs.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <chrono>
#include <cstring>
#include <fstream>

#include "base/cpu_share.h"
#include "base/error.h"
#include "base/text.h"
#include "verify/gather.h"
#include "verify/variables.h"

namespace octavo::verify {
namespace {

constexpr size_t kMeasured = size_t{128} << 20;

// A value as it may be shown: no control characters, not endless.
std::string shown(std::string_view value) {
  constexpr size_t kLongest = 4000;
  std::string out(value.substr(0, kLongest));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return value.size() > kLongest ? out + "…" : out;
}

// The number after "MemTotal:" in kB, as bytes.
uint64_t memory_line(const char* name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name))
      return std::strtoull(line.c_str() + std::strlen(name), nullptr, 10) << 10;
  return 0;
}

uint64_t number_in(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : 0;
}

// "max" is no number: no limit.
uint64_t control_group_limit(uint64_t total) {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (const uint64_t limit = number_in(path); limit != 0 && limit < total) return limit;
  return 0;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return std::string(trim(line.substr(line.find(':') + 1)));
  return "";
}

void read_features([[maybe_unused]] Host& host) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
  host.avx2 = (b >> 5 & 1) != 0;
  host.avx512 = (b >> 16 & 1) != 0;
  host.amx_bf16 = (d >> 22 & 1) != 0;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) host.avx512_bf16 = (a >> 5 & 1) != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kBf16 = 1UL << 14;  // HWCAP2_BF16; older headers lack the name
  host.arm_bf16 = (::getauxval(AT_HWCAP2) & kBf16) != 0;
#endif
}

// Writes kMeasured bytes with fsync. "" or what went wrong.
std::string measure_writing(const fs::path& folder, double& rate) {
  const fs::path file = folder / (".octavo-verify-" + std::to_string(getpid()));
  std::string problem;
  const auto start = std::chrono::steady_clock::now();
  try {
    FileWriter writer(file);
    // Not zeros: some file systems store those for free.
    std::vector<std::byte> block(size_t{4} << 20);
    uint32_t state = 1;
    for (auto& byte : block)
      byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    for (size_t written = 0; written < kMeasured; written += block.size()) writer.write(block);
    writer.close();
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::error_code ignored;
  fs::remove(file, ignored);
  rate = problem.empty() ? kMeasured / seconds.count() : 0;
  return problem;
}

}  // namespace

std::map<std::string, std::string> gather_environment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == text.npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (!is_of_interest(name)) continue;
    out[std::string(name)] = is_secret(name) ? "set" : shown(text.substr(equals + 1));
  }
  return out;
}

std::vector<std::string> gather_missing_files(const std::map<std::string, std::string>& values) {
  std::vector<std::string> paths, missing;
  for (const char* name : {"OCTAVO_TE_LIBRARY", "NVTE_CUDA_INCLUDE_DIR", "CUDA_HOME"})
    if (const auto it = values.find(name); it != values.end()) paths.push_back(it->second);
  if (const auto it = values.find("LD_PRELOAD"); it != values.end()) {
    std::string names = it->second;
    for (char& c : names) c = c == ':' ? ' ' : c;
    for (const std::string& name : split(names, ' '))
      if (name.find('/') != name.npos) paths.push_back(name);  // the rest is the loader's to find
  }
  std::error_code error;
  for (const std::string& path : paths)
    if (!path.empty() && !fs::exists(path, error)) missing.push_back(path);
  return missing;
}

std::vector<Interface> gather_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::vector<Interface> out;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string name = entry->ifa_name;
    auto it = std::find_if(out.begin(), out.end(), [&](const auto& i) { return i.name == name; });
    if (it == out.end()) it = out.insert(out.end(), Interface{.name = name});
    it->up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
    it->loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (entry->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET)
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text,
                sizeof text);
    else if (entry->ifa_addr->sa_family == AF_INET6)
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr, text,
                sizeof text);
    if (*text != '\0') it->addresses.emplace_back(text);
  }
  freeifaddrs(list);
  return out;
}

Disk gather_disk(const fs::path& folder) {
  Disk disk{.folder = folder.string()};
  std::error_code error;
  fs::path there = fs::absolute(folder, error);
  while (!there.empty() && !fs::is_directory(there, error) && there != there.parent_path())
    there = there.parent_path();
  disk.tested = fs::is_directory(folder, error) ? disk.folder : there.string();
  struct statvfs info {};
  if (statvfs(there.c_str(), &info) == 0)
    disk.free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  if (disk.free_bytes < 4 * kMeasured) {
    disk.problem = "no room to measure in";
    return disk;
  }
  disk.problem = measure_writing(there, disk.write_rate);
  return disk;
}

Host gather_host() {
  Host host;
  host.cpu = processor_name();
  host.cores = own_cpu_share().threads();
  read_features(host);
  host.memory_total = memory_line("MemTotal:");
  host.memory_available = memory_line("MemAvailable:");
  host.memory_limit = control_group_limit(host.memory_total);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    host.shm_total = static_cast<uint64_t>(shm.f_blocks) * shm.f_frsize;
    host.shm_free = static_cast<uint64_t>(shm.f_bavail) * shm.f_frsize;
  }
  std::error_code error;
  host.infiniband =
      fs::is_directory("/sys/class/infiniband", error) &&
      fs::directory_iterator("/sys/class/infiniband", error) != fs::directory_iterator();
  return host;
}

}  // namespace octavo::verify
