// TRL's keys (SFTConfig, ModelConfig, ScriptArguments). Those of Hugging Face's Trainer below them
// are LLaMA-Factory's, too, and are converted as there; what is not in the file becomes TRL's
// default and not LLaMA-Factory's.

#include <algorithm>

#include "config/key_makers.h"
#include "migrate/import_builder.h"
#include "migrate/import_llamafactory.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;
constexpr ForeignForm kTrlForm = ForeignForm::kTrl;

bool trl_trains_adapters(const Importer& importer) {
  return importer.is_on(kTrlForm, "use_peft");
}

void trl_use_peft(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.map_to(entry, "lora_rank", "0");
  if (importer.entry_of(kTrlForm, "lora_r") == nullptr)
    return importer.map_to(entry, "lora_rank", "16", "TRL's default rank");
  importer.leave(entry, "lora_r says it");
}

void trl_lora(Importer& importer, const ForeignEntry& entry) {
  if (!trl_trains_adapters(importer)) return importer.drop(entry, "not read: use_peft is off");
  if (entry.path == "lora_target_modules")
    return importer.map_to(entry, entry.path, llama_factory::comma_parts(entry));
  importer.map_to(entry, entry.path == "lora_r" ? "lora_rank" : entry.path, entry.values);
}

void trl_quantized(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  if (!trl_trains_adapters(importer)) {
    importer.drop(entry, "quantized weights cannot be trained");
    return importer.find(kRefused, "quantized_full", entry,
                         "quantized weights are frozen, and use_peft is off",
                         "transformers stops as well", "add use_peft: true, or leave it");
  }
  importer.map_to(entry, "lora_base", "fp8", "E4M3 with a scale for each 128x128 block");
  if (entry.path == "load_in_4bit")
    importer.find(kRepaired, "fewer_bits", entry, "octavo keeps frozen weights in BF16 or FP8",
                  "8 bits a weight instead of 4: of an 8B model 4 GB more", "lora_base fp8");
}

void trl_loss(Importer& importer, const ForeignEntry& entry) {
  if (importer.flag(entry)) return importer.map_to(entry, "train_on", "answer");
  importer.leave(entry, "off; the rows of the data say what is trained on (train_on)");
}

void trl_recompute(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "gradient_checkpointing", importer.flag(entry) ? "true" : "false",
                  "about a third more work for less memory");
}

void trl_dtype(Importer& importer, const ForeignEntry& entry) {
  importer.leave(entry, "master weights are FP32 (master_dtype), GEMMs BF16 or FP8");
}

// Of Trainer's keys, those that TRL passes on.
constexpr std::string_view kTrainerKeys[] = {"model_name_or_path",
                                             "model_revision",
                                             "per_device_train_batch_size",
                                             "gradient_accumulation_steps",
                                             "learning_rate",
                                             "num_train_epochs",
                                             "max_steps",
                                             "lr_scheduler_type",
                                             "warmup_steps",
                                             "warmup_ratio",
                                             "weight_decay",
                                             "adam_beta1",
                                             "adam_beta2",
                                             "adam_epsilon",
                                             "max_grad_norm",
                                             "optim",
                                             "seed",
                                             "bf16",
                                             "fp16",
                                             "output_dir",
                                             "logging_steps",
                                             "save_steps",
                                             "save_strategy",
                                             "save_total_limit",
                                             "eval_strategy",
                                             "evaluation_strategy",
                                             "eval_steps",
                                             "resume_from_checkpoint",
                                             "run_name",
                                             "report_to",
                                             "deepspeed",
                                             "fsdp",
                                             "ddp_timeout",
                                             "trust_remote_code",
                                             "neftune_noise_alpha",
                                             "dataloader_num_workers",
                                             "dataloader_pin_memory",
                                             "group_by_length",
                                             "do_train",
                                             "do_eval",
                                             "per_device_eval_batch_size",
                                             "overwrite_output_dir",
                                             "save_only_model",
                                             "logging_strategy",
                                             "include_num_input_tokens_seen",
                                             "ddp_find_unused_parameters",
                                             "torch_compile",
                                             "tf32",
                                             "push_to_hub",
                                             "lr_scheduler_kwargs.min_lr",
                                             "lr_scheduler_kwargs.min_lr_rate",
                                             "lr_scheduler_kwargs.*",
                                             "fsdp_config.*"};

}  // namespace

