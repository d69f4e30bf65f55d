#include <algorithm>

#include "verify/machine.h"
#include "verify/variables.h"

namespace octavo::verify {
namespace {

using Values = std::map<std::string, std::string>;

void expect_variable(const std::string& name, const std::string& value, Status status,
                     const std::string& found, const std::string& fix, const Values& more = {},
                     Facts facts = healthy()) {
  facts.environment = more;
  facts.environment[name] = value;
  SCOPED_TRACE(name + "=" + value);
  expect_finding(facts, name, status, found, fix);
}

// The lists of the guides, line by line.
TEST(JudgeEnvironment, TheGuidesListIsReportedEvenWhenNothingIsSet) {
  const auto all = judge(healthy(), {});
  for (const char* name :
       {"CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_FP8_ALLREDUCE", "NVTE_APPLY_QK_LAYER_SCALING",
        "NVTE_FP8_DPA_BWD", "NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_DEBUG", "NVTE_DEBUG_LEVEL",
        "GPU_NUM", "WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME"}) {
    const Finding f = finding(all, name);
    EXPECT_EQ(f.status, Status::kOk) << name;
    EXPECT_TRUE(f.found.starts_with("not set")) << f.found;
  }
}

TEST(JudgeEnvironment, Fp8AllreduceDoesNothingAtAll) {
  expect_variable("NVTE_FP8_ALLREDUCE", "1", Status::kWarn, "nothing at all", "unset it");
}

TEST(JudgeEnvironment, MaxConnections) {
  expect_variable("CUDA_DEVICE_MAX_CONNECTIONS", "1", Status::kNote, "one queue", "unset it");
  expect_variable("CUDA_DEVICE_MAX_CONNECTIONS", "8", Status::kNote, "hardware queues", "");
  for (const char* wrong : {"0", "33", "one", ""})
    expect_variable("CUDA_DEVICE_MAX_CONNECTIONS", wrong, Status::kWarn, "from 1 to 32", "unset");
}

TEST(JudgeEnvironment, PythonsOwnHaveNoEffectHere) {
  for (const char* name :
       {"NVTE_APPLY_QK_LAYER_SCALING", "NVTE_FP8_DPA_BWD", "NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN",
        "NVTE_UNFUSED_ATTN", "NVTE_DEBUG", "NVTE_DEBUG_LEVEL"})
    expect_variable(name, "1", Status::kNote, "no effect in octavo", "unset it");
  expect_variable("NVTE_TORCH_COMPILE", "0", Status::kNote, "no effect here", "");
  expect_variable("NVTE_FUSED_ATTN_BACKEND", "1", Status::kWarn, "does not read it", "unset it");
}

TEST(JudgeEnvironment, UnknownNamesGetTheNearest) {
  expect_variable("NVTE_FLASH_ATN", "1", Status::kWarn, "reads no such variable",
                  "did you mean NVTE_FLASH_ATTN?");
  expect_variable("NVTE_FP8_SPEEDUP_EVERYTHING", "1", Status::kWarn, "reads no such variable",
                  "unset it");
  expect_variable("TORCH_NCCL_BLOCKING_WAITS", "1", Status::kWarn, "libtorch reads no such",
                  "did you mean TORCH_NCCL_BLOCKING_WAIT?");
  expect_variable("TORCH_NCCL_TRACE_BUFFER_SIZE", "20", Status::kNote, "libtorch's NCCL", "");
  const Finding others = [] {
    Facts f = healthy();
    f.environment = {{"NCCL_BUFFSIZE", "1"}, {"OMP_PROC_BIND", "close"}};
    return finding(judge(f, {}), "others");
  }();
  EXPECT_EQ(others.found, "set and not looked at: NCCL_BUFFSIZE, OMP_PROC_BIND");
}

TEST(JudgeEnvironment, TransformerEngineWithoutItsCompiler) {
  expect_variable("NVTE_DISABLE_NVRTC", "1", Status::kFail, "its norms", "unset");
  expect_variable("NVTE_DISABLE_NVRTC", "0", Status::kOk, "", "");
  expect_variable("NVTE_TENSOR_HANDLE_POOL_SIZE_MB", "many", Status::kWarn, "not a number", "");
  Facts f = healthy();
  f.missing_files = {"/nowhere"};
  expect_variable("NVTE_CUDA_INCLUDE_DIR", "/nowhere", Status::kWarn, "no such folder", "exists",
                  {}, f);
  expect_variable("OCTAVO_TE_LIBRARY", "/nowhere", Status::kFail, "no such file", "unset", {}, f);
}

TEST(JudgeEnvironment, Nccl) {
  Facts two = healthy();
  two.gpus.gpus = {gpu_of(9, 0), gpu_of(9, 0)};
  two.host.infiniband = true;
  expect_variable("NCCL_P2P_DISABLE", "1", Status::kWarn, "2 GPUs", "unset", {}, two);
  expect_variable("NCCL_P2P_DISABLE", "0", Status::kOk, "", "", {}, two);
  expect_variable("NCCL_IB_DISABLE", "1", Status::kWarn, "InfiniBand", "unset", {}, two);
  expect_variable("NCCL_IB_DISABLE", "1", Status::kNote, "sockets", "");
  expect_variable("NCCL_SHM_DISABLE", "1", Status::kWarn, "", "--shm-size", {}, two);
  expect_variable("NCCL_DEBUG", "INFO", Status::kNote, "how much", "");
  expect_variable("NCCL_DEBUG", "TRACE", Status::kWarn, "every call", "WARN");
  expect_variable("NCCL_DEBUG", "LOUD", Status::kWarn, "no such level", "WARN");
  expect_variable("NCCL_ASYNC_ERROR_HANDLING", "1", Status::kWarn, "old name", "TORCH_");
  expect_variable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", Status::kWarn, "waiting", "unset");
  expect_variable("TORCH_NCCL_BLOCKING_WAIT", "1", Status::kWarn, "slower", "unset");
  expect_variable("TORCH_DISTRIBUTED_DEBUG", "DETAIL", Status::kWarn, "checked first", "unset");
}

TEST(JudgeEnvironment, Cuda) {
  expect_variable("CUDA_LAUNCH_BLOCKING", "1", Status::kWarn, "slower", "unset");
  expect_variable("CUDA_LAUNCH_BLOCKING", "0", Status::kOk, "", "");
  expect_variable("PYTORCH_NO_CUDA_MEMORY_CACHING", "0", Status::kWarn, "cudaMalloc", "unset");
  expect_variable("CUDA_VISIBLE_DEVICES", "0", Status::kNote, "which GPUs", "");
  expect_variable("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c", Status::kNote, "which GPUs", "");
  expect_variable("CUDA_VISIBLE_DEVICES", "", Status::kFail, "hidden", "unset");
  expect_variable("CUDA_VISIBLE_DEVICES", "0,0", Status::kFail, "twice", "once");
  expect_variable("CUDA_VISIBLE_DEVICES", "0,7", Status::kFail, "'7' is no device", "from 0 to 0");
  expect_variable("CUDA_VISIBLE_DEVICES", "", Status::kNote, "hidden", "", {}, without_gpu());
  expect_variable("NVIDIA_TF32_OVERRIDE", "1", Status::kWarn, "ten bits", "unset");
  expect_variable("CUBLASLT_WORKSPACE_SIZE", "32768", Status::kNote, "KiB", "");
}

TEST(JudgeEnvironment, AllocatorOfLibtorch) {
  const char* name = "PYTORCH_CUDA_ALLOC_CONF";
  expect_variable(name, "expandable_segments:True", Status::kNote, "GPU memory", "");
  expect_variable(name, "roundup_power2_divisions:[256:1,512:2],max_split_size_mb:64",
                  Status::kNote, "GPU memory", "");
  expect_variable(name, "expandable_segment:True", Status::kFail, "refuses",
                  "did you mean expandable_segments?");
  expect_variable(name, "max_split_size_mb", Status::kFail, "refuses", "");
  expect_variable(name, "backend:cudaMallocAsync", Status::kWarn, "memory numbers", "backend");
}

TEST(JudgeEnvironment, Processes) {
  const Values all = {
      {"WORLD_SIZE", "16"}, {"RANK", "3"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
  expect_variable("WORLD_SIZE", "16", Status::kOk, "number of processes", "", all);
  expect_variable("WORLD_SIZE", "2", Status::kFail, "RANK is not set", "torchrun");
  expect_variable("WORLD_SIZE", "two", Status::kFail, "not a number", "torchrun");
  expect_variable("RANK", "16", Status::kFail, "from 0 to WORLD_SIZE - 1, which is 15", "", all);
  expect_variable("MASTER_PORT", "70000", Status::kFail, "not a port", "29500", all);
  expect_variable("MASTER_PORT", "80", Status::kWarn, "root", "29500", all);
  Values second = all;
  second["LOCAL_RANK"] = "0";
  expect_variable("MASTER_ADDR", "localhost", Status::kFail, "another node", "first node", second);
  // The guides count nodes.
  expect_variable("GPU_NUM", "8", Status::kWarn, "guides' way", "2 nodes x 8 GPUs = 16",
                  {{"WORLD_SIZE", "2"}});
}

TEST(JudgeEnvironment, ThreadsAndAllocators) {
  Facts cpu = without_gpu();
  expect_variable("OMP_NUM_THREADS", "1", Status::kWarn, "1 of 32 cores", "torchrun", {}, cpu);
  expect_variable("OMP_NUM_THREADS", "32", Status::kNote, "threads", "", {}, cpu);
  expect_variable("OMP_NUM_THREADS", "64", Status::kWarn, "more than the 32", "32", {}, cpu);
  expect_variable("OMP_NUM_THREADS", "all", Status::kWarn, "not a number", "unset", {}, cpu);
  expect_variable("OMP_WAIT_POLICY", "active", Status::kWarn, "many times as long", "unset", {},
                  cpu);
  expect_variable("OMP_WAIT_POLICY", "passive", Status::kNote, "sleep at once", "", {}, cpu);
  expect_variable("GOMP_SPINCOUNT", "infinite", Status::kWarn, "not a number", "unset", {}, cpu);
  expect_variable("LD_PRELOAD", "libtcmalloc.so.4", Status::kNote, "allocator of its own", "");
  expect_variable("LD_PRELOAD", "/opt/libnccl.so.2", Status::kWarn, "before torch's own", "out");
  expect_variable("LD_PRELOAD", "/x/liboctavo_fake_cuda.so", Status::kNote, "no kernel runs",
                  "unset");
  Facts f = healthy();
  f.missing_files = {"/nowhere/lib.so"};
  expect_variable("LD_PRELOAD", "/nowhere/lib.so", Status::kWarn, "does not exist", "out", {}, f);
}

TEST(JudgeEnvironment, SecretsAreNeverShown) {
  for (const char* name : {"HF_TOKEN", "WANDB_API_KEY", "NCCL_SECRET_THING", "CUDA_PASSWORD"})
    EXPECT_TRUE(is_secret(name)) << name;
  EXPECT_FALSE(is_secret("NVTE_DEBUG"));
  Facts f = healthy();
  f.environment = {{"HF_TOKEN", "hf_abc"}};  // gathering would not even keep it
  EXPECT_EQ(finding(judge(f, {}), "HF_TOKEN").found.find("hf_abc"), std::string::npos);
}

TEST(JudgeEnvironment, EveryVariableSaysWhatItDoesAndHasOneEntry) {
  std::vector<std::string_view> names;
  for (const Variable& v : variables()) {
    EXPECT_FALSE(v.does.empty()) << v.name;
    names.push_back(v.name);
  }
  for (const Family& family : families())
    for (const std::string_view name : family.names) {
      EXPECT_TRUE(name.starts_with(family.prefix)) << name;
      names.push_back(name);
    }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  EXPECT_EQ(twice, names.end()) << *twice;
}

}  // namespace
}  // namespace octavo::verify
