// LLaMA-Factory's keys (and those of Hugging Face's Trainer that it passes on) that have a
// counterpart.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"
#include "migrate/import_llamafactory.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;
constexpr ForeignForm kLlama = ForeignForm::kLlamaFactory;
using llama_factory::comma_parts;
constexpr int64_t kManySteps = int64_t{1} << 40;

// ---- what is trained

void lf_dataset(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "dataset", comma_parts(entry));
  for (const std::string& name : comma_parts(entry))
    if (name.find('/') == name.npos)
      return importer.find(
          kNote, "dataset_names", entry,
          "a name without a folder is an entry of LLaMA-Factory's data/dataset_info.json",
          "octavo does not read that list and will not find the data",
          "write the file or the hub's name (hf_hub_url, file_name of the entry) into dataset");
}

void lf_template(Importer& importer, const ForeignEntry& entry) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"llama3", "llama3"},
                                                                             {"qwen", "qwen2"},
                                                                             {"chatml", "chatml"},
                                                                             {"alpaca", "alpaca"},
                                                                             {"empty", "none"}};
  const std::string name = importer.word(entry);
  for (const auto& [theirs, ours] : kNames)
    if (name == theirs) return importer.map_to(entry, "chat_template", std::string(ours));
  importer.map_to(entry, "chat_template", "auto");
  importer.find(kRepaired, "other_template", entry, "octavo has no template of this name",
                "prompts may be written differently than the model has learned them",
                "chat_template auto: as the tokenizer's added tokens say");
}

void lf_train_on_prompt(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "train_on", importer.flag(entry) ? "all" : "answer");
}

void lf_packing(Importer& importer, const ForeignEntry& entry) {
  const bool pretraining = importer.word_of(kLlama, "stage") == "pt";
  const bool neat = importer.is_on(kLlama, "neat_packing");
  const bool packs = importer.flag(entry) || (entry.is_default && (pretraining || neat));
  importer.map_to(
      entry, "packing", packs ? "true" : "false",
      packs ? "documents in one sample do not see each other (their neat_packing)" : "");
}

void lf_neat_packing(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  importer.map_to(entry, "packing", "true");
}

void lf_stage(Importer& importer, const ForeignEntry& entry) {
  const std::string stage = importer.word(entry);
  if (stage == "sft" || stage == "pt")
    return importer.leave(entry, "the rows of the data say it: text, or prompts and answers");
  importer.drop(entry, "octavo pretrains and fine-tunes");
  importer.find(kRefused, "other_stage", entry,
                "octavo has no reward models and no preference training",
                "it would be another training", "keep LLaMA-Factory for this stage");
}

void lf_finetuning_type(Importer& importer, const ForeignEntry& entry) {
  const std::string type = importer.word(entry);
  if (type == "full") return importer.map_to(entry, "lora_rank", "0");
  if (type == "lora") return importer.leave(entry, "lora_rank says it");
  importer.drop(entry, "octavo trains all weights, or LoRA adapters");
  importer.find(kRefused, "other_finetuning", entry, "octavo trains all weights or LoRA adapters",
                "it would be another training", "take finetuning_type full or lora");
}

bool trains_adapters(const Importer& importer) {
  return importer.word_of(kLlama, "finetuning_type") == "lora";
}

template <const char* kOurs>
void lf_lora(Importer& importer, const ForeignEntry& entry) {
  if (!trains_adapters(importer))
    return importer.drop(entry, "not read: finetuning_type is not lora");
  importer.map_to(
      entry, kOurs,
      std::string_view(kOurs) == "lora_target_modules" ? comma_parts(entry) : entry.values);
}
constexpr char kRank[] = "lora_rank", kAlpha[] = "lora_alpha", kDropout[] = "lora_dropout",
               kTargets[] = "lora_target_modules";

