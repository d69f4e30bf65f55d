#include "train/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include "base/error.h"
#include "base/failure.h"
#include "base/log.h"
#include "engine/allocator.h"
#include "engine/devices.h"
#include "engine/te/te.h"
#include "launch/rank_info.h"
#include "launch/threads.h"
#include "train/batching/auto_batch.h"

namespace octavo::train {
namespace {

using config::DeviceChoice;

at::ScalarType compute_of(const config::Settings& settings) {
  // FP8 GEMMs take and give BF16.
  return settings.mixed_precision == config::Precision::kFp32 ? at::kFloat : at::kBFloat16;
}

const engine::GpuInfo& gpu_of(at::Device device) {
  return engine::gpus().gpus.at(static_cast<size_t>(device.index()));
}

int capability_of(at::Device device) {
  return device.is_cuda() ? 10 * gpu_of(device).major + gpu_of(device).minor : 0;
}

// Asking for Transformer Engine loads it: only for runs that may use it.
fp8::Device fp8_device(at::Device device) {
  if (!device.is_cuda()) return {};
  const engine::GpuInfo& gpu = gpu_of(device);
  return {.is_gpu = true,
          .major = gpu.major,
          .minor = gpu.minor,
          .has_te = engine::te::is_available(),
          .name = gpu.name};
}

engine::Fp8Kernels kernels_of(const std::optional<fp8::Decision>& decision) {
  if (!decision) return engine::Fp8Kernels::kRehearsal;
  if (decision->backend == "te") return engine::Fp8Kernels::kTransformerEngine;
  return decision->backend == "aten" ? engine::Fp8Kernels::kAten : engine::Fp8Kernels::kRehearsal;
}

// Norms, activations and RoPE do not depend on the precision of the GEMMs: BF16 has those of FP8
// beside it, unless fp8_backend names other kernels than Transformer Engine's.
bool takes_te_operations(const config::Settings& s, at::Device device) {
  constexpr int kLeastCapability = 89;  // what the calls are tested on
  return device.is_cuda() && compute_of(s) == at::kBFloat16 &&
         (s.use_te || s.fp8_backend == config::Fp8Backend::kAuto ||
          s.fp8_backend == config::Fp8Backend::kTe) &&
         capability_of(device) >= kLeastCapability;
}

bool is_deterministic(const config::Settings& settings, at::Device device) {
  if (settings.deterministic == config::Deterministic::kAuto) return device.is_cpu();
  return settings.deterministic == config::Deterministic::kTrue;
}

}  // namespace

void prepare_gpu_kernels(const config::Settings& settings) {
  const at::Device device = device_of(settings);
  if (!device.is_cuda()) return;
  // What this costs was never measured.
  at::globalContext().setDeterministicAlgorithms(is_deterministic(settings, device),
                                                 /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
}

void prepare_process(const config::Settings& settings) {
  device_of(settings);  // fails before any work is done
  engine::install_cpu_allocator();
  const launch::RankInfo rank_info = launch::rank_info_from_environment();
  limit_memory(settings, rank_info.local_ranks);
  const launch::ThreadChoice threads = launch::choose_threads(
      settings.num_threads, rank_info, launch::environment(), own_cpu_share());
  // Setting the same number again is not nothing: it turns off MKL's own choice of fewer threads.
  if (settings.num_threads > 0 || threads.count != at::get_num_threads())
    at::set_num_threads(threads.count);
  const at::Device device = device_of(settings);
  if (device.is_cpu() && settings.deterministic == config::Deterministic::kFalse)
    log_warn(
        "deterministic false: CPUs sum in a fixed order in any case, and nothing is faster "
        "without it; leave it out");
  if (settings.device == DeviceChoice::kCpu) return;
  if (!engine::gpus().gpus.empty()) c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  for (const auto& gpu : engine::gpus().gpus)
    log_info(str("found ", gpu.name, ", compute capability ", gpu.major, ".", gpu.minor, ", ",
                 gpu.memory_bytes >> 20, " MiB"));
}

void fail_out_of_memory(const c10::OutOfMemoryError& error) {
  fail_as(Failure::kDeviceMemory, "train",
          "the device's memory is full: ", error.what_without_backtrace(),
          "\nChange first, in this order: a smaller batch_size with more "
          "gradient_accumulation_steps; gradient_checkpointing true; gradient_dtype bf16; "
          "moment_dtype bf16 or fp8; master_dtype bf16; lora_rank 16");
}

namespace {

// One GPU for each rank of a machine; a scheduler may show a rank its own alone.
c10::DeviceIndex gpu_index(size_t visible) {
  const launch::RankInfo rank_info = launch::rank_info_from_environment();
  if (visible == 1) return 0;
  if (static_cast<size_t>(rank_info.local_rank) >= visible)
    fail(ExitCode::kUsage, "train", "rank ", rank_info.rank, " is number ", rank_info.local_rank,
         " of its machine, which shows ", visible,
         " GPUs; start one rank for each (octavo launch --nproc ", visible, ")");
  return static_cast<c10::DeviceIndex>(rank_info.local_rank);
}

}  // namespace

at::Device device_of(const config::Settings& settings) {
  if (settings.device == DeviceChoice::kCpu) return at::kCPU;
  const engine::GpuSearch& found = engine::gpus();
  if (!found.gpus.empty()) return {at::kCUDA, gpu_index(found.gpus.size())};
  if (settings.device == DeviceChoice::kCuda)
    fail(ExitCode::kEnvironment, "train", "device cuda: wanted a GPU, found none (", found.reason,
         "); run octavo verify, or take device cpu");
  return at::kCPU;
}

std::optional<fp8::Decision> decide_fp8(const config::Settings& settings) {
  if (!fp8::wants_fp8(settings)) return std::nullopt;
  return fp8::decide(fp8::request_of(settings), fp8_device(device_of(settings)));
}

engine::Target target_of(const config::Settings& settings) {
  const at::Device device = device_of(settings);
  return {.device = device,
          .compute = compute_of(settings),
          .capability = capability_of(device),
          .deterministic = is_deterministic(settings, device),
          .fp8 = kernels_of(decide_fp8(settings)),
          .te_operations = takes_te_operations(settings, device),
          .hopper_sums = fp8::wants_fp8(settings) &&
                         settings.fp8_accumulate == config::Fp8Accumulate::kHopper};
}

engine::Target cpu_target_of(const config::Settings& settings) {
  return {.device = at::kCPU, .compute = compute_of(settings)};
}

}  // namespace octavo::train
