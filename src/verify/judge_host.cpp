// Network, disk, memory, processor.

#include <algorithm>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "verify/judge.h"

namespace octavo::verify {
namespace {

constexpr double kGiB = 1 << 30;
constexpr double kSlowDisk = 100e6;  // bytes a second: a checkpoint of 124M takes 20 s
constexpr double kLittleDisk = 20 * kGiB, kNoDisk = 2 * kGiB;
constexpr double kLittleShm = kGiB;

// NCCL takes prefixes, "=name" for a whole name and "^name" for what to leave out; Gloo whole
// names.
struct Pattern {
  std::string name;
  bool whole = false;
};
struct Patterns {
  std::vector<Pattern> list;
  bool excludes = false;
};

Patterns patterns_of(std::string_view value, bool is_nccl) {
  Patterns out;
  if (is_nccl && value.starts_with('^')) {
    out.excludes = true;
    value.remove_prefix(1);
  }
  const bool all_whole = is_nccl && value.starts_with('=');
  if (all_whole) value.remove_prefix(1);
  for (const std::string& word : split(value, ','))
    out.list.push_back({std::string(trim(word)), all_whole || !is_nccl});
  return out;
}

bool matches(const Pattern& p, const Interface& i) {
  return p.whole ? i.name == p.name : i.name.starts_with(p.name);
}

std::string usable_names(const Facts& facts) {
  std::vector<std::string> names;
  for (const Interface& i : facts.interfaces)
    if (i.up && !i.loopback && !i.addresses.empty()) names.push_back(i.name);
  return names.empty() ? "none that is up" : join(names, ", ");
}

// "" when the named interface can serve.
std::string trouble_with(const Facts& facts, const Pattern& p) {
  const Interface* found = nullptr;
  for (const Interface& i : facts.interfaces)
    if (matches(p, i) && (found == nullptr || (!found->up && i.up))) found = &i;
  if (found == nullptr) return str("no interface ", p.name);
  if (!found->up) return str(found->name, " is down");
  if (found->addresses.empty()) return str(found->name, " has no address");
  return "";
}

bool on_several_nodes(const Facts& facts) {
  const auto value = [&](const char* name) {
    const auto it = facts.environment.find(name);
    return it == facts.environment.end() ? std::string() : it->second;
  };
  const std::string address = value("MASTER_ADDR");
  return !address.empty() && address != "localhost" && !address.starts_with("127.");
}

Finding judge_interface_variable(const Facts& facts, const std::string& name,
                                 const std::string& value) {
  Finding f{Section::kNetwork,
            name,
            Status::kOk,
            "an interface that exists, is up and has an address",
            value,
            ""};
  const bool is_nccl = name.starts_with("NCCL");
  const Patterns patterns = patterns_of(value, is_nccl);
  if (patterns.excludes) {
    f.found += ": all but these";
    return f;
  }
  std::vector<std::string> troubles;
  bool loops = false;
  for (const Pattern& p : patterns.list) {
    const std::string trouble = trouble_with(facts, p);
    if (!trouble.empty()) troubles.push_back(trouble);
    loops |= std::ranges::any_of(facts.interfaces,
                                 [&](const Interface& i) { return i.loopback && matches(p, i); });
  }
  // NCCL takes what it finds of a list; Gloo wants every one.
  if (troubles.size() == patterns.list.size() || (!is_nccl && !troubles.empty())) {
    f.status = Status::kFail;
    f.found += ": " + join(troubles, "; ");
    f.fix = str("set it to one of ", usable_names(facts), ", or unset it");
  } else if (!troubles.empty()) {
    f.status = Status::kWarn;
    f.found += ": " + join(troubles, "; ");
    f.fix = str("name only interfaces of this machine: ", usable_names(facts));
  } else if (loops && on_several_nodes(facts)) {
    f.status = Status::kFail;
    f.found += ": the loopback reaches no other node";
    f.fix = str("set it to one of ", usable_names(facts), ", or unset it");
  }
  return f;
}

Finding judge_disk(const Facts& facts) {
  const Disk& disk = facts.disk;
  Finding f{Section::kMachine,
            "checkpoint folder",
            Status::kOk,
            str("20 GB free, ", kSlowDisk / 1e6, " MB/s"),
            str(disk.folder, ": ", format_bytes(static_cast<double>(disk.free_bytes)), " free, ",
                format_bytes(disk.write_rate), "/s with fsync"),
            ""};
  if (disk.tested != disk.folder) f.found += str(" (measured in ", disk.tested, ")");
  if (!disk.problem.empty()) {
    f.status = Status::kFail;
    f.found = str(disk.folder, ": ", disk.problem);
    f.fix = "set checkpoint_dir to a folder that can be written to";
  } else if (static_cast<double>(disk.free_bytes) < kLittleDisk) {
    f.status = static_cast<double>(disk.free_bytes) < kNoDisk ? Status::kFail : Status::kWarn;
    f.fix =
        "make room or set checkpoint_dir to another disk: a checkpoint takes 12 bytes a "
        "parameter (1.5 GB for GPT-2 124M), and keep_checkpoints of them are kept";
  } else if (disk.write_rate < kSlowDisk) {
    f.status = Status::kWarn;
    f.fix = "set checkpoint_dir to a local disk, or save less often (checkpoint_freq)";
  }
  return f;
}

Finding judge_shm(const Facts& facts) {
  const auto free = static_cast<double>(facts.host.shm_free);
  Finding f{
      Section::kMachine,
      "/dev/shm",
      Status::kOk,
      "1 GB for several GPUs in one machine",
      str(format_bytes(free), " free of ", format_bytes(static_cast<double>(facts.host.shm_total))),
      ""};
  if (free < kLittleShm) {
    f.status = facts.gpus.gpus.size() > 1 ? Status::kFail : Status::kWarn;
    f.fix = "start the container with --shm-size=8g (or --ipc=host): NCCL keeps its buffers there";
  }
  return f;
}

Finding judge_cpu(const Facts& facts) {
  const Host& h = facts.host;
  std::vector<std::string> units;
  if (h.amx_bf16) units.emplace_back("AMX");
  if (h.avx512_bf16) units.emplace_back("AVX-512 BF16");
  if (h.avx512) units.emplace_back("AVX-512");
  if (h.avx2) units.emplace_back("AVX2");
  if (h.arm_bf16) units.emplace_back("BFMMLA");
  Finding f{Section::kMachine,
            "processor",
            Status::kOk,
            "BF16 matrix units for rehearsal (AMX)",
            str(h.cpu.empty() ? "unknown" : h.cpu, ", ", h.cores, " cores, ",
                units.empty() ? "no vector units that are used here" : join(units, ", ")),
            ""};
  if (!facts.gpus.gpus.empty()) {
    f.wanted = "cores for the data of each GPU";
    if (h.cores < static_cast<int>(2 * facts.gpus.gpus.size())) {
      f.status = Status::kWarn;
      f.fix = "give the job more cores (two or more a GPU): srun --cpus-per-task, docker --cpus";
    }
  } else if (!h.amx_bf16 && !h.avx512_bf16 && !h.arm_bf16) {
    f.status = Status::kNote;
    f.found += "; BF16 GEMMs run in FP32 units, several times slower";
  }
  return f;
}

Finding judge_memory(const Facts& facts) {
  const Host& h = facts.host;
  const uint64_t usable =
      h.memory_limit != 0 ? std::min(h.memory_limit, h.memory_available) : h.memory_available;
  Finding f{Section::kMachine,
            "memory",
            Status::kOk,
            "4 GB available",
            str(format_bytes(static_cast<double>(usable)), " available of ",
                format_bytes(static_cast<double>(h.memory_total)),
                h.memory_limit != 0 ? ", limited by the control group" : ""),
            ""};
  if (static_cast<double>(usable) < 4 * kGiB) {
    f.status = Status::kWarn;
    f.fix = "end other programs, or give the container more memory";
  }
  return f;
}

}  // namespace

std::vector<Finding> judge_network(const Facts& facts) {
  std::vector<Finding> out;
  std::vector<std::string> lines;
  for (const Interface& i : facts.interfaces)
    if (!i.loopback)
      lines.push_back(str(i.name, i.up ? "" : " (down)",
                          i.addresses.empty() ? "" : " " + join(i.addresses, " ")));
  out.push_back({Section::kNetwork, "interfaces", lines.empty() ? Status::kNote : Status::kOk, "",
                 lines.empty() ? "none but the loopback: one machine alone" : join(lines, "; "),
                 ""});
  if (facts.host.infiniband)
    out.push_back({Section::kNetwork, "InfiniBand", Status::kOk, "", "there", ""});
  for (const char* name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const auto it = facts.environment.find(name);
    if (it != facts.environment.end() && !it->second.empty())
      out.push_back(judge_interface_variable(facts, name, it->second));
    else
      out.push_back({Section::kNetwork, name, Status::kOk, "",
                     "not set: the library picks an interface itself; several nodes with more than "
                     "one network need it",
                     ""});
  }
  return out;
}

std::vector<Finding> judge_host(const Facts& facts) {
  return {judge_cpu(facts), judge_memory(facts), judge_shm(facts), judge_disk(facts)};
}

}  // namespace octavo::verify
