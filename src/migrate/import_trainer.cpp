// Hugging Face's Trainer without a program above it: TrainingArguments as JSON, YAML or flags, with
// the keys of transformers' own scripts; and the file that its fsdp_config names.

#include <algorithm>

#include "base/error.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;

void tr_recompute(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "gradient_checkpointing", importer.flag(entry) ? "true" : "false",
                  "about a third more work for less memory");
}

void tr_fsdp_file(Importer& importer, const ForeignEntry& entry) {
  if (const ForeignFile* json = importer.file_of(ForeignForm::kFsdp); json != nullptr)
    return importer.leave(entry, "imported from " + json->shown);
  importer.drop(entry, "its file was not found: name it, too");
}

void tr_find_batch(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "auto_batch_size", importer.flag(entry) ? "true" : "false");
}

// What they make together is counted in import_parallelism.cpp. torchrun also takes gpu, auto and
// MIN:MAX.
void tr_launch(Importer& importer, const ForeignEntry& entry) {
  if (config::parse_number<int64_t>(importer.word(entry))) importer.whole(entry, 1, 1 << 20);
  importer.leave(entry, "GPUs; octavo launch --nproc --nnodes starts them");
}

std::string fsdp_word(const Importer& importer, const ForeignEntry& entry) {
  std::string word = importer.word(entry);
  std::ranges::transform(word, word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return word;
}

void fsdp_strategy(Importer& importer, const ForeignEntry& entry) {
  static constexpr std::pair<std::string_view, std::string_view> kModes[] = {
      {"full_shard", "fsdp_full"},
      {"shard_grad_op", "zero2"},
      {"no_shard", "ddp"},
      {"hybrid_shard", "hybrid"},
      {"true", "fsdp_full"},
      {"false", "zero2"},
      {"1", "fsdp_full"},
      {"2", "zero2"},
      {"3", "ddp"},
      {"4", "hybrid"}};
  const std::string strategy = fsdp_word(importer, entry);
  for (const auto& [theirs, ours] : kModes)
    if (strategy == theirs)
      return importer.map_to(entry, "sharding_mode", std::string(ours),
                             "octavo launch --nproc N starts the ranks");
  importer.drop(entry, "no sharding that octavo knows");
}

void fsdp_offload(Importer& importer, const ForeignEntry& entry) {
  if (fsdp_word(importer, entry) == "false") return importer.leave(entry, "off");
  importer.drop(entry, "octavo keeps everything on the GPU");
  importer.find(kRepaired, "offload", entry,
                "weights, gradients or moments wait in the host's memory",
                "they cross PCIe in every step: of an 8B model half a second each way and more",
                "all on the GPU; moment_dtype fp8 and master_dtype bf16 where memory is short");
}

}  // namespace

std::span<const Mapping> trainer_mappings() {
  static constexpr Mapping kTable[] = {
      {"gradient_checkpointing", "gradient_checkpointing", "", tr_recompute},
      {"block_size", "max_seq_length", "run_clm.py's"},
      {"max_seq_length", "max_seq_length", ""},
      {"model_max_length", "max_seq_length", "of many scripts"},
      {"dataset_name", "dataset", ""},
      {"dataset_config_name", "dataset_config", ""},
      {"train_file", "dataset", ""},
      {"preprocessing_num_workers", "num_workers", ""},
      {"auto_find_batch_size", "auto_batch_size", "", tr_find_batch},
      {"fsdp_config", "", "the file is read too", tr_fsdp_file},
      {"launch nproc-per-node", "", "GPUs of the forecast; octavo launch --nproc", tr_launch},
      {"launch nnodes", "", "GPUs of the forecast; octavo launch --nnodes", tr_launch},
      {"launch num-processes", "", "GPUs of the forecast, those of all nodes", tr_launch},
      {"launch num-machines", "", "octavo launch --nnodes", tr_launch},
  };
  return kTable;
}