void lf_quantization_bit(Importer& importer, const ForeignEntry& entry) {
  const int64_t bits = importer.whole(entry, 1, 64);
  if (!trains_adapters(importer)) {
    importer.drop(entry, "quantized weights cannot be trained");
    return importer.find(kRefused, "quantized_full", entry,
                         "quantized weights are frozen, and finetuning_type is not lora",
                         "LLaMA-Factory stops as well", "take finetuning_type lora, or leave it");
  }
  importer.map_to(entry, "lora_base", "fp8", "E4M3 with a scale for each 128x128 block");
  if (bits < 8)
    importer.find(kRepaired, "fewer_bits", entry, "octavo keeps frozen weights in BF16 or FP8",
                  str("8 bits a weight instead of ", bits, ": of an 8B model ",
                      static_cast<double>(8 - bits), " GB more"),
                  "lora_base fp8");
}

// ---- how long, how fast

void lf_epochs(Importer& importer, const ForeignEntry& entry) {
  const double epochs = importer.number(entry, 0, 1e6);
  const ForeignEntry* steps = importer.entry_of(kLlama, "max_steps");
  if (steps != nullptr && importer.whole(*steps, -1, kManySteps) > 0) {
    importer.drop(entry, "max_steps decides");
    if (!entry.is_default)
      importer.find(kRepaired, "two_lengths", entry, "max_steps is given too, and wins in both",
                    "nothing, but the number misleads", "only max_steps is carried");
    return;
  }
  const double whole = std::max(1.0, std::ceil(epochs));
  importer.map_to(entry, "num_epochs", config::print_number(static_cast<int64_t>(whole)));
  if (whole != epochs)
    importer.find(kRepaired, "part_of_an_epoch", entry, "octavo counts whole epochs",
                  str("the run is ", whole / std::max(epochs, 1e-9), " times as long"),
                  "num_epochs rounded up; give max_steps for less");
}

void lf_max_steps(Importer& importer, const ForeignEntry& entry) {
  const int64_t steps = importer.whole(entry, -1, kManySteps);
  if (steps <= 0) return importer.leave(entry, "num_train_epochs decides");
  importer.map_to(entry, "max_steps", config::print_number(steps));
}

void carry_warmup_share(Importer& importer, const ForeignEntry& entry, double share) {
  const int64_t steps = llama_factory::given_steps(importer);
  if (steps > 0)
    return importer.map_to(
        entry, "warmup_steps",
        config::print_number(static_cast<int64_t>(std::ceil(share * static_cast<double>(steps)))));
  importer.map_to(entry, "warmup_steps", "-1");
  importer.find(kRepaired, "warmup_ratio", entry,
                "a share of a length that only the data says; octavo counts warm-up in steps",
                "another warm-up: a twentieth of the run, at most 2000 steps",
                "warmup_steps -1; write the steps when they are known");
}

void lf_warmup_ratio(Importer& importer, const ForeignEntry& entry) {
  const ForeignEntry* steps = importer.entry_of(kLlama, "warmup_steps");
  if (steps != nullptr && importer.number(*steps, 0, 1e12) > 0)
    return importer.drop(entry, "warmup_steps wins, in both");
  carry_warmup_share(importer, entry, importer.number(entry, 0, 1));
}

void lf_warmup_steps(Importer& importer, const ForeignEntry& entry) {
  const double steps = importer.number(entry, 0, 1e12);
  if (steps > 0 && steps < 1) return carry_warmup_share(importer, entry, steps);
  if (steps == 0 && importer.entry_of(kLlama, "warmup_ratio") != nullptr)
    return importer.leave(entry, "warmup_ratio says it");
  importer.map_to(entry, "warmup_steps", entry.values);
}

// The share of the learning rate that a cosine with a floor ends at.
std::string floor_share(const Importer& importer) {
  const ForeignEntry* rate = importer.entry_of(kLlama, "lr_scheduler_kwargs.min_lr_rate");
  if (rate != nullptr) return config::print_number(importer.number(*rate, 0, 1));
  const ForeignEntry* floor = importer.entry_of(kLlama, "lr_scheduler_kwargs.min_lr");
  const ForeignEntry* peak = importer.entry_of(kLlama, "learning_rate");
  if (floor == nullptr || peak == nullptr) return "0";
  const double top = importer.number(*peak, 1e-30, 10);
  return config::print_number(importer.number(*floor, 0, top) / top);
}

