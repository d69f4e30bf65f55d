// DeepSpeed's keys that have a counterpart.

#include "base/error.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;
constexpr ForeignForm kSpeed = ForeignForm::kDeepSpeed;

void ds_stage(Importer& importer, const ForeignEntry& entry) {
  static constexpr const char* kModes[] = {"ddp", "zero1", "zero2", "fsdp_full"};
  const int64_t stage = importer.whole(entry, 0, 3);
  importer.map_to(entry, "sharding_mode", kModes[stage],
                  "octavo launch --nproc N starts the ranks that share");
}

void ds_offload(Importer& importer, const ForeignEntry& entry) {
  const std::string device = importer.word(entry);
  if (device == "none" || device == "false") return importer.leave(entry, "off");
  importer.drop(entry, "octavo keeps everything on the GPU");
  if (entry.path.find("param") != entry.path.npos)
    return importer.find(
        kRepaired, "weight_offload", entry,
        "weights wait in the host's memory or on disk, and cross PCIe in every pass",
        "2 bytes a weight, twice a step: of an 8B model 32 GB, above a second on PCIe 4",
        "all on the GPU; lora_base fp8 or gradient_checkpointing where memory is short");
  importer.find(
      kRepaired, "optimizer_offload", entry,
      "gradients go to the host and weights come back in every step; AdamW runs on the CPU",
      "2 bytes a weight each way: of an 8B model 16 GB, half a second each on PCIe 4, and the "
      "CPU's AdamW",
      "all on the GPU; moment_dtype fp8 and master_dtype bf16 make 18 bytes a weight about 8");
}

void ds_communication(Importer& importer, const ForeignEntry& entry) {
  const std::string type = importer.word(entry);
  if (type != "fp32" && type != "bf16" && type != "fp16")
    return importer.drop(entry, "gradients travel in FP32 or BF16 (grad_reduce_dtype)");
  importer.map_to(entry, "grad_reduce_dtype", "bf16", type == "fp16" ? "BF16 cannot overflow" : "");
  if (type == "fp32")
    importer.find(kRepaired, "fp32_communication", entry,
                  "gradients are cast to FP32 for the network and back",
                  "twice the bytes of BF16 for every reduction, and two casts",
                  "grad_reduce_dtype bf16; fp32 is the other choice");
}

void ds_gradient_type(Importer& importer, const ForeignEntry& entry) {
  const std::string type = importer.word(entry);
  importer.map_to(entry, "gradient_dtype", type == "fp16" ? "bf16" : type,
                  type == "fp32" ? "4 bytes a weight; bf16 halves it" : "");
}

void ds_train_batch(Importer& importer, const ForeignEntry& entry) {
  const int64_t size = importer.whole(entry, 1, int64_t{1} << 40);
  importer.map_to(entry, "target_effective_batch_size", config::print_number(size),
                  "batch_size, gradient_accumulation_steps and the number of GPUs say it");
}

void ds_fp8(Importer& importer, const ForeignEntry& entry) {
  const bool is_switch = entry.path == "fp8.enabled";
  if (!is_switch || !importer.flag(entry))
    importer.drop(entry, "in the fp8 section, which DeepSpeed does not read");
  else if (importer.is_on(ForeignForm::kLlamaFactory, "fp8"))
    importer.leave(entry, "the YAML's fp8 says it");
  else
    importer.map_to(entry, "mixed_precision", "fp8", "what was meant");
  for (const Finding& finding : importer.result.findings)
    if (finding.id == "deepspeed_fp8_section") return;  // once for the section
  importer.find(kRepaired, "deepspeed_fp8_section", entry,
                "DeepSpeed reads no fp8 section, and does not say so",
                "a run that is called FP8 and has BF16's or FP32's speed",
                "mixed_precision fp8 is octavo's key; receipt.json says what ran");
}

void ds_bf16(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  if (wants_fp8(importer)) return importer.leave(entry, "what is not FP8 is always BF16");
  importer.map_to(entry, "mixed_precision", "bf16");
}

void ds_fp16(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  if (importer.is_on(kSpeed, "bf16.enabled"))
    importer.find(kRefused, "two_precisions", entry, "bf16 is enabled too", "DeepSpeed stops at it",
                  "keep bf16 and switch fp16 off");
  if (wants_fp8(importer)) return importer.drop(entry, "octavo has BF16 in its place");
  importer.map_to(entry, "mixed_precision", "bf16");
  importer.find(kRepaired, "fp16", entry, "octavo has no FP16",
                "BF16 has 3 bits less of precision and needs no loss scaling",
                "mixed_precision bf16");
}