std::span<const Mapping> trainer_drops() {
  static constexpr std::string_view kMetrics = "metrics.jsonl has every step; no cost";
  static constexpr Mapping kTable[] = {
      {"gradient_checkpointing_kwargs.*", "", "a detail of PyTorch's recomputation; no cost"},
      {"use_liger_kernel", "", "octavo's loss and norms are fused already; no cost"},
      {"torch_dtype", "", "masters are FP32, GEMMs BF16 or FP8"},
      {"low_cpu_mem_usage", "", "weights are mapped from their files; no cost"},
      {"attn_implementation", "", "octavo picks its attention kernel itself"},
      {"tokenizer_name", "", "the model's own; tokenizer names another"},
      {"config_name", "", "the model's own"},
      {"remove_unused_columns", "", "octavo reads the fields that it needs"},
      {"dataloader_drop_last", "", "steps are whole"},
      {"logging_first_step", "", kMetrics},
      {"logging_dir", "", kMetrics},
      {"log_level", "", kMetrics},
      {"disable_tqdm", "", kMetrics},
      {"load_best_model_at_end", "", "the best checkpoint is kept beside the last"},
      {"metric_for_best_model", "", "the validation loss"},
      {"label_smoothing_factor", "", "no smoothing: another loss"},
      {"save_safetensors", "", "checkpoints are safetensors always"},
      {"accelerator_config.*", "", "a detail of Accelerate"},
      {"fsdp_min_num_params", "", "every block is sharded by itself"},
      {"fsdp_transformer_layer_cls_to_wrap", "", "every block is sharded by itself"},
      {"launch master-port", "", "octavo launch --master_port"},
      {"launch config-file", "", "name it, too: octavo config import SCRIPT ACCELERATE.yaml"},
  };
  return kTable;
}

std::span<const ForeignDefault> trainer_defaults() {
  static constexpr ForeignDefault kDefaults[] = {
      {"per_device_train_batch_size", "8"},
      {"learning_rate", "5e-05"},
      {"num_train_epochs", "3"},
      {"lr_scheduler_type", "linear"},
      {"warmup_steps", "0"},
      {"weight_decay", "0"},
      {"adam_beta2", "0.999"},
      {"seed", "42"},
      {"bf16", "false"},
      {"logging_steps", "500"},
      {"save_steps", "500"},
      {"eval_strategy", "no"},
  };
  return kDefaults;
}

std::span<const Mapping> fsdp_mappings() {
  static constexpr std::string_view kModes =
      "FULL_SHARD: fsdp_full, SHARD_GRAD_OP: zero2, HYBRID_SHARD: hybrid";
  static constexpr std::string_view kOffload = "dropped; everything stays on the GPU";
  static constexpr Mapping kTable[] = {
      {"fsdp_sharding_strategy", "sharding_mode", kModes, fsdp_strategy},
      {"sharding_strategy", "sharding_mode", kModes, fsdp_strategy},
      {"fsdp_reshard_after_forward", "sharding_mode", "true: fsdp_full, false: zero2",
       fsdp_strategy},
      {"reshard_after_forward", "sharding_mode", "the same", fsdp_strategy},
      {"fsdp_activation_checkpointing", "gradient_checkpointing", "", tr_recompute},
      {"activation_checkpointing", "gradient_checkpointing", "", tr_recompute},
      {"fsdp_offload_params", "", kOffload, fsdp_offload},
      {"offload_params", "", kOffload, fsdp_offload},
      {"cpu_offload", "", kOffload, fsdp_offload},
  };
  return kTable;
}

std::span<const Mapping> fsdp_drops() {
  static constexpr std::string_view kWrapping = "every block is sharded by itself; no cost";
  static constexpr std::string_view kOrder = "octavo's sharding plans its own order; no cost";
  static constexpr Mapping kTable[] = {
      {"fsdp_transformer_layer_cls_to_wrap", "", kWrapping},
      {"transformer_layer_cls_to_wrap", "", kWrapping},
      {"fsdp_auto_wrap_policy", "", kWrapping},
      {"fsdp_min_num_params", "", kWrapping},
      {"min_num_params", "", kWrapping},
      {"fsdp_backward_prefetch", "", kOrder},
      {"backward_prefetch", "", kOrder},
      {"fsdp_forward_prefetch", "", kOrder},
      {"forward_prefetch", "", kOrder},
      {"limit_all_gathers", "", kOrder},
      {"fsdp_use_orig_params", "", kOrder},
      {"use_orig_params", "", kOrder},
      {"fsdp_sync_module_states", "", "ranks read their own part of the weights; no cost"},
      {"sync_module_states", "", "ranks read their own part of the weights; no cost"},
      {"fsdp_cpu_ram_efficient_loading", "", "weights are mapped from their files; no cost"},
      {"cpu_ram_efficient_loading", "", "weights are mapped from their files; no cost"},
      {"fsdp_state_dict_type", "", "octavo's checkpoints have one form; no cost"},
      {"state_dict_type", "", "octavo's checkpoints have one form; no cost"},
      {"fsdp_version", "", "octavo's sharding is its own"},
      {"version", "", "octavo's sharding is its own"},
      {"xla", "", "of another kind of machine"},
      {"xla_fsdp_v2", "", "of another kind of machine"},
      {"xla_fsdp_grad_ckpt", "", "of another kind of machine"},
  };
  return kTable;
}

}  // namespace octavo::migrate
