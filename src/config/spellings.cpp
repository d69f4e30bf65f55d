// Where the names are from: [h] TrainingArguments of transformers (5.22 and earlier versions), [t]
// SFTConfig, ModelConfig and ScriptArguments of TRL, [l] LLaMA-Factory
// (migrate/import_llamafactory), [n] nanoGPT's train.py, [m] Megatron-LM's arguments, [r]
// torch.distributed.run, [o] torchtitan's job_config.py, [g] the guides' scripts, [c] words that
// many scripts share.

#include "config/spellings.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"

namespace octavo::config {
namespace {

struct Spelling {
  std::string_view theirs, ours;
};

// The same value means the same.
constexpr Spelling kSame[] = {
    {"model", "model_name"},                                        // [c]
    {"model_name_or_path", "model_name"},                           // [t]
    {"data", "dataset"},                                            // [c]
    {"dataset_text_field", "text_field"},                           // [t]
    {"dataset_train_split", "split_name"},                          // [t]
    {"dataset_test_split", "val_split_name"},                       // [t]
    {"max_length", "max_seq_length"},                               // [t]
    {"seq_length", "max_seq_length"},                               // [m]
    {"seq_len", "max_seq_length"},                                  // [o]
    {"training.seq_len", "max_seq_length"},                         // [o]
    {"block_size", "max_seq_length"},                               // [n]
    {"cutoff_len", "max_seq_length"},                               // [l]
    {"per_device_train_batch_size", "batch_size"},                  // [h]
    {"micro_batch_size", "batch_size"},                             // [m]
    {"local_batch_size", "batch_size"},                             // [o]
    {"training.local_batch_size", "batch_size"},                    // [o]
    {"global_batch_size", "target_effective_batch_size"},           // [m]
    {"training.global_batch_size", "target_effective_batch_size"},  // [o]
    {"gradient_accumulation", "gradient_accumulation_steps"},       // [c]
    {"total_steps", "max_steps"},                                   // [g]
    {"steps", "max_steps"},                                         // [o]
    {"training.steps", "max_steps"},                                // [o]
    {"num_steps", "max_steps"},                                     // [c]
    {"max_iters", "max_steps"},                                     // [n]
    {"train_iters", "max_steps"},                                   // [m]
    {"epochs", "num_epochs"},                                       // [c]
    {"num_train_epochs", "num_epochs"},                             // [h]
    {"lr", "learning_rate"},                                        // [m]
    {"optimizer.lr", "learning_rate"},                              // [o]
    {"lr_warmup_iters", "warmup_steps"},                            // [m]
    {"warmup_iters", "warmup_steps"},                               // [n]
    {"lr_scheduler.warmup_steps", "warmup_steps"},                  // [o]
    {"lr_scheduler.min_lr_factor", "min_lr_ratio"},                 // [o]
    {"adam_beta1", "beta1"},                                        // [h]
    {"adam_beta2", "beta2"},                                        // [h]
    {"optimizer.beta1", "beta1"},                                   // [o]
    {"optimizer.beta2", "beta2"},                                   // [o]
    {"adam_epsilon", "adam_eps"},                                   // [h]
    {"optimizer.eps", "adam_eps"},                                  // [o]
    {"optimizer.weight_decay", "weight_decay"},                     // [o]
    {"wd", "weight_decay"},                                         // [c]
    {"grad_clip", "max_grad_norm"},                                 // [n]
    {"clip_grad", "max_grad_norm"},                                 // [m]
    {"training.max_norm", "max_grad_norm"},                         // [o]
    {"training.seed", "seed"},                                      // [o]
    {"activation_checkpointing", "gradient_checkpointing"},         // [c]
    {"fp8", "use_fp8"},                                             // [c]
    {"lora_r", "lora_rank"},                                        // [t]
    {"logging_steps", "log_freq"},                                  // [h]
    {"log_interval", "log_freq"},                                   // [n]
    {"metrics.log_freq", "log_freq"},                               // [o]
    {"eval_steps", "eval_freq"},                                    // [h]
    {"eval_interval", "eval_freq"},                                 // [n]
    {"eval_iters", "eval_batches"},                                 // [n]
    {"save_steps", "checkpoint_freq"},                              // [h]
    {"save_interval", "checkpoint_freq"},                           // [m]
    {"checkpoint.interval", "checkpoint_freq"},                     // [o]
    {"save_total_limit", "keep_checkpoints"},                       // [h]
    {"resume_from_checkpoint", "resume"},                           // [h]
    {"wandb", "use_wandb"},                                         // [g]
    {"wandb_log", "use_wandb"},                                     // [n]
    {"metrics.enable_wandb", "use_wandb"},                          // [o]
    {"tensorboard", "use_tensorboard"},                             // [c]
    {"metrics.enable_tensorboard", "use_tensorboard"},              // [o]
    {"ddp_timeout", "dist_timeout"},                                // [h]
    {"gpus", "num_gpus"},                                           // [c]
    {"ngpus", "num_gpus"},                                          // [c]
    {"nproc_per_node", "nproc"},                                    // [r]
    {"master_addr", "master_address"},                              // [r]
    {"max_tokens", "max_new_tokens"},                               // [c]
};

// A flag without a value that is one of ours with this value.
struct Switch {
  std::string_view theirs, ours, value;
};
constexpr Switch kSwitches[] = {{"bf16", "mixed_precision", "bf16"},  // [h]
                                {"fp32", "mixed_precision", "fp32"},  // [c]
                                {"mxfp8", "fp8_recipe", "mxfp8"},
                                {"use_fp4", "fp8_recipe", "nvfp4"},
                                {"nvfp4", "fp8_recipe", "nvfp4"}};

// What means something else here, and what to write.
struct Hint {
  std::string_view theirs, instead;
};
constexpr std::string_view kCosine =
    "the schedule is a cosine with a linear warm-up: set learning_rate, warmup_steps and "
    "min_lr_ratio";
constexpr std::string_view kFolders =
    "a run's folders are runs_dir and checkpoint_dir; the result of other verbs goes to output";
constexpr std::string_view kLaunch =
    "ranks are started by octavo launch --nproc N -- train …, which needs no such setting";
constexpr Hint kHints[] = {
    {"fp16",  // [h]
     "FP16 is not implemented (it needs loss scaling); take mixed_precision bf16 or fp8"},
    {"half", "FP16 is not implemented (it needs loss scaling); take mixed_precision bf16 or fp8"},
    {"tf32", "FP32 GEMMs are FP32 here; take mixed_precision bf16 or fp8 for speed"},     // [h]
    {"dtype", "what GEMMs run in is mixed_precision: fp8, bf16 or fp32"},                 // [n]
    {"torch_dtype", "what GEMMs run in is mixed_precision: fp8, bf16 or fp32"},           // [t]
    {"precision", "what GEMMs run in is mixed_precision: fp8, bf16 or fp32"},             // [c]
    {"amp", "what GEMMs run in is mixed_precision: fp8, bf16 or fp32"},                   // [c]
    {"config", "name the file without a flag: octavo train CONFIG.yaml"},                 // [g]
    {"config_file", "name the file without a flag: octavo train CONFIG.yaml"},            // [c]
    {"job.config_file", "name the file without a flag; it is YAML, with octavo's keys"},  // [o]
    {"output_dir", kFolders},                                                             // [h]
    {"out_dir", kFolders},                                                                // [n]
    {"save_dir", kFolders},                                                               // [c]
    {"job.dump_folder", kFolders},                                                        // [o]
    {"checkpoint.folder", kFolders},                                                      // [o]
    {"overwrite_output_dir",                                                              // [h]
     "overwrite removes the run of the same run_name; without it a run is never written over"},
    {"fsdp", "sharding_mode fsdp_full"},                                                     // [h]
    {"logging_dir", kFolders},                                                               // [h]
    {"warmup_ratio", "give warmup_steps; -1 is a twentieth of the run"},                     // [h]
    {"lr_scheduler_type", kCosine},                                                          // [h]
    {"lr_decay_style", kCosine},                                                             // [m]
    {"lr_decay_iters", kCosine},                                                             // [n]
    {"min_lr", "give min_lr_ratio, min_lr as a share of learning_rate: 0.1 is a tenth"},     // [n]
    {"optim", "the optimizer is AdamW; moment_dtype fp8 makes its state small"},             // [h]
    {"optimizer", "the optimizer is AdamW; moment_dtype fp8 makes its state small"},         // [m]
    {"optimizer.name", "the optimizer is AdamW; moment_dtype fp8 makes its state small"},    // [o]
    {"per_device_eval_batch_size", "evaluation has the batch_size of training"},             // [h]
    {"eval_strategy", "eval_freq N evaluates every N steps; 0: never"},                      // [h]
    {"evaluation_strategy", "eval_freq N evaluates every N steps; 0: never"},                // [h]
    {"save_strategy", "checkpoint_freq N saves every N steps, and at the end always"},       // [h]
    {"report_to", "--use_wandb and --use_tensorboard; metrics.jsonl is always written"},     // [h]
    {"deepspeed", "octavo config import FILE.json converts it; ZeRO is sharding_mode"},      // [h]
    {"zero_stage", "sharding_mode: zero1, zero2, or fsdp_full for stage 3"},                 // [c]
    {"fsdp_config", "sharding_mode fsdp_full or hybrid needs no other setting"},             // [h]
    {"use_peft", "adapters are trained when lora_rank is above 0: lora_rank 16"},            // [t]
    {"use_lora", "adapters are trained when lora_rank is above 0: lora_rank 16"},            // [c]
    {"lora_target", "lora_target_modules: names behind commas, or all"},                     // [l]
    {"finetuning_type", "lora_rank 0 trains all weights, lora_rank 16 adapters"},            // [l]
    {"stage", "what is trained follows from the data and lora_rank; leave it out"},          // [l]
    {"template", "chat_template: auto, llama3, qwen2, chatml, alpaca, …"},                   // [l]
    {"load_in_8bit", "lora_base fp8 keeps the frozen weights in one byte"},                  // [t]
    {"load_in_4bit", "4-bit weights are not implemented; lora_base fp8 has one byte each"},  // [t]
    {"assistant_only_loss", "train_on answer (the default) or all"},                         // [t]
    {"completion_only_loss", "train_on answer (the default) or all"},                        // [t]
    {"dataloader_num_workers", "batches need no workers; num_workers are threads that tokenize"},
    {"do_train", "the verb says it: octavo train; leave it out"},                          // [h]
    {"do_eval", "the verb says it: octavo eval, or eval_freq in training; leave it out"},  // [h]
    {"remove_unused_columns", "only the fields that are named are read; leave it out"},    // [h]
    {"compile", "nothing is compiled while it runs; leave it out"},                        // [n]
    {"torch_compile", "nothing is compiled while it runs; leave it out"},                  // [h]
    {"training.compile", "nothing is compiled while it runs; leave it out"},               // [o]
    {"attn_implementation", "the fastest kernel of the device is taken; leave it out"},    // [t]
    {"flash_attn", "the fastest kernel of the device is taken; leave it out"},             // [l]
    {"tensor_model_parallel_size",
     "there is no tensor parallelism; sharding_mode fsdp_full"},                              // [m]
    {"parallelism.tensor_parallel_degree", "there is no tensor parallelism; sharding_mode"},  // [o]
    {"pipeline_model_parallel_size", "there are no pipelines; sharding_mode fsdp_full"},      // [m]
    {"num_layers", "n_layer, of model_name custom or gpt2"},                                  // [m]
    {"hidden_size", "n_embd, of model_name custom or gpt2"},                                  // [m]
    {"num_attention_heads", "n_head, of model_name custom or gpt2"},                          // [m]
    {"model.flavor", "model_name; octavo names lists those that are known"},                  // [o]
    {"model.tokenizer_path", "tokenizer: a tokenizer.json, or a folder that holds one"},      // [o]
    {"training.dataset", "dataset; octavo names lists those that are known"},                 // [o]
    {"standalone", kLaunch},                                                                  // [r]
    {"rdzv_backend", kLaunch},                                                                // [r]
    {"rdzv_endpoint", "master_address and master_port of octavo launch"},                     // [r]
    {"local_rank", kLaunch},                                                                  // [h]
    {"world_size", kLaunch},                                                                  // [c]
    {"num_nodes", "nnodes of octavo launch"},                                                 // [c]
    {"name", "run_name"},                                                                     // [c]
    {"project", "wandb_project"},                                                             // [c]
    {"shuffle_data", "shuffle"},                                                              // [c]
};

template <typename Row, size_t kRows>
const Row* row_of(const Row (&table)[kRows], std::string_view theirs) {
  const auto* found = std::ranges::find(table, theirs, &Row::theirs);
  return found == std::end(table) ? nullptr : found;
}

bool names_config(std::string_view name) {
  return name == "config" || name == "config_file" || name == "job.config_file";
}

// One flag at a time, in our words.
class Translator {
 public:
  Translator(std::span<const std::string> words, const Arguments& arguments)
      : words_(words), arguments_(arguments) {}

