#include "verify/variable_rules.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace octavo::verify::rules {
namespace {

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string value_of(const Facts& facts, const char* name) {
  const auto it = facts.environment.find(name);
  return it == facts.environment.end() ? std::string() : it->second;
}

bool is_on(const std::string& value) {
  return !value.empty() && value != "0";
}

// Files that a variable names and that were looked for when the facts were gathered.
bool was_missing(const Facts& facts, const std::string& path) {
  return std::ranges::find(facts.missing_files, path) != facts.missing_files.end();
}

}  // namespace

Verdict max_connections(const std::string& value, const Facts&) {
  const auto queues = whole_number(value);
  if (!queues || *queues < 1 || *queues > 32)
    return {Status::kWarn, "not a number from 1 to 32: CUDA takes its default",
            "unset CUDA_DEVICE_MAX_CONNECTIONS"};
  if (*queues == 1)
    return {Status::kNote,
            "one queue: copies and collectives wait for the kernels that were launched before them",
            "unset it, unless another program of this job needs it"};
  return {};
}

Verdict does_nothing(const std::string&, const Facts&) {
  return {Status::kWarn, "", "unset it: nothing changes, and nobody counts on it any more"};
}

Verdict python_only(const std::string&, const Facts&) {
  return {Status::kNote, "no effect in octavo, which has no Python", "unset it, or leave it"};
}

Verdict gpu_num(const std::string& value, const Facts& facts) {
  const auto gpus = whole_number(value), nodes = whole_number(value_of(facts, "WORLD_SIZE"));
  if (!gpus || !nodes) return {Status::kNote, "", ""};
  return {Status::kWarn,
          str("with WORLD_SIZE=", *nodes, " this is the guides' way of counting nodes"),
          str("WORLD_SIZE counts processes here: let torchrun or srun set it (", *nodes,
              " nodes x ", *gpus, " GPUs = ", *nodes * *gpus, "), or unset both")};
}

Verdict world_size(const std::string& value, const Facts& facts) {
  const auto size = whole_number(value);
  if (!size || *size < 1)
    return {Status::kFail, "not a number of processes",
            "unset it, or start through torchrun or srun, which set it"};
  if (*size == 1) return {Status::kOk, "", ""};
  for (const char* name : {"RANK", "MASTER_ADDR", "MASTER_PORT"})
    if (value_of(facts, name).empty())
      return {Status::kFail, str("but ", name, " is not set"),
              "start through torchrun or srun, which set all four, or unset WORLD_SIZE"};
  return {Status::kOk, "", ""};
}

Verdict rank(const std::string& value, const Facts& facts) {
  const auto number_here = whole_number(value), size = whole_number(value_of(facts, "WORLD_SIZE"));
  if (!number_here || *number_here < 0 || (size && *number_here >= *size))
    return {Status::kFail, str("wanted from 0 to WORLD_SIZE - 1, which is ", size ? *size - 1 : 0),
            "start through torchrun or srun, which set it"};
  return {Status::kOk, "", ""};
}

Verdict master_addr(const std::string& value, const Facts& facts) {
  const auto size = whole_number(value_of(facts, "WORLD_SIZE"));
  const bool is_local = value == "localhost" || value.starts_with("127.");
  const auto rank_here = whole_number(value_of(facts, "RANK"));
  const auto in_node = whole_number(value_of(facts, "LOCAL_RANK"));
  // A process whose number differs from that within its node is not on the first one.
  if (is_local && size && *size > 1 && rank_here && in_node && *rank_here != *in_node)
    return {Status::kFail, "this process is on another node than process 0",
            "set it to the first node's address (see the interfaces below)"};
  return {Status::kOk, "", ""};
}

Verdict master_port(const std::string& value, const Facts&) {
  const auto port = whole_number(value);
  if (!port || *port < 1 || *port > 65535)
    return {Status::kFail, "not a port", "set it to a free port from 1024 to 65535, such as 29500"};
  if (*port < 1024)
    return {Status::kWarn, "only root may listen there", "take a port above 1023, such as 29500"};
  return {Status::kOk, "", ""};
}

