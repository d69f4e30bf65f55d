// The YAML that `accelerate config` writes: how a run is started, sharded and rounded.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;
constexpr ForeignForm kAccelerateForm = ForeignForm::kAccelerate;

std::string in_lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

// The sharding comes from the section that the type names.
void acc_distributed(Importer& importer, const ForeignEntry& entry) {
  const std::string type = in_lower_case(importer.word(entry));
  if (type == "no") return importer.leave(entry, "one process");
  if (type == "fsdp") return importer.leave(entry, "fsdp_config says how");
  if (type == "deepspeed") return importer.leave(entry, "deepspeed_config says how");
  if (type == "multi_gpu" || type == "multi_cpu")
    return importer.map_to(entry, "sharding_mode", "ddp",
                           "octavo launch --nproc N starts the ranks");
  importer.drop(entry, "octavo runs on NVIDIA GPUs and CPUs, without tensor parallelism");
}

bool acc_is(const Importer& importer, std::string_view type) {
  return in_lower_case(importer.word_of(kAccelerateForm, "distributed_type")) == type;
}

void acc_strategy(Importer& importer, const ForeignEntry& entry) {
  static constexpr std::pair<std::string_view, std::string_view> kModes[] = {
      {"full_shard", "fsdp_full"},
      {"shard_grad_op", "zero2"},
      {"no_shard", "ddp"},
      {"hybrid_shard", "hybrid"},
      {"hybrid_shard_zero2", "hybrid"},
      {"1", "fsdp_full"},
      {"2", "zero2"},
      {"3", "ddp"},
      {"4", "hybrid"},
      {"true", "fsdp_full"},
      {"false", "zero2"}};
  if (!acc_is(importer, "fsdp")) return importer.drop(entry, "not read: not FSDP");
  const std::string strategy = in_lower_case(importer.word(entry));
  for (const auto& [theirs, ours] : kModes)
    if (strategy == theirs)
      return importer.map_to(entry, "sharding_mode", std::string(ours),
                             "octavo launch --nproc N starts the ranks");
  importer.drop(entry, "no sharding that octavo knows");
}

void acc_stage(Importer& importer, const ForeignEntry& entry) {
  static constexpr const char* kModes[] = {"ddp", "zero1", "zero2", "fsdp_full"};
  if (!acc_is(importer, "deepspeed")) return importer.drop(entry, "not read: not DeepSpeed");
  importer.map_to(entry, "sharding_mode", kModes[importer.whole(entry, 0, 3)],
                  "octavo launch --nproc N starts the ranks");
}

void acc_offload(Importer& importer, const ForeignEntry& entry) {
  const std::string device = in_lower_case(importer.word(entry));
  if (device == "none" || device == "false") return importer.leave(entry, "off");
  importer.drop(entry, "octavo keeps everything on the GPU");
  importer.find(kRepaired, "offload", entry,
                "weights, gradients or moments wait in the host's memory",
                "they cross PCIe in every step: of an 8B model half a second each way and more",
                "all on the GPU; moment_dtype fp8 and master_dtype bf16 where memory is short");
}

void acc_recompute(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "gradient_checkpointing", importer.flag(entry) ? "true" : "false");
}

void acc_precision(Importer& importer, const ForeignEntry& entry) {
  const std::string precision = in_lower_case(importer.word(entry));
  if (precision == "no") return importer.map_to(entry, "mixed_precision", "fp32");
  if (precision != "fp16") return importer.map_to(entry, "mixed_precision", precision);
  importer.map_to(entry, "mixed_precision", "bf16");
  importer.find(kRepaired, "fp16", entry, "octavo has no FP16",
                "BF16 has 3 bits less of precision and needs no loss scaling",
                "mixed_precision bf16");
}

void acc_backend(Importer& importer, const ForeignEntry& entry) {
  const std::string backend = in_lower_case(importer.word(entry));
  if (backend == "te") return importer.map_to(entry, "fp8_backend", "te");
  if (backend == "torchao" || backend == "ao")
    return importer.map_to(entry, "fp8_backend", "aten", "the same cuBLASLt kernels");
  importer.map_to(entry, "fp8_backend", "te");
  importer.find(kRepaired, "msamp", entry, "octavo has Transformer Engine's kernels and cuBLASLt's",
                "optimizer states are FP32 unless moment_dtype says fp8", "fp8_backend te");
}

// Of all machines together.
void acc_processes(Importer& importer, const ForeignEntry& entry) {
  const int64_t all = importer.whole(entry, 1, 1 << 20);
  importer.result.parallel.gpus = all;
  const ForeignEntry* machines = importer.entry_of(kAccelerateForm, "num_machines");
  const int64_t nodes = machines == nullptr ? 1 : importer.whole(*machines, 1, 1 << 20);
  const std::string flag = "a flag of octavo launch … -- train: --nproc ";
  if (nodes == 1) return importer.leave(entry, str(flag, all));
  importer.leave(entry, all % nodes == 0 ? str(flag, all / nodes, " on each of ", nodes, " nodes")
                                         : str(flag, "of each node; together they are ", all));
}

// Of octavo launch, not of the configuration.
void acc_launch(Importer& importer, const ForeignEntry& entry) {
  static constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
      {"num_machines", "--nnodes"},
      {"machine_rank", "--node_rank"},
      {"main_process_ip", "--master_address"},
      {"main_process_port", "--master_port"}};
  if (entry.path == "num_processes") return acc_processes(importer, entry);
  for (const auto& [theirs, flag] : kFlags)
    if (entry.path == theirs)
      return importer.leave(entry, str("a flag of octavo launch … -- train: ", flag));
  importer.leave(entry, "octavo launch starts the ranks");
}

