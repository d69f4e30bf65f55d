#include "verify/variables.h"

#include <algorithm>
#include <array>

#include "base/secrets.h"
#include "verify/nvte_names.h"
#include "verify/variable_rules.h"

namespace octavo::verify {
namespace {

constexpr std::string_view kNotNeeded = "not set";

// Of the guides' lists, in their order.
constexpr Variable kGuides[] = {
    {"CUDA_DEVICE_MAX_CONNECTIONS",
     "CUDA's number of hardware queues (1 to 32, 8 when not set). 1 keeps kernels in the order of "
     "their launches, which Megatron's tensor parallelism relies on; it makes no GEMM faster",
     "not set; 1 with tensor parallelism only", rules::max_connections, true},
    {"NVTE_FP8_ALLREDUCE",
     "nothing at all: no version of Transformer Engine, CUDA or NCCL reads it", kNotNeeded,
     rules::does_nothing, true},
    {"NVTE_APPLY_QK_LAYER_SCALING",
     "scales Q K^T by the layer's number in FP16; read by Transformer Engine's Python attention "
     "alone",
     kNotNeeded, rules::python_only, true},
    {"NVTE_FP8_DPA_BWD",
     "FP8 in the backward pass of attention (1 is the default); read by Transformer Engine's "
     "Python attention alone. octavo's attention is BF16",
     kNotNeeded, rules::python_only, true},
    {"NVTE_FLASH_ATTN",
     "lets Transformer Engine's Python attention choose FlashAttention (1 is the default)",
     kNotNeeded, rules::python_only, true},
    {"NVTE_FUSED_ATTN",
     "lets Transformer Engine's Python attention choose cuDNN's (1 is the default)", kNotNeeded,
     rules::python_only, true},
    {"NVTE_DEBUG", "lets Transformer Engine's Python attention log its choice", kNotNeeded,
     rules::python_only, true},
    {"NVTE_DEBUG_LEVEL", "how much NVTE_DEBUG logs", kNotNeeded, rules::python_only, true},
    {"GPU_NUM", "GPUs of a node in the guides' own script; no library and not octavo reads it",
     kNotNeeded, rules::gpu_num, true},
    {"WORLD_SIZE",
     "the number of processes of the run, for torchrun and octavo (in the guides' script: of "
     "nodes)",
     "set by the launcher", rules::world_size, true},
    {"RANK", "the number of this process, from 0 (in the guides' script: of this node)",
     "set by the launcher", rules::rank, true},
    {"MASTER_ADDR", "where process 0 waits for the others", "set by the launcher",
     rules::master_addr, true},
    {"MASTER_PORT", "the port that process 0 waits at", "set by the launcher", rules::master_port,
     true},
};

// Reported when they are set.
constexpr Variable kOthers[] = {
    {"NVTE_UNFUSED_ATTN",
     "lets Transformer Engine's Python attention choose the plain one (1 is the default)",
     kNotNeeded, rules::python_only},
    {"NVTE_FUSED_ATTN_BACKEND",
     "nothing: Transformer Engine's documentation names it, version 2.20 does not read it",
     kNotNeeded, rules::does_nothing},
    {"NVTE_DISABLE_NVRTC",
     "forbids Transformer Engine to compile kernels; its norms have no others and throw",
     kNotNeeded, rules::disable_nvrtc},
    {"NVTE_CUDA_INCLUDE_DIR",
     "where Transformer Engine's compiler finds CUDA's headers, before all other places; octavo "
     "sets it to those of the wheel beside libtorch when it is not set",
     "", rules::folder},
    {"NVTE_NORM_FWD_USE_CUDNN", "norms by cuDNN in forward", kNotNeeded, nullptr},
    {"NVTE_NORM_BWD_USE_CUDNN", "norms by cuDNN in backward", kNotNeeded, nullptr},
    {"NVTE_TENSOR_HANDLE_POOL_SIZE_MB",
     "memory for Transformer Engine's handles: 20 MB are about 20,000 of them", "a number",
     rules::number},
    {"NVTE_EXT_MARGIN_SM", "multiprocessors that GEMMs leave free; read by the Python layers",
     kNotNeeded, rules::python_only},
    {"NCCL_DEBUG", "how much NCCL says: VERSION, WARN, INFO, TRACE", "not set, or WARN",
     rules::nccl_debug},
    {"NCCL_P2P_DISABLE", "1 keeps GPUs from reading each other's memory: all goes through the host",
     kNotNeeded, rules::p2p_disable},
    {"NCCL_IB_DISABLE", "1 keeps NCCL off InfiniBand and RoCE: all goes through sockets",
     kNotNeeded, rules::ib_disable},
    {"NCCL_SHM_DISABLE", "1 keeps NCCL off shared memory: processes of a node talk by sockets",
     kNotNeeded, rules::shm_disable},
    {"NCCL_NVLS_ENABLE", "0 turns NVSwitch's own sums off", kNotNeeded, nullptr},
    {"NCCL_ASYNC_ERROR_HANDLING", "the old name of TORCH_NCCL_ASYNC_ERROR_HANDLING", kNotNeeded,
     rules::old_torch_name},
    {"NCCL_BLOCKING_WAIT", "the old name of TORCH_NCCL_BLOCKING_WAIT", kNotNeeded,
     rules::old_torch_name},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING",
     "what happens when a rank fails: 0 nothing, and the others wait for ever; 3 (the default) "
     "ends the process",
     "not set", rules::error_handling},
    {"TORCH_NCCL_BLOCKING_WAIT", "1 makes the host wait for every collective", kNotNeeded,
     rules::slow_when_on},
    {"TORCH_DISTRIBUTED_DEBUG", "DETAIL checks every collective among all ranks", kNotNeeded,
     rules::distributed_debug},
    {"TORCH_NCCL_AVOID_RECORD_STREAMS", "nothing: this torch does not read it", kNotNeeded,
     rules::does_nothing},
    {"PYTORCH_CUDA_ALLOC_CONF", "how libtorch keeps GPU memory (now also PYTORCH_ALLOC_CONF)",
     "not set, or expandable_segments:True", rules::allocator},
    {"PYTORCH_ALLOC_CONF", "how libtorch keeps GPU memory", "not set, or expandable_segments:True",
     rules::allocator},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", "every tensor is a cudaMalloc", kNotNeeded,
     rules::slow_when_set},
    {"CUDA_LAUNCH_BLOCKING", "1 makes the host wait for every kernel", kNotNeeded,
     rules::slow_when_on},
    {"CUDA_VISIBLE_DEVICES", "which GPUs this process sees, in this order", "",
     rules::visible_devices},
    {"CUDA_DEVICE_ORDER", "PCI_BUS_ID numbers GPUs as nvidia-smi does", "", nullptr},
    {"CUDA_MODULE_LOADING", "EAGER loads every kernel at the start", kNotNeeded, nullptr},
    {"CUDA_HOME",
     "where Transformer Engine's compiler finds CUDA's headers; octavo names it those of the wheel "
     "beside libtorch first (NVTE_CUDA_INCLUDE_DIR), when there are any",
     "", rules::folder},
    {"NVIDIA_TF32_OVERRIDE",
     "0 forbids TF32, 1 makes cuBLAS take it for FP32 GEMMs whatever the program says", kNotNeeded,
     rules::tf32},
    {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1 takes TF32 for FP32 GEMMs", kNotNeeded, rules::tf32},
    {"CUBLASLT_WORKSPACE_SIZE", "KiB that a GEMM of libtorch may use beside its operands",
     "a number", rules::number},
    {"CUBLAS_WORKSPACE_CONFIG", "cuBLAS's scratch memory; :4096:8 makes it deterministic", "",
     nullptr},
    {"DISABLE_ADDMM_CUDA_LT", "1 keeps libtorch's addmm off cuBLASLt", kNotNeeded, nullptr},
    {"OMP_NUM_THREADS", "threads of CPU kernels", "not set, or the cores of this process",
     rules::omp_threads},
    {"MKL_NUM_THREADS", "threads of MKL; octavo's BF16 and FP8 GEMMs do not ask it", kNotNeeded,
     nullptr},
    {"ONEDNN_MAX_CPU_ISA", "keeps oneDNN's GEMMs below what the CPU has", kNotNeeded,
     rules::slow_when_set},
    {"OCTAVO_CPU_ISA", "keeps octavo's kernels below what the CPU has, for tests", kNotNeeded,
     rules::slow_when_set},
    {"OMP_WAIT_POLICY", "passive: threads that wait sleep at once; active: they never sleep",
     "not set, or passive", rules::wait_policy},
    {"GOMP_SPINCOUNT", "turns of a loop that a waiting thread spins before it sleeps",
     "not set: octavo bounds the time of it", rules::number},
    {"LD_PRELOAD", "libraries that come before all others", "not set", rules::preload},
    {"LD_LIBRARY_PATH", "where libraries without a path of their own are looked for", "", nullptr},
    {"HF_TOKEN", "the token for downloads of gated models", "", nullptr, false, true},
    {"HUGGING_FACE_HUB_TOKEN", "the old name of HF_TOKEN", "", nullptr, false, true},
    {"WANDB_API_KEY", "Weights & Biases' key", "", nullptr, false, true},
    {"HF_HOME", "the Hugging Face cache", "", nullptr},
    {"HF_HUB_OFFLINE", "1: no downloads", "", nullptr},
    {"OCTAVO_TE_LIBRARY", "the libtransformer_engine.so that octavo loads", "", rules::file},
    {"OCTAVO_SITE_PACKAGES", "the site-packages folder that has torch's wheels", "", nullptr},
    {"OCTAVO_RENDEZVOUS_SECRET", "what ranks prove to each other", "", nullptr, false, true},
    {"OCTAVO_RENDEZVOUS_SECRET_FILE", "a file with it", "", nullptr},
    {"OCTAVO_CORE_DUMPS", "1: core files also where there are secrets", "", nullptr},
};

constexpr auto kAll = [] {
  std::array<Variable, std::size(kGuides) + std::size(kOthers)> all{};
  std::ranges::copy(kOthers, std::ranges::copy(kGuides, all.begin()).out);
  return all;
}();

// Read by libtorch_cuda 2.15, beside those of the table.
constexpr std::string_view kTorchNccl[] = {
    "TORCH_NCCL_BCAST_UNIQUEID",
    "TORCH_NCCL_COORD_CHECK_MILSEC",
    "TORCH_NCCL_CUDA_EVENT_CACHE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DESYNC_DEBUG",
    "TORCH_NCCL_DUMP_ON_TIMEOUT",
    "TORCH_NCCL_ENABLE_MONITORING",
    "TORCH_NCCL_EXTRA_DUMP_ON_EXEC",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_HIGH_PRIORITY",
    "TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN",
    "TORCH_NCCL_NAN_CHECK",
    "TORCH_NCCL_NONBLOCKING_TIMEOUT",
    "TORCH_NCCL_PROPAGATE_ERROR",
    "TORCH_NCCL_RANKS_PER_ROOT",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS",
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_NCCL_TRACE_CPP_STACK",
    "TORCH_NCCL_USE_COMM_NONBLOCKING",
    "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC",
};

// Of src/fake_cuda and of the tests.
constexpr std::string_view kOctavo[] = {
    "OCTAVO_FAKE_CUDA_CAPABILITY",
    "OCTAVO_FAKE_CUDA_COMPUTE",
    "OCTAVO_FAKE_CUDA_DEVICES",
    "OCTAVO_FAKE_CUDA_DRIVER",
    "OCTAVO_FAKE_CUDA_EVENTS",
    "OCTAVO_FAKE_CUDA_MEMORY",
    "OCTAVO_FAKE_CUDA_RECORD",
    "OCTAVO_BUILD",
    "OCTAVO_TEST_DATA",
};

constexpr Family kFamilies[] = {
    {"OCTAVO_", "octavo", kOctavo, "read by octavo's tests and by the fake CUDA device"},
    {"NVTE_", "Transformer Engine", kNvteNames,
     "read by parts of Transformer Engine that octavo does not use, mostly its Python layers; no "
     "effect here"},
    {"TORCH_NCCL_", "libtorch", kTorchNccl, "read by libtorch's NCCL, in runs of several GPUs"},
};

}  // namespace

std::span<const Variable> variables() {
  return kAll;
}

const Variable* find_variable(std::string_view name) {
  const auto it = std::ranges::find(kAll, name, &Variable::name);
  return it == kAll.end() ? nullptr : &*it;
}

std::span<const Family> families() {
  return kFamilies;
}

bool is_of_interest(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"NVTE_", "NCCL_",  "TORCH_",  "PYTORCH_",
                                            "CUDA_", "CUBLAS", "GLOO_",   "OMP_",
                                            "KMP_",  "MKL_",   "OCTAVO_", "NVIDIA_TF32"};
  return find_variable(name) != nullptr ||
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

bool is_secret(std::string_view name) {
  const Variable* known = find_variable(name);
  return (known != nullptr && known->secret) || is_secret_name(name);
}

}  // namespace octavo::verify