Verdict disable_nvrtc(const std::string& value, const Facts& facts) {
  if (!is_on(value)) return {Status::kOk, "", ""};
  const bool has_te = !facts.libraries.te.file.empty();
  return {has_te ? Status::kFail : Status::kNote, "", "unset NVTE_DISABLE_NVRTC"};
}

Verdict folder(const std::string& value, const Facts& facts) {
  if (was_missing(facts, value))
    return {Status::kWarn, "no such folder", "name a folder that exists, or unset it"};
  return {};
}

Verdict file(const std::string& value, const Facts& facts) {
  if (was_missing(facts, value))
    return {Status::kFail, "no such file", "name the file itself, or unset it"};
  return {};
}

Verdict number(const std::string& value, const Facts&) {
  const auto found = whole_number(value);
  if (!found || *found < 0)
    return {Status::kWarn, "not a number", "give a number of 0 or above, or unset it"};
  return {};
}

Verdict nccl_debug(const std::string& value, const Facts&) {
  constexpr std::string_view kLevels[] = {"VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE"};
  std::string upper = value;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (std::ranges::find(kLevels, upper) == std::end(kLevels))
    return {Status::kWarn, "NCCL knows no such level and says nothing",
            "set NCCL_DEBUG=WARN, or INFO to see which network it takes"};
  if (upper == "TRACE")
    return {Status::kWarn, "a line for every call", "set NCCL_DEBUG=WARN for training"};
  return {};
}

Verdict p2p_disable(const std::string& value, const Facts& facts) {
  if (!is_on(value)) return {Status::kOk, "", ""};
  if (facts.gpus.gpus.size() < 2) return {};
  return {Status::kWarn, str(facts.gpus.gpus.size(), " GPUs here do not use their links"),
          "unset NCCL_P2P_DISABLE; if NCCL hangs without it, look at IOMMU and ACS in the BIOS"};
}

Verdict ib_disable(const std::string& value, const Facts& facts) {
  if (!is_on(value)) return {Status::kOk, "", ""};
  if (!facts.host.infiniband) return {};
  return {Status::kWarn, "this machine has InfiniBand or RoCE, which stays unused",
          "unset NCCL_IB_DISABLE"};
}

Verdict shm_disable(const std::string& value, const Facts& facts) {
  if (!is_on(value)) return {Status::kOk, "", ""};
  if (facts.gpus.gpus.size() < 2) return {};
  return {Status::kWarn, "", "unset NCCL_SHM_DISABLE; give the container --shm-size=8g instead"};
}

Verdict old_torch_name(const std::string&, const Facts&) {
  return {Status::kWarn, "this torch warns about it", "write it with TORCH_ in front, or unset it"};
}

Verdict error_handling(const std::string& value, const Facts&) {
  if (value == "0")
    return {Status::kWarn, "a rank that fails leaves the others waiting, and the job runs on",
            "unset TORCH_NCCL_ASYNC_ERROR_HANDLING"};
  return {};
}

Verdict slow_when_on(const std::string& value, const Facts&) {
  if (!is_on(value)) return {Status::kOk, "", ""};
  return {Status::kWarn, "for finding faults, several times slower", "unset it for training"};
}

Verdict slow_when_set(const std::string&, const Facts&) {
  return {Status::kWarn, "for finding faults, several times slower", "unset it for training"};
}

Verdict distributed_debug(const std::string& value, const Facts&) {
  if (value != "DETAIL") return {};
  return {Status::kWarn, "every collective is checked first",
          "unset it for training, or take INFO"};
}