template <int64_t Parallelism::*kMember>
void acc_degree(Importer& importer, const ForeignEntry& entry) {
  const int64_t degree = importer.whole(entry, 1, 1024);
  importer.result.parallel.*kMember = degree;
  if (degree == 1) return importer.leave(entry, "off");
  importer.drop(entry, "no tensor and context parallelism: the same GPUs, fully sharded");
}

void acc_deepspeed_file(Importer& importer, const ForeignEntry& entry) {
  if (importer.has(ForeignForm::kDeepSpeed))
    return importer.leave(entry, "imported from the JSON that was given");
  importer.drop(entry, "its file was not given");
  importer.find(kNote, "deepspeed_file", entry, "the JSON has the sharding",
                "sharding, clipping and batch sizes in it are not seen",
                "name it too: octavo config import ACCELERATE.yaml DEEPSPEED.json");
}

}  // namespace

std::span<const Mapping> accelerate_mappings() {
  static constexpr std::string_view kFlag = "a flag of octavo launch";
  static constexpr std::string_view kOffload = "dropped; everything stays on the GPU";
  static constexpr Mapping kTable[] = {
      {"mixed_precision", "mixed_precision", "no: fp32, fp16: bf16", acc_precision},
      {"gradient_accumulation_steps", "gradient_accumulation_steps", ""},
      {"distributed_type", "sharding_mode", "MULTI_GPU: ddp; the others by their section",
       acc_distributed},
      {"num_processes", "", kFlag, acc_launch},
      {"num_machines", "", kFlag, acc_launch},
      {"machine_rank", "", kFlag, acc_launch},
      {"main_process_ip", "", kFlag, acc_launch},
      {"main_process_port", "", kFlag, acc_launch},
      {"fsdp_config.fsdp_sharding_strategy", "sharding_mode",
       "FULL_SHARD: fsdp_full, SHARD_GRAD_OP: zero2, HYBRID_SHARD: hybrid", acc_strategy},
      {"fsdp_config.fsdp_reshard_after_forward", "sharding_mode",
       "true: fsdp_full, false: zero2, and the names above", acc_strategy},
      {"fsdp_config.fsdp_activation_checkpointing", "gradient_checkpointing", "", acc_recompute},
      {"fsdp_config.fsdp_offload_params", "", kOffload, acc_offload},
      {"deepspeed_config.zero_stage", "sharding_mode", "0: ddp, 1: zero1, 2: zero2, 3: fsdp_full",
       acc_stage},
      {"deepspeed_config.gradient_accumulation_steps", "gradient_accumulation_steps", ""},
      {"deepspeed_config.gradient_clipping", "max_grad_norm", ""},
      {"deepspeed_config.offload_optimizer_device", "", kOffload, acc_offload},
      {"deepspeed_config.offload_param_device", "", kOffload, acc_offload},
      {"deepspeed_config.deepspeed_config_file", "", "give that file, too", acc_deepspeed_file},
      {"parallelism_config.parallelism_config_tp_size", "", "recorded; no tensor parallelism",
       acc_degree<&Parallelism::tensor>},
      {"parallelism_config.parallelism_config_cp_size", "", "recorded; no context parallelism",
       acc_degree<&Parallelism::context>},
      {"fp8_config.backend", "fp8_backend", "TE: te, TORCHAO: aten, MSAMP: te", acc_backend},
      {"fp8_config.fp8_format", "fp8_format", ""},
      {"fp8_config.margin", "fp8_margin", ""},
      {"fp8_config.interval", "fp8_interval", ""},
      {"fp8_config.amax_history_length", "fp8_amax_history", ""},
      {"fp8_config.amax_history_len", "fp8_amax_history", ""},
      {"fp8_config.amax_compute_algorithm", "fp8_amax_algo", ""},
      {"fp8_config.amax_compute_algo", "fp8_amax_algo", ""},
  };
  return kTable;
}

std::span<const Mapping> accelerate_drops() {
  static constexpr std::string_view kElsewhere = "of another kind of machine";
  static constexpr std::string_view kStart = "octavo launch starts the ranks";
  static constexpr Mapping kTable[] = {
      {"compute_environment", "", kStart},
      {"main_training_function", "", kStart},
      {"rdzv_backend", "", kStart},
      {"same_network", "", kStart},
      {"gpu_ids", "", "CUDA_VISIBLE_DEVICES says it"},
      {"use_cpu", "", "device: cpu says it"},
      {"debug", "", "ranks are compared in octavo's own way (replica_check_freq)"},
      {"downcast_bf16", "", kElsewhere},
      {"enable_cpu_affinity", "", "numactl says it; no cost"},
      {"dynamo_config.*", "", "octavo is compiled; no cost"},
      {"fsdp_config.*", "", "wrapping and prefetching are octavo's own; no cost"},
      {"deepspeed_config.*", "", "octavo's sharding plans its own buckets; no cost"},
      {"fp8_config.override_linear_precision", "", "forward and both backward GEMMs are FP8"},
      {"fp8_config.use_autocast_during_eval", "", "validation runs as training does"},
      {"fp8_config.*", "", "no such choice"},
      {"megatron_lm_config.*", "", "no tensor and pipeline parallelism"},
      {"parallelism_config.*", "", "no tensor and context parallelism"},
      {"tpu_name", "", kElsewhere},
      {"tpu_zone", "", kElsewhere},
      {"tpu_env", "", kElsewhere},
      {"tpu_use_cluster", "", kElsewhere},
      {"tpu_use_sudo", "", kElsewhere},
      {"commands", "", kElsewhere},
      {"command_file", "", kElsewhere},
  };
  return kTable;
}

}  // namespace octavo::migrate