  std::vector<std::string> run() {
    for (; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      if (!word.starts_with("--") || !translate(word)) result_.push_back(word);
    }
    return std::move(result_);
  }

 private:
  // False when the flag is none of theirs.
  bool translate(const std::string& word) {
    const size_t equals = word.find('=');
    std::string name = word.substr(2, equals == word.npos ? equals : equals - 2);
    std::ranges::replace(name, '-', '_');
    const std::string value = equals == word.npos ? "" : word.substr(equals);
    if (find_key(name) != nullptr) return false;
    if (names_config(name) && arguments_.takes_config) return take_file(name, value);
    if (const Switch* found = row_of(kSwitches, name)) return take_switch(*found, value);
    const bool negated = name.starts_with("no_");
    const std::string_view ours = our_name(negated ? name.substr(3) : name);
    if (ours.empty()) return false;
    result_.push_back(str("--", negated ? "no_" : "", ours, value));
    return true;
  }

  bool take_file(const std::string& name, const std::string& value) {
    const bool follows =
        value.empty() && at_ + 1 < words_.size() && !words_[at_ + 1].starts_with("--");
    if (value.size() < 2 && !follows)
      fail(ExitCode::kUsage, "config", "--", name, ": wanted a YAML file, found nothing");
    if (!follows) result_.push_back(value.substr(1));  // behind the =; else the next word is it
    return true;
  }

