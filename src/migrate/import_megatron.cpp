// Megatron's arguments, from a launch script, a file of arguments or its YAML. Defaults and
// meanings: megatron/training/arguments.py of github.com/NVIDIA/Megatron-LM at d98e8a64ddf3.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;
constexpr ForeignForm kMega = ForeignForm::kMegatron;
constexpr int64_t kMostSamples = int64_t{1} << 50;

void mega_settled(Importer&, const ForeignEntry&) {}  // settle_… reads them together

template <int64_t Parallelism::*kMember>
void mega_degree(Importer& importer, const ForeignEntry& entry) {
  importer.result.parallel.*kMember = importer.whole(entry, 1, 1 << 20);
  importer.leave(entry, "parallelism; see the line of that name");
}

// The samples of a step; 0 when no file says.
int64_t mega_global(const Importer& importer) {
  const ForeignEntry* global = importer.entry_of(kMega, "global-batch-size");
  return global == nullptr ? 0 : importer.whole(*global, 1, 1 << 24);
}

void mega_samples(Importer& importer, const ForeignEntry& entry, const char* ours) {
  const int64_t samples = importer.whole(entry, 0, kMostSamples), step = mega_global(importer);
  if (step == 0) return importer.drop(entry, "a number of samples, and no global-batch-size");
  importer.map_to(entry, ours, config::print_number((samples + step - 1) / step),
                  str("samples over the ", step, " of a step"));
}

void mega_train_samples(Importer& importer, const ForeignEntry& entry) {
  mega_samples(importer, entry, "max_steps");
}

void mega_warmup_samples(Importer& importer, const ForeignEntry& entry) {
  mega_samples(importer, entry, "warmup_steps");
}

void mega_warmup_fraction(Importer& importer, const ForeignEntry& entry) {
  const double share = importer.number(entry, 0, 1);
  for (const char* key : {"lr-decay-iters", "train-iters"})
    if (const ForeignEntry* length = importer.entry_of(kMega, key)) {
      const auto steps = static_cast<double>(importer.whole(*length, 0, kMostSamples));
      return importer.map_to(entry, "warmup_steps",
                             config::print_number(static_cast<int64_t>(std::ceil(share * steps))),
                             str("of ", key));
    }
  importer.drop(entry, "a share of a length that no file says in steps");
}

void mega_warmup_iters(Importer& importer, const ForeignEntry& entry) {
  for (const char* other : {"lr-warmup-samples", "lr-warmup-fraction"})
    if (importer.whole(entry, 0, kMostSamples) == 0 && importer.entry_of(kMega, other) != nullptr)
      return importer.leave(entry, str(other, " says it"));
  importer.map_to(entry, "warmup_steps", entry.values);
}

void mega_min_lr(Importer& importer, const ForeignEntry& entry) {
  const ForeignEntry* top = importer.entry_of(kMega, "lr");
  if (top == nullptr) return importer.drop(entry, "no lr that it could be a share of");
  const double peak = importer.number(*top, 1e-30, 10);
  importer.map_to(entry, "min_lr_ratio",
                  config::print_number(importer.number(entry, 0, peak) / peak), "of lr");
}

void mega_decay(Importer& importer, const ForeignEntry& entry) {
  const std::string style = importer.word(entry);
  if (style == "cosine") return importer.leave(entry, "a cosine, as octavo's");
  importer.drop(entry, "octavo's learning rate falls as a cosine");
  importer.find(kRepaired, "other_schedule", entry, "octavo's learning rate falls as a cosine",
                "another curve: a cosine is above a straight line at first, and below it later",
                "a cosine; min_lr_ratio 1 for a constant rate");
}

bool mega_wants_fp8(const Importer& importer) {
  for (const char* key : {"fp8-format", "fp8"}) {
    const std::string word = importer.word_of(kMega, key);
    if (!word.empty() && word != "false" && word != "null") return true;
  }
  return importer.is_on(kMega, "fp8-hybrid") || importer.is_on(kMega, "fp8-e4m3");
}

void mega_fp8(Importer& importer, const ForeignEntry& entry) {
  const std::string format = importer.word(entry);
  if (format == "false") return importer.leave(entry, "off");
  importer.map_to(entry, "mixed_precision", "fp8");
  const bool e4m3 = format == "e4m3" || entry.path == "fp8-e4m3";
  const std::string recipe = importer.word_of(kMega, "fp8-recipe");
  if (recipe.empty() || recipe == "delayed" || recipe == "tensorwise")
    importer.map_to(entry, "fp8_format", e4m3 ? "e4m3" : "hybrid");
  importer.map_to(entry, "fp8_backend", "te");
  if (recipe.empty()) importer.map_to(entry, "fp8_recipe", "delayed", "Megatron's default");
}