void ds_optimizer(Importer& importer, const ForeignEntry& entry) {
  const std::string type = importer.word(entry);
  if (type == "AdamW" || type == "Adam")
    return importer.leave(entry, "AdamW is octavo's optimizer");
  importer.drop(entry, "octavo has AdamW");
  importer.find(kRepaired, "other_optimizer", entry, "octavo has AdamW only",
                "8 bytes of moments for each trained weight in FP32; learning rates may differ",
                "AdamW; moment_dtype bf16 or fp8 makes the moments smaller");
}

void ds_betas(Importer& importer, const ForeignEntry& entry) {
  if (entry.values.size() != 2)
    fail(ExitCode::kUsage, "config", entry.where, ": ", entry.path, ": wanted two numbers, found ",
         entry.text(), "; write [0.9, 0.95]");
  importer.map_to(entry, "beta1", entry.values[0]);
  importer.map_to(entry, "beta2", entry.values[1]);
}

void ds_scheduler(Importer& importer, const ForeignEntry& entry) {
  const std::string type = importer.word(entry);
  if (type == "WarmupLR")
    return importer.map_to(entry, "min_lr_ratio", "1", "constant after the warm-up");
  if (type == "WarmupCosineLR")
    return importer.leave(entry, "a cosine, as octavo's; cos_min_ratio says where it ends");
  importer.map_to(entry, "min_lr_ratio", "0");
  importer.find(kRepaired, "other_schedule", entry, "octavo's learning rate falls as a cosine",
                "another curve: a cosine is above a straight line at first, and below it later",
                "a cosine down to 0 (min_lr_ratio 0)");
}

void ds_steps_per_print(Importer& importer, const ForeignEntry& entry) {
  if (importer.has(ForeignForm::kLlamaFactory))
    return importer.drop(entry, "DeepSpeed's own lines; logging_steps is carried");
  const double steps = importer.number(entry, 0, 1e12);  // 1e5 and 0 mean: hardly ever, never
  if (steps < 1) return importer.drop(entry, "octavo prints a line every log_freq steps");
  importer.map_to(entry, "log_freq", config::print_number(static_cast<int64_t>(steps)));
}

}  // namespace

std::span<const Mapping> deepspeed_mappings() {
  static constexpr std::string_view kOffload = "dropped; everything stays on the GPU";
  static constexpr Mapping kTable[] = {
      {"train_batch_size", "target_effective_batch_size", "must be a multiple of the others",
       ds_train_batch},
      {"train_micro_batch_size_per_gpu", "batch_size", ""},
      {"gradient_accumulation_steps", "gradient_accumulation_steps", ""},
      {"gradient_clipping", "max_grad_norm", ""},
      {"zero_optimization.stage", "sharding_mode", "0: ddp, 1: zero1, 2: zero2, 3: fsdp_full",
       ds_stage},
      {"zero_optimization.offload_optimizer.device", "", kOffload, ds_offload},
      {"zero_optimization.offload_param.device", "", kOffload, ds_offload},
      {"zero_optimization.cpu_offload", "", kOffload, ds_offload},
      {"communication_data_type", "grad_reduce_dtype", "bf16 always", ds_communication},
      {"data_types.grad_accum_dtype", "gradient_dtype", "", ds_gradient_type},
      {"fp8.*", "mixed_precision", "DeepSpeed does not read it; enabled is taken as meant", ds_fp8},
      {"bf16.enabled", "mixed_precision", "", ds_bf16},
      {"fp16.enabled", "mixed_precision", "bf16", ds_fp16},
      {"optimizer.type", "", "AdamW always", ds_optimizer},
      {"optimizer.params.lr", "learning_rate", ""},
      {"optimizer.params.betas", "beta1 beta2", "", ds_betas},
      {"optimizer.params.eps", "adam_eps", ""},
      {"optimizer.params.weight_decay", "weight_decay", ""},
      {"scheduler.type", "min_lr_ratio", "a cosine always: WarmupLR 1, others 0", ds_scheduler},
      {"scheduler.params.warmup_max_lr", "learning_rate", ""},
      {"scheduler.params.warmup_num_steps", "warmup_steps", "linear from 0"},
      {"scheduler.params.total_num_steps", "max_steps", ""},
      {"scheduler.params.cos_min_ratio", "min_lr_ratio", ""},
      {"steps_per_print", "log_freq", "without a YAML", ds_steps_per_print},
      {"wandb.enabled", "use_wandb", ""},
      {"wandb.project", "wandb_project", ""},
      {"tensorboard.enabled", "use_tensorboard", ""},
  };
  return kTable;
}

}  // namespace octavo::migrate