  bool take_switch(const Switch& found, const std::string& value) {
    std::string said = value.empty() ? "true" : value.substr(1);
    if (value.empty() && at_ + 1 < words_.size() && parse_bool(words_[at_ + 1]))
      said = words_[++at_];
    if (!parse_bool(said).value_or(false))
      fail(ExitCode::kUsage, "config", "--", found.theirs, ": wanted no value, found '",
           said.substr(0, 80), "'; it is --", found.ours, " ", found.value,
           ", and another value of ", found.ours, " says what is wanted instead");
    result_.push_back(str("--", found.ours, "=", found.value));
    return true;
  }

  std::span<const std::string> words_;
  const Arguments& arguments_;
  std::vector<std::string> result_;
  size_t at_ = 0;
};

}  // namespace

std::string_view our_name(std::string_view theirs) {
  const Spelling* found = row_of(kSame, theirs);
  return found == nullptr ? std::string_view{} : found->ours;
}

std::vector<std::string> in_our_words(std::span<const std::string> words,
                                      const Arguments& arguments) {
  return Translator(words, arguments).run();
}

std::string spelling_hint(std::string_view name) {
  if (name.starts_with("no_") && !our_name(name.substr(3)).empty())
    return str("here it is ", our_name(name.substr(3)), ": false");
  if (const std::string_view ours = our_name(name); !ours.empty())
    return str("here it is ", ours,
               " (octavo config import FILE converts files of other trainers)");
  if (const Switch* found = row_of(kSwitches, name))
    return str("here it is ", found->ours, ": ", found->value);
  const Hint* found = row_of(kHints, name);
  return found == nullptr ? "" : std::string(found->instead);
}

std::vector<std::string_view> foreign_names() {
  std::vector<std::string_view> names;
  for (const Spelling& row : kSame) names.push_back(row.theirs);
  for (const Switch& row : kSwitches) names.push_back(row.theirs);
  for (const Hint& row : kHints) names.push_back(row.theirs);
  return names;
}

}  // namespace octavo::config