void mega_recipe(Importer& importer, const ForeignEntry& entry) {
  static constexpr std::pair<std::string_view, std::string_view> kRecipes[] = {
      {"delayed", "delayed"},
      {"tensorwise", "current"},
      {"blockwise", "blockwise"},
      {"mxfp8", "mxfp8"}};
  if (!mega_wants_fp8(importer)) return importer.drop(entry, "not read: fp8-format is not given");
  const std::string name = importer.word(entry);
  for (const auto& [theirs, ours] : kRecipes)
    if (name == theirs) return importer.map_to(entry, "fp8_recipe", std::string(ours));
  importer.drop(entry, "no recipe that octavo has");
  importer.find(kRefused, "other_recipe", entry, "octavo has no such recipe",
                "it would be another training", "delayed, tensorwise, blockwise or mxfp8");
}

template <const char* kOurs>
void mega_fp8_detail(Importer& importer, const ForeignEntry& entry) {
  if (!mega_wants_fp8(importer)) return importer.leave(entry, "not read: FP8 is off");
  importer.map_to(entry, kOurs, entry.values);
}
constexpr char kMegaMargin[] = "fp8_margin", kMegaInterval[] = "fp8_interval",
               kMegaHistory[] = "fp8_amax_history", kMegaAlgo[] = "fp8_amax_algo";

void mega_bf16(Importer& importer, const ForeignEntry& entry) {
  if (mega_wants_fp8(importer)) return importer.leave(entry, "what is not FP8 is always BF16");
  if (importer.flag(entry)) return importer.map_to(entry, "mixed_precision", "bf16");
  if (importer.is_on(kMega, "fp16")) return;
  importer.map_to(entry, "mixed_precision", "fp32", "neither bf16 nor fp16 nor fp8 is on");
}

void mega_document_mask(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "document_mask", importer.flag(entry) ? "true" : "false");
}

void mega_fp16(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  if (mega_wants_fp8(importer)) return importer.drop(entry, "octavo has BF16 in its place");
  importer.map_to(entry, "mixed_precision", "bf16");
  importer.find(kRepaired, "fp16", entry, "octavo has no FP16",
                "BF16 has 3 bits less of precision and needs no loss scaling",
                "mixed_precision bf16");
}

void mega_ends_bf16(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  importer.map_to(entry, "fp8_skip", std::vector<std::string>{"first", "last"});
}

void mega_reduce(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "grad_reduce_dtype", importer.flag(entry) ? "bf16" : "fp32");
}

// --eval-iters 0 is how Megatron's scripts turn evaluation off.
bool mega_evaluates(const Importer& importer) {
  const ForeignEntry* batches = importer.entry_of(kMega, "eval-iters");
  return batches == nullptr || importer.whole(*batches, 0, kMostSamples) > 0;
}

void mega_eval_interval(Importer& importer, const ForeignEntry& entry) {
  if (!mega_evaluates(importer)) return importer.leave(entry, "not read: eval-iters is 0");
  importer.map_to(entry, "eval_freq", entry.values);
}

void mega_eval_iters(Importer& importer, const ForeignEntry& entry) {
  if (!mega_evaluates(importer)) return importer.map_to(entry, "eval_freq", "0", "no evaluation");
  importer.map_to(entry, "eval_batches", entry.values);
}

void mega_recompute(Importer& importer, const ForeignEntry& entry) {
  if (importer.word(entry) == "full")
    return importer.map_to(entry, "gradient_checkpointing", "true");
  importer.map_to(entry, "gradient_checkpointing", "false");
  importer.result.recomputes_parts = true;
  importer.find(kNote, "selective_recompute", entry,
                "attention is computed again, and GEMMs kept; octavo has all or nothing",
                "more memory than theirs in octavo's forecast", "gradient_checkpointing: true");
}

void mega_timeout(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "dist_timeout", config::print_number(60 * importer.whole(entry, 1, 16000)),
                  "in seconds");
}

void mega_load(Importer& importer, const ForeignEntry& entry) {
  importer.drop(entry,
                "their checkpoints are not octavo's: start from the exported model "
                "(init_from); the optimizer's state is lost");
}

void mega_tensorboard(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "use_tensorboard", "true", "events go into the run's folder");
}

// A blend is "WEIGHT PREFIX WEIGHT PREFIX …": octavo's weights, of other files.
void mega_data(Importer& importer, const ForeignEntry& entry) {
  std::string why = "Megatron's indexed files are not read: give the texts they were made from";
  std::string entries;
  for (size_t i = 0; i + 1 < entry.values.size(); i += 2)
    if (config::parse_number<double>(entry.values[i]))
      entries += str(entries.empty() ? "" : ", ", "{path: TEXT OF ", entry.values[i + 1],
                     ", weight: ", entry.values[i], "}");
  if (!entries.empty()) why += str(", with their weights: dataset: [", entries, "]");
  importer.drop(entry, why);
}