void lf_schedule(Importer& importer, const ForeignEntry& entry) {
  if (entry.is_default && importer.mapped("min_lr_ratio") != nullptr) return;
  const std::string type = importer.word(entry);
  if (type == "cosine") return importer.map_to(entry, "min_lr_ratio", "0", "a cosine down to 0");
  if (type == "cosine_with_min_lr")
    return importer.map_to(entry, "min_lr_ratio", floor_share(importer));
  if (type == "constant" || type == "constant_with_warmup")
    return importer.map_to(entry, "min_lr_ratio", "1", "a cosine that ends where it begins");
  importer.map_to(entry, "min_lr_ratio", "0");
  importer.find(kRepaired, "other_schedule", entry, "octavo's learning rate falls as a cosine",
                "another curve: a cosine is above a straight line at first, and below it later",
                "a cosine down to 0 (min_lr_ratio 0)");
}

void lf_optim(Importer& importer, const ForeignEntry& entry) {
  const std::string name = importer.word(entry);
  if (name.find("8bit") != name.npos && name.find("adamw") != name.npos)
    return importer.map_to(entry, "moment_dtype", "fp8", "E4M3, one scale for 128 values");
  if (name.starts_with("adamw_torch") || name == "adamw_hf" || name == "adamw_apex_fused")
    return importer.leave(entry, "AdamW is octavo's optimizer");
  importer.drop(entry, "octavo has AdamW");
  importer.find(kRepaired, "other_optimizer", entry, "octavo has AdamW only",
                "8 bytes of moments for each trained weight in FP32; learning rates may differ",
                "AdamW; moment_dtype bf16 or fp8 makes the moments smaller");
}

void lf_recompute(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "gradient_checkpointing", importer.flag(entry) ? "false" : "true",
                  "about a third more work for less memory");
}

// Examples of LLaMA-Factory have 180000000, which means never.
void lf_timeout(Importer& importer, const ForeignEntry& entry) {
  const double seconds = importer.number(entry, 1, 1e12), most = 1e6;
  importer.map_to(entry, "dist_timeout", config::print_number(std::min(seconds, most)),
                  seconds > most ? "eleven days, the longest that octavo waits" : "");
}

void lf_shuffling(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "shuffle", importer.flag(entry) ? "false" : "true");
}