bool is_trainer_key(std::string_view path) {
  return std::ranges::any_of(kTrainerKeys, [&](std::string_view key) {
    return key == path || (key.ends_with(".*") && path.starts_with(key.substr(0, key.size() - 1)));
  });
}

std::span<const Mapping> trl_mappings() {
  static constexpr Mapping kTable[] = {
      {"dataset_name", "dataset", ""},
      {"dataset_config", "dataset_config", ""},
      {"dataset_train_split", "split_name", ""},
      {"dataset_test_split", "val_split_name", ""},
      {"max_length", "max_seq_length", ""},
      {"max_seq_length", "max_seq_length", "its name in older versions"},
      {"packing", "packing", "documents never see each other"},
      {"use_peft", "lora_rank", "false: 0", trl_use_peft},
      {"lora_r", "lora_rank", "with use_peft", trl_lora},
      {"lora_alpha", "lora_alpha", "with use_peft", trl_lora},
      {"lora_dropout", "lora_dropout", "with use_peft", trl_lora},
      {"lora_target_modules", "lora_target_modules", "with use_peft", trl_lora},
      {"load_in_4bit", "lora_base", "fp8, one byte a weight", trl_quantized},
      {"load_in_8bit", "lora_base", "fp8, one byte a weight", trl_quantized},
      {"assistant_only_loss", "train_on", "true: answer", trl_loss},
      {"completion_only_loss", "train_on", "true: answer", trl_loss},
      {"gradient_checkpointing", "gradient_checkpointing", "", trl_recompute},
      {"torch_dtype", "", "nothing to set: masters are FP32, GEMMs BF16 or FP8", trl_dtype},
      {"dtype", "", "nothing to set: masters are FP32, GEMMs BF16 or FP8", trl_dtype},
      {"dataset_num_proc", "num_workers", ""},
  };
  return kTable;
}

std::span<const Mapping> trl_drops() {
  static constexpr Mapping kTable[] = {
      {"attn_implementation", "", "octavo picks its attention kernel itself"},
      {"dataset_text_field", "", "octavo finds the field of the text itself"},
      {"dataset_kwargs.*", "", "rows are read as they are; no cost"},
      {"model_init_kwargs.*", "", "the model's config.json says it"},
      {"eval_packing", "", "validation is packed as training is"},
      {"packing_strategy", "", "samples are filled to the end; no cost"},
      {"padding_free", "", "packing wastes no padding either; no cost"},
      {"pad_to_multiple_of", "", "samples have one length; no cost"},
      {"chat_template_path", "", "chat_template names one, or the model's own is taken"},
      {"eos_token", "", "the tokenizer's own"},
      {"lora_task_type", "", "a causal language model always; no cost"},
      {"lora_modules_to_save", "", "only adapters are trained: embeddings and head stay frozen"},
      {"use_rslora", "", "the scale stays alpha/rank: multiply lora_alpha by the rank's root"},
      {"use_dora", "", "plain LoRA instead: another method, other results"},
      {"bnb_4bit_quant_type", "", "of bitsandbytes, which octavo has not"},
      {"use_bnb_nested_quant", "", "of bitsandbytes, which octavo has not"},
      {"gradient_checkpointing_kwargs.*", "", "a detail of PyTorch's recomputation; no cost"},
      {"use_liger_kernel", "", "octavo's loss and norms are fused already; no cost"},
      {"activation_offloading", "", "octavo keeps everything on the GPU"},
      {"dataset_streaming", "", "data is prepared into shards once: disk space"},
  };
  return kTable;
}

std::span<const ForeignDefault> trl_defaults() {
  static constexpr ForeignDefault kDefaults[] = {
      {"max_length", "1024"},
      {"packing", "false"},
      {"per_device_train_batch_size", "8"},
      {"gradient_checkpointing", "true"},
      {"learning_rate", "2e-05"},
      {"num_train_epochs", "3"},
      {"lr_scheduler_type", "linear"},
      {"warmup_steps", "0"},
      {"weight_decay", "0"},
      {"adam_beta2", "0.999"},
      {"seed", "42"},
      {"bf16", "true"},
      {"save_steps", "500"},
      {"eval_strategy", "no"},
  };
  return kDefaults;
}

}  // namespace octavo::migrate