void mega_optimizer(Importer& importer, const ForeignEntry& entry) {
  if (importer.word(entry) == "adam") return importer.leave(entry, "AdamW is octavo's optimizer");
  importer.drop(entry, "octavo has AdamW");
  importer.find(kRepaired, "other_optimizer", entry, "octavo has AdamW only",
                "8 bytes of moments for each trained weight in FP32; learning rates may differ",
                "AdamW; moment_dtype bf16 or fp8 makes the moments smaller");
}

constexpr std::string_view kMegaDegreeNote = "no such parallelism: the same GPUs, fully sharded";
constexpr std::string_view kMegaSizesNote = "a published model of these sizes, or a config.json";
constexpr std::string_view kMegaShardedNote = "ddp, zero1 with the distributed optimizer";
constexpr std::string_view kMegaGpusNote = "GPUs of the forecast; octavo launch starts the ranks";
constexpr std::string_view kMegaRefuseNote =
    "refused: experts of such a file are not read, latent attention is not here";
constexpr Mapping kMegatronKeys[] = {
    {"num-layers", "model_name init_from", kMegaSizesNote, mega_settled},
    {"hidden-size", "model_name", kMegaSizesNote, mega_settled},
    {"ffn-hidden-size", "model_name", kMegaSizesNote, mega_settled},
    {"num-attention-heads", "model_name", kMegaSizesNote, mega_settled},
    {"group-query-attention", "model_name", kMegaSizesNote, mega_settled},
    {"num-query-groups", "model_name", kMegaSizesNote, mega_settled},
    {"kv-channels", "model_name", kMegaSizesNote, mega_settled},
    {"max-position-embeddings", "model_name", kMegaSizesNote, mega_settled},
    {"position-embedding-type", "model_name", kMegaSizesNote, mega_settled},
    {"use-rotary-position-embeddings", "model_name", kMegaSizesNote, mega_settled},
    {"rotary-base", "model_name", kMegaSizesNote, mega_settled},
    {"rotary-percent", "model_name", "1 alone can be trained", mega_settled},
    {"normalization", "model_name", "RMSNorm in Llama, LayerNorm in GPT-2", mega_settled},
    {"norm-epsilon", "model_name", kMegaSizesNote, mega_settled},
    {"swiglu", "model_name", kMegaSizesNote, mega_settled},
    {"squared-relu", "model_name", "no such model to train", mega_settled},
    {"untie-embeddings-and-output-weights", "model_name", kMegaSizesNote, mega_settled},
    {"disable-bias-linear", "model_name", kMegaSizesNote, mega_settled},
    {"add-qkv-bias", "model_name", kMegaSizesNote, mega_settled},
    {"add-bias-linear", "model_name", kMegaSizesNote, mega_settled},
    {"activation-func", "model_name", kMegaSizesNote, mega_settled},
    {"gated-linear-unit", "model_name", kMegaSizesNote, mega_settled},
    {"layernorm-epsilon", "model_name", kMegaSizesNote, mega_settled},
    {"qk-layernorm", "model_name", "no such model to train", mega_settled},
    {"vocab-size", "model_name", kMegaSizesNote, mega_settled},
    {"padded-vocab-size", "model_name", kMegaSizesNote, mega_settled},
    {"tokenizer-type", "model_name", "its vocabulary, where vocab-size is not given", mega_settled},
    {"tokenizer-model", "model_name", "the same", mega_settled},
    {"num-experts", "", kMegaRefuseNote, mega_settled},
    {"num-moe-experts", "", kMegaRefuseNote, mega_settled},
    {"multi-latent-attention", "", kMegaRefuseNote, mega_settled},
    {"seq-length", "max_seq_length", ""},
    {"micro-batch-size", "batch_size", "", mega_settled},
    {"global-batch-size", "target_effective_batch_size", "", mega_settled},
    {"train-iters", "max_steps", ""},
    {"train-samples", "max_steps", "over global-batch-size", mega_train_samples},
    {"lr", "learning_rate", ""},
    {"min-lr", "min_lr_ratio", "over lr", mega_min_lr},
    {"lr-decay-style", "", "a cosine always", mega_decay},
    {"lr-warmup-iters", "warmup_steps", "", mega_warmup_iters},
    {"lr-warmup-samples", "warmup_steps", "over global-batch-size", mega_warmup_samples},
    {"lr-warmup-fraction", "warmup_steps", "of lr-decay-iters or train-iters",
     mega_warmup_fraction},
    {"weight-decay", "weight_decay", ""},
    {"adam-beta1", "beta1", ""},
    {"adam-beta2", "beta2", ""},
    {"adam-eps", "adam_eps", ""},
    {"clip-grad", "max_grad_norm", ""},
    {"optimizer", "", "AdamW always", mega_optimizer},
    {"seed", "seed", ""},
    {"bf16", "mixed_precision", "without it and fp16: fp32", mega_bf16},
    {"fp16", "mixed_precision", "bf16", mega_fp16},
    {"fp8-format", "mixed_precision fp8_format fp8_backend fp8_recipe", "", mega_fp8},
    {"fp8", "mixed_precision fp8_format fp8_backend fp8_recipe", "its name in YAML", mega_fp8},
    {"fp8-hybrid", "mixed_precision fp8_format fp8_backend fp8_recipe", "older", mega_fp8},
    {"fp8-e4m3", "mixed_precision fp8_format fp8_backend fp8_recipe", "older", mega_fp8},
    {"fp8-recipe", "fp8_recipe", "tensorwise: current", mega_recipe},
    {"fp8-margin", "fp8_margin", "", mega_fp8_detail<kMegaMargin>},
    {"fp8-interval", "fp8_interval", "", mega_fp8_detail<kMegaInterval>},
    {"fp8-amax-history-len", "fp8_amax_history", "", mega_fp8_detail<kMegaHistory>},
    {"fp8-amax-compute-algo", "fp8_amax_algo", "", mega_fp8_detail<kMegaAlgo>},
    {"first-last-layers-bf16", "fp8_skip", "first, last", mega_ends_bf16},
    {"grad-reduce-in-bf16", "grad_reduce_dtype", "bf16", mega_reduce},
    {"recompute-granularity", "gradient_checkpointing", "full: true; selective: a note",
     mega_recompute},
    {"tensor-model-parallel-size", "", kMegaDegreeNote, mega_degree<&Parallelism::tensor>},
    {"pipeline-model-parallel-size", "", kMegaDegreeNote, mega_degree<&Parallelism::pipeline>},
    {"context-parallel-size", "", kMegaDegreeNote, mega_degree<&Parallelism::context>},
    {"expert-model-parallel-size", "", kMegaDegreeNote, mega_degree<&Parallelism::expert>},
    {"use-distributed-optimizer", "sharding_mode", kMegaShardedNote, mega_settled},
    {"use-megatron-fsdp", "sharding_mode", "fsdp_full", mega_settled},
    {"use-custom-fsdp", "sharding_mode", "fsdp_full", mega_settled},
    {"use-torch-fsdp2", "sharding_mode", "fsdp_full", mega_settled},
    {"data-parallel-sharding-strategy", "sharding_mode",
     "optim: zero1, optim_grads: zero2, optim_grads_params: fsdp_full", mega_settled},
    {"launch nproc-per-node", "", kMegaGpusNote, mega_settled},
    {"launch nnodes", "", kMegaGpusNote, mega_settled},
    {"launch nodes", "", kMegaGpusNote, mega_settled},
    {"launch gpus-per-node", "", kMegaGpusNote, mega_settled},
    {"launch ntasks-per-node", "", kMegaGpusNote, mega_settled},
    {"world-size", "", kMegaGpusNote, mega_settled},
    {"devices", "", "NeMo's GPUs of a node", mega_settled},
    {"num-nodes", "", "NeMo's nodes", mega_settled},
    {"save", "checkpoint_dir", ""},
    {"load", "", "dropped: export it first", mega_load},
    {"save-interval", "checkpoint_freq", ""},
    {"eval-interval", "eval_freq", "not with eval-iters 0", mega_eval_interval},
    {"eval-iters", "eval_batches eval_freq", "0: eval_freq 0", mega_eval_iters},
    {"log-interval", "log_freq", "metrics.jsonl has every step"},
    {"tensorboard-dir", "use_tensorboard", "true", mega_tensorboard},
    {"wandb-project", "wandb_project", ""},
    {"wandb-exp-name", "run_name", ""},
    {"distributed-timeout-minutes", "dist_timeout", "in seconds", mega_timeout},
    {"data-path", "", "dropped: give the texts", mega_data},
    {"reset-attention-mask", "document_mask", "", mega_document_mask},
};

}  // namespace

std::span<const Mapping> megatron_mappings() {
  return kMegatronKeys;
}

std::span<const ForeignDefault> megatron_defaults() {
  static constexpr ForeignDefault kDefaults[] = {
      {"weight-decay", "0.01"}, {"adam-beta2", "0.999"},   {"seed", "1234"},
      {"min-lr", "0"},          {"lr-warmup-iters", "0"},  {"bf16", "false"},
      {"log-interval", "100"},  {"eval-interval", "1000"},
  };
  return kDefaults;
}

}  // namespace octavo::migrate