// "a:b,c:[d:e,f:g]": the parts at the top.
Verdict allocator(const std::string& value, const Facts&) {
  static constexpr std::string_view kKnown[] = {"backend",
                                                "expandable_segments",
                                                "garbage_collection_threshold",
                                                "graph_capture_record_stream_reuse",
                                                "large_segment_size_mb",
                                                "max_non_split_rounding_mb",
                                                "max_split_size_mb",
                                                "per_process_memory_fraction",
                                                "pinned_max_cached_size_mb",
                                                "pinned_max_round_threshold_mb",
                                                "pinned_num_register_threads",
                                                "pinned_reserve_segment_size_mb",
                                                "pinned_use_background_threads",
                                                "pinned_use_cuda_host_register",
                                                "release_lock_on_cudamalloc",
                                                "roundup_power2_divisions",
                                                "throw_on_cudamalloc_oom"};
  std::string flat;
  int depth = 0;
  for (const char c : value) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    flat += c == ',' && depth > 0 ? ' ' : c;
  }
  for (const std::string& part : split(flat, ',')) {
    const size_t colon = part.find(':');
    const std::string key(trim(part.substr(0, colon)));
    if (colon == part.npos || std::ranges::find(kKnown, key) == std::end(kKnown)) {
      const std::string nearest = nearest_name(key, kKnown);
      return {Status::kFail, str("libtorch refuses '", part, "' and every CUDA call after it"),
              nearest.empty() ? "write key:value pairs, or unset it"
                              : str("did you mean ", nearest, "?")};
    }
    if (key == "backend" && part.find("cudaMallocAsync") != part.npos)
      return {Status::kWarn, "octavo's memory numbers are those of libtorch's own allocator",
              "leave backend out"};
  }
  return {};
}

Verdict visible_devices(const std::string& value, const Facts& facts) {
  if (value.empty() || value == "-1")
    return {facts.nvml.gpus.empty() ? Status::kNote : Status::kFail, "every GPU is hidden",
            "unset CUDA_VISIBLE_DEVICES, or name devices in it"};
  std::set<std::string> seen;
  for (const std::string& part : split(value, ',')) {
    const std::string name(trim(part));
    const auto index = whole_number(name);
    const bool by_name = name.starts_with("GPU-") || name.starts_with("MIG-");
    if (!seen.insert(name).second)
      return {Status::kFail, str(name, " twice: CUDA then shows no device at all"),
              "name each device once"};
    const auto count = static_cast<int>(facts.nvml.gpus.size());
    if ((!index && !by_name) || (index && (*index < 0 || (count > 0 && *index >= count))))
      return {Status::kFail, str("'", name, "' is no device: CUDA sees those before it only"),
              count > 0 ? str("take numbers from 0 to ", count - 1) : "take numbers from 0"};
  }
  return {};
}

Verdict tf32(const std::string& value, const Facts&) {
  if (!is_on(value)) return {};
  return {Status::kWarn,
          "FP32 GEMMs keep ten bits: mixed_precision fp32 and comparisons with it mean less",
          "unset it"};
}

Verdict omp_threads(const std::string& value, const Facts& facts) {
  const auto threads = whole_number(value.substr(0, value.find(',')));
  const int cores = facts.host.cores;
  if (!threads || *threads < 1)
    return {Status::kWarn, "not a number of threads", "unset OMP_NUM_THREADS"};
  if (facts.gpus.gpus.empty() && *threads * 2 <= cores)
    return {Status::kWarn, str(*threads, " of ", cores, " cores work"),
            str("unset it, or set it to ", cores, " (torchrun sets 1 when it is not set)")};
  if (*threads > cores)
    return {Status::kWarn, str("more than the ", cores, " cores of this process"),
            str("unset it, or set it to ", cores)};
  return {};
}

Verdict wait_policy(const std::string& value, const Facts&) {
  if (value != "active" && value != "ACTIVE") return {};
  return {Status::kWarn,
          "threads that wait spin: beside another program a step takes many times as long",
          "unset it"};
}

Verdict preload(const std::string& value, const Facts& facts) {
  std::string names = value;
  std::ranges::replace(names, ':', ' ');
  for (const std::string& name : split(names, ' ')) {
    if (name.empty()) continue;
    if (was_missing(facts, name))
      return {Status::kWarn, str(name, " does not exist and is ignored"), "take it out"};
    if (name.find("octavo_fake_cuda") != name.npos)
      return {Status::kNote, "the fake CUDA device: no kernel runs in this process",
              "unset LD_PRELOAD to see this machine's own GPUs"};
    for (const char* own : {"libnccl", "libcudart", "libcublas", "libcudnn", "libcuda.so"})
      if (name.find(own) != name.npos)
        return {Status::kWarn, str(name, " comes before torch's own"), "take it out"};
    if (name.find("tcmalloc") != name.npos || name.find("jemalloc") != name.npos)
      return {Status::kNote, "octavo keeps tensors in an allocator of its own: not needed", ""};
  }
  return {};
}

}  // namespace octavo::verify::rules