constexpr Mapping kLlamaFactoryKeys[] = {
    {"model_name_or_path", "model_name", ""},
    {"model_revision", "revision", ""},
    {"stage", "", "sft and pt: nothing to set. Others are refused", lf_stage},
    {"finetuning_type", "lora_rank", "full: 0. freeze and oft are refused", lf_finetuning_type},
    {"lora_rank", "lora_rank", "with finetuning_type lora", lf_lora<kRank>},
    {"lora_alpha", "lora_alpha", "with finetuning_type lora", lf_lora<kAlpha>},
    {"lora_dropout", "lora_dropout", "with finetuning_type lora", lf_lora<kDropout>},
    {"lora_target", "lora_target_modules", "with finetuning_type lora", lf_lora<kTargets>},
    {"quantization_bit", "lora_base", "fp8, one byte a weight", lf_quantization_bit},
    {"dataset", "dataset", "names of dataset_info.json must be replaced", lf_dataset},
    {"template", "chat_template", "llama3, qwen, chatml, alpaca, empty; else auto", lf_template},
    {"cutoff_len", "max_seq_length", ""},
    {"preprocessing_num_workers", "num_workers", ""},
    {"train_on_prompt", "train_on", "true: all; false: answer", lf_train_on_prompt},
    {"packing", "packing", "documents never see each other", lf_packing},
    {"neat_packing", "packing", "", lf_neat_packing},
    {"disable_shuffling", "shuffle", "turned round", lf_shuffling},
    {"val_size", "val_fraction", "a number of rows becomes 0.1", llama_factory::val_size},
    {"per_device_train_batch_size", "batch_size", ""},
    {"gradient_accumulation_steps", "gradient_accumulation_steps", ""},
    {"disable_gradient_checkpointing", "gradient_checkpointing", "turned round", lf_recompute},
    {"learning_rate", "learning_rate", ""},
    {"num_train_epochs", "num_epochs", "rounded up; max_steps wins", lf_epochs},
    {"max_steps", "max_steps", "-1: num_train_epochs decides", lf_max_steps},
    {"lr_scheduler_type", "min_lr_ratio", "a cosine always: cosine 0, constant 1", lf_schedule},
    {"warmup_steps", "warmup_steps", "below 1 a share of max_steps", lf_warmup_steps},
    {"warmup_ratio", "warmup_steps", "of max_steps; else a twentieth", lf_warmup_ratio},
    {"weight_decay", "weight_decay", ""},
    {"adam_beta1", "beta1", ""},
    {"adam_beta2", "beta2", ""},
    {"adam_epsilon", "adam_eps", ""},
    {"max_grad_norm", "max_grad_norm", ""},
    {"optim", "moment_dtype", "8-bit AdamW: fp8; others become AdamW", lf_optim},
    {"seed", "seed", ""},
    {"fp8", "mixed_precision", "fp8", llama_factory::fp8},
    {"fp8_backend", "fp8_backend fp8_recipe", "torchao: aten, rowwise. auto: te",
     llama_factory::fp8_backend},
    {"bf16", "mixed_precision", "", llama_factory::bf16},
    {"fp16", "mixed_precision", "bf16", llama_factory::fp16},
    {"pure_bf16", "master_dtype moment_dtype gradient_dtype", "bf16", llama_factory::pure_bf16},
    {"fp8_enable_fsdp_float8_all_gather", "fp8_all_gather", "FP8 weights are gathered as codes"},
    {"load_in_fp8", "", "refused: for inference, not training", llama_factory::load_in_fp8},
    {"output_dir", "checkpoint_dir", ""},
    {"logging_steps", "log_freq", "metrics.jsonl has every step; below 1 a share of max_steps",
     llama_factory::logging_steps},
    {"save_steps", "checkpoint_freq", "below 1 a share of max_steps", llama_factory::save_steps},
    {"save_strategy", "checkpoint_freq", "no: 0", llama_factory::save_strategy},
    {"save_total_limit", "keep_checkpoints", ""},
    {"eval_strategy", "eval_freq", "no: 0", llama_factory::eval_strategy},
    {"evaluation_strategy", "eval_freq", "no: 0", llama_factory::eval_strategy},
    {"eval_steps", "eval_freq", "below 1 a share of max_steps", llama_factory::eval_steps},
    {"resume_from_checkpoint", "resume", "true: latest", llama_factory::resume},
    {"run_name", "run_name", ""},
    {"report_to", "use_wandb use_tensorboard", "", llama_factory::report_to},
    {"deepspeed", "", "the file is read too", llama_factory::deepspeed},
    {"ddp_timeout", "dist_timeout", "seconds; at most 1000000", lf_timeout},
    {"fsdp", "sharding_mode", "full_shard: fsdp_full, shard_grad_op: zero2", llama_factory::fsdp},
};

}  // namespace

std::span<const Mapping> llama_factory_mappings() {
  return kLlamaFactoryKeys;
}

std::span<const ForeignDefault> llama_factory_defaults() {
  static constexpr ForeignDefault kDefaults[] = {
      {"finetuning_type", "lora"},
      {"lora_rank", "8"},
      {"cutoff_len", "2048"},
      {"packing", "false"},
      {"val_size", "0"},
      {"per_device_train_batch_size", "8"},
      {"disable_gradient_checkpointing", "false"},
      {"learning_rate", "5e-05"},
      {"num_train_epochs", "3"},
      {"lr_scheduler_type", "linear"},
      {"warmup_steps", "0"},
      {"weight_decay", "0"},
      {"adam_beta2", "0.999"},
      {"seed", "42"},
      {"bf16", "false"},
      {"fp8_backend", "auto"},
      {"logging_steps", "500"},
      {"save_steps", "500"},
      {"save_total_limit", "0"},
      {"eval_strategy", "no"},
  };
  return kDefaults;
}

}  // namespace octavo::migrate
