// torchtitan's keys, of its TOML files and of its Python configurations. Defaults and meanings:
// torchtitan/config/job_config.py of github.com/pytorch/torchtitan at 000204a4a8bf.

#include <algorithm>

#include "base/error.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;
constexpr ForeignForm kTitan = ForeignForm::kTorchtitan;

void titan_settled(Importer&, const ForeignEntry&) {}  // settle_… reads them together

template <int64_t Parallelism::*kMember>
void titan_degree(Importer& importer, const ForeignEntry& entry) {
  const int64_t degree = importer.whole(entry, -1, 1 << 20);
  if (degree < 1) return importer.leave(entry, "-1: the GPUs that the others leave");
  importer.result.parallel.*kMember = degree;
  importer.leave(entry, "parallelism; see the line of that name");
}

void titan_global_batch(Importer& importer, const ForeignEntry& entry) {
  if (importer.whole(entry, -1, 1 << 24) < 1)
    importer.leave(entry, "-1: local_batch_size times the GPUs that share the data");
}

// "float8", ["float8"], ["quantize.linear.mx"], [Float8LinearConverter.Config(…)].
std::string converter_words(const Importer& importer) {
  std::string all;
  for (const char* key : {"model.converters", "model_converters.converters"})
    if (const ForeignEntry* list = importer.entry_of(kTitan, key))
      for (const std::string& word : list->values) all += word + " ";
  std::ranges::transform(all, all.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return all;
}

bool converts_to_mx(const Importer& importer) {
  return converter_words(importer).find("mx") != std::string::npos;
}

bool converts_to_fp8(const Importer& importer) {
  const std::string words = converter_words(importer);
  return words.find("float8") != words.npos || words.find("mx") != words.npos;
}

void titan_converters(Importer& importer, const ForeignEntry& entry) {
  if (entry.values.empty() || converter_words(importer).find_first_not_of(' ') == std::string::npos)
    return importer.leave(entry, "none: BF16");
  if (!converts_to_fp8(importer))
    return importer.drop(entry, "no converter that octavo knows: BF16 is trained");
  importer.map_to(entry, "mixed_precision", "fp8");
  importer.map_to(entry, "fp8_backend", "aten", "torchao's kernels are cuBLASLt's, too");
  const bool named = std::ranges::any_of(
      std::initializer_list<const char*>{
          "float8.recipe_name", "quantize.linear.float8.recipe_name", "mx.recipe_name",
          "quantize.linear.mx.recipe_name",
          "model_converters.converters.Float8LinearConverter.recipe_name",
          "model_converters.converters.MXFP8LinearConverter.recipe_name",
          "model_converters.converters.MXLinearConverter.recipe_name"},
      [&](const char* key) { return importer.entry_of(kTitan, key) != nullptr; });
  if (named) return;
  importer.map_to(entry, "fp8_recipe", converts_to_mx(importer) ? "mxfp8" : "current",
                  converts_to_mx(importer) ? "" : "tensorwise, torchao's default");
}

void titan_recipe(Importer& importer, const ForeignEntry& entry) {
  static constexpr std::pair<std::string_view, std::string_view> kRecipes[] = {
      {"tensorwise", "current"},
      {"rowwise", "rowwise"},
      {"rowwise_with_gw_hp", "rowwise"},
      {"mxfp8", "mxfp8"},
      {"mxfp8_cublas", "mxfp8"}};
  if (!converts_to_fp8(importer))
    return importer.drop(entry, "not read: no converter of that name is in converters");
  const std::string name = importer.word(entry);
  for (const auto& [theirs, ours] : kRecipes)
    if (name.starts_with(theirs) && (name == theirs || theirs.starts_with("mxfp8"))) {
      importer.map_to(entry, "fp8_recipe", std::string(ours));
      if (name == "rowwise_with_gw_hp")
        importer.find(kRepaired, "weight_gradients_fp8", entry,
                      "their weight gradients stay in BF16", "octavo computes them in FP8, too",
                      "fp8_recipe rowwise");
      return;
    }
  importer.drop(entry, "no recipe that octavo has");
  importer.find(kRefused, "other_recipe", entry, "octavo has no such recipe",
                "it would be another training", "tensorwise, rowwise or mxfp8");
}

void titan_fp8_gather(Importer& importer, const ForeignEntry& entry) {
  if (!converts_to_fp8(importer))
    return importer.drop(entry, "not read: float8 is not in converters");
  importer.map_to(entry, "fp8_all_gather", importer.flag(entry) ? "true" : "false");
}

void titan_filter(Importer& importer, const ForeignEntry& entry) {
  if (!converts_to_fp8(importer))
    return importer.drop(entry, "not read: float8 is not in converters");
  for (const std::string& name : entry.values)
    if (name != "output" && name != "lm_head")
      return importer.drop(entry, "names of torchtitan's layers: fp8_skip has octavo's");
  importer.leave(entry, "the head is never FP8 in octavo");
}

void titan_optimizer(Importer& importer, const ForeignEntry& entry) {
  const std::string name = importer.word(entry);
  for (const std::string_view usual : {"AdamW", "Adam", "Optimizer", "OptimizersContainer"})
    if (name == usual) return importer.leave(entry, "AdamW is octavo's optimizer");
  if (name == "OptimizersInBackwardContainer" || name.ends_with("OptimizersContainer"))
    return importer.drop(entry, "AdamW, after the backward pass");
  importer.drop(entry, "octavo has AdamW");
  importer.find(kRepaired, "other_optimizer", entry, "octavo has AdamW only",
                "8 bytes of moments for each trained weight in FP32; learning rates may differ",
                "AdamW; moment_dtype bf16 or fp8 makes the moments smaller");
}

void titan_decay(Importer& importer, const ForeignEntry& entry) {
  if (importer.word(entry) == "cosine") return importer.leave(entry, "a cosine, as octavo's");
  importer.drop(entry, "octavo's learning rate falls as a cosine");
  if (!entry.is_default)
    importer.find(kRepaired, "other_schedule", entry, "octavo's learning rate falls as a cosine",
                  "another curve: a cosine is above a straight line at first, and below it later",
                  "a cosine from the end of the warm-up to the end of the run");
}

void titan_dataset(Importer& importer, const ForeignEntry& entry) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"c4", "allenai/c4"}, {"c4_validation", "allenai/c4"}};
  const std::string name = importer.word(entry);
  for (const auto& [theirs, ours] : kNames)
    if (name == theirs) {
      importer.map_to(entry, "dataset", std::string(ours));
      return importer.map_to(entry, "dataset_config", "en");
    }
  importer.drop(entry, "a name of torchtitan's list; put a file or the hub's name into dataset");
}

void titan_recompute(Importer& importer, const ForeignEntry& entry) {
  const std::string mode = importer.word(entry);
  if (mode == "full") return importer.map_to(entry, "gradient_checkpointing", "true");
  importer.map_to(entry, "gradient_checkpointing", "false");
  if (mode != "selective") return;
  importer.result.recomputes_parts = true;
  importer.find(kNote, "selective_recompute", entry,
                "cheap operations are computed again, and GEMMs kept; octavo has all or nothing",
                "more memory than theirs in octavo's forecast, a little less time in octavo's run",
                "gradient_checkpointing: true where memory is short");
}

void titan_type(Importer& importer, const ForeignEntry& entry) {
  const std::string type = importer.word(entry);
  if (type == "float32") return importer.leave(entry, "masters are FP32 in octavo");
  if (type != "bfloat16") return importer.drop(entry, "no such type");
  for (const char* key : {"master_dtype", "moment_dtype", "gradient_dtype"})
    importer.map_to(entry, key, "bf16", "rounded stochastically, where theirs rounds to nearest");
}

void titan_reduce(Importer& importer, const ForeignEntry& entry) {
  importer.map_to(entry, "grad_reduce_dtype", importer.word(entry) == "bfloat16" ? "bf16" : "fp32");
}

void titan_compute(Importer& importer, const ForeignEntry& entry) {
  if (converts_to_fp8(importer)) return importer.leave(entry, "what is not FP8 is always BF16");
  importer.map_to(entry, "mixed_precision", importer.word(entry) == "float32" ? "fp32" : "bf16");
}

void titan_compile(Importer& importer, const ForeignEntry& entry) {
  importer.result.stack = importer.flag(entry) ? "compiled" : "eager";
  importer.leave(entry, "octavo is compiled; forecasts of torchtitan's own speed use it");
}

bool titan_is_on(const Importer& importer, std::initializer_list<const char*> keys, bool usual) {
  for (const char* key : keys)
    if (importer.entry_of(kTitan, key) != nullptr) return importer.is_on(kTitan, key);
  return usual;
}

// Of a Python configuration, a section that is there is meant.
bool is_python_config(const Importer& importer) {
  return importer.entry_of(kTitan, "config_name") != nullptr;
}

void titan_interval(Importer& importer, const ForeignEntry& entry) {
  if (!titan_is_on(importer, {"checkpoint.enable", "checkpoint.enable_checkpoint"}, false))
    return importer.map_to(entry, "checkpoint_freq", "0",
                           "checkpoint.enable is off; one at the end all the same");
  importer.map_to(entry, "checkpoint_freq", entry.values);
}

void titan_eval_freq(Importer& importer, const ForeignEntry& entry) {
  if (!titan_is_on(importer, {"validation.enable", "validation.enabled", "validator.enable"},
                   is_python_config(importer) && !entry.is_default))
    return importer.map_to(entry, "eval_freq", "0", "validation.enable is off");
  importer.map_to(entry, "eval_freq", entry.values);
}

void titan_offload(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  importer.drop(entry, "octavo keeps everything on the GPU");
  importer.find(kRepaired, "offload", entry,
                "weights, gradients and moments wait in the host's memory",
                "they cross PCIe in every step: of an 8B model half a second each way and more",
                "all on the GPU; moment_dtype fp8 and master_dtype bf16 where memory is short");
}

constexpr std::string_view kTitanDegreeNote = "no such parallelism: the same GPUs, fully sharded";
constexpr std::string_view kTitanCopiesNote = "shard: fsdp_full; replicate: ddp; both: hybrid";
constexpr std::string_view kTitanFlavorNote = "the published model of that size; init_from random";
constexpr Mapping kTorchtitanKeys[] = {
    {"model.name", "model_name init_from", kTitanFlavorNote, titan_settled},
    {"model.flavor", "model_name init_from", kTitanFlavorNote, titan_settled},
    {"model_spec.0", "model_name init_from", kTitanFlavorNote, titan_settled},
    {"hf_assets_path", "model_name init_from", kTitanFlavorNote, titan_settled},
    {"config_name", "model_name init_from", "of a Python file, the name before _", titan_settled},
    {"model.converters", "mixed_precision fp8_recipe fp8_backend", "float8, mx: fp8",
     titan_converters},
    {"model_converters.converters", "mixed_precision fp8_recipe fp8_backend", "the same",
     titan_converters},
    {"training.local_batch_size", "batch_size", "", titan_settled},
    {"training.batch_size", "batch_size", "its name in older versions", titan_settled},
    {"training.global_batch_size", "target_effective_batch_size", "", titan_global_batch},
    {"training.seq_len", "max_seq_length", ""},
    {"training.max_norm", "max_grad_norm", ""},
    {"training.steps", "max_steps", ""},
    {"training.dataset", "dataset dataset_config", "c4: allenai/c4, en", titan_dataset},
    {"dataloader.dataset", "dataset dataset_config", "c4: allenai/c4, en", titan_dataset},
    {"training.dataset_path", "dataset", ""},
    {"dataloader.dataset_path", "dataset", ""},
    {"training.seed", "seed", ""},
    {"debug.seed", "seed", ""},
    {"training.dtype", "master_dtype moment_dtype gradient_dtype", "bfloat16: bf16", titan_type},
    {"training.mixed_precision_param", "mixed_precision", "bf16 unless float32", titan_compute},
    {"training.mixed_precision_reduce", "grad_reduce_dtype", "", titan_reduce},
    {"training.enable_cpu_offload", "", "dropped; everything stays on the GPU", titan_offload},
    {"training.compile", "", "for the forecast of their speed", titan_compile},
    {"compile.enable", "", "for the forecast of their speed", titan_compile},
    {"optimizer.name", "", "AdamW always", titan_optimizer},
    {"optimizer.class", "", "AdamW always", titan_optimizer},
    {"optimizer.lr", "learning_rate", ""},
    {"optimizer.beta1", "beta1", ""},
    {"optimizer.beta2", "beta2", ""},
    {"optimizer.eps", "adam_eps", ""},
    {"optimizer.weight_decay", "weight_decay", ""},
    {"lr_scheduler.warmup_steps", "warmup_steps", "linear from 0"},
    {"lr_scheduler.min_lr_factor", "min_lr_ratio", ""},
    {"lr_scheduler.lr_min", "min_lr_ratio", "its name in older versions"},
    {"lr_scheduler.decay_type", "", "a cosine always", titan_decay},
    {"parallelism.data_parallel_replicate_degree", "sharding_mode", kTitanCopiesNote,
     titan_degree<&Parallelism::replicate>},
    {"parallelism.data_parallel_shard_degree", "sharding_mode", kTitanCopiesNote,
     titan_degree<&Parallelism::shard>},
    {"parallelism.tensor_parallel_degree", "", kTitanDegreeNote,
     titan_degree<&Parallelism::tensor>},
    {"parallelism.pipeline_parallel_degree", "", kTitanDegreeNote,
     titan_degree<&Parallelism::pipeline>},
    {"parallelism.context_parallel_degree", "", kTitanDegreeNote,
     titan_degree<&Parallelism::context>},
    {"parallelism.expert_parallel_degree", "", kTitanDegreeNote,
     titan_degree<&Parallelism::expert>},
    {"activation_checkpoint.mode", "gradient_checkpointing", "full: true; selective: a note",
     titan_recompute},
    {"float8.recipe_name", "fp8_recipe", "tensorwise: current", titan_recipe},
    {"quantize.linear.float8.recipe_name", "fp8_recipe", "the same", titan_recipe},
    {"mx.recipe_name", "fp8_recipe", "mxfp8", titan_recipe},
    {"quantize.linear.mx.recipe_name", "fp8_recipe", "mxfp8", titan_recipe},
    {"model_converters.converters.Float8LinearConverter.recipe_name", "fp8_recipe", "the same",
     titan_recipe},
    {"model_converters.converters.MXFP8LinearConverter.recipe_name", "fp8_recipe", "mxfp8",
     titan_recipe},
    {"model_converters.converters.MXLinearConverter.recipe_name", "fp8_recipe", "mxfp8",
     titan_recipe},
    {"float8.enable_fsdp_float8_all_gather", "fp8_all_gather", "", titan_fp8_gather},
    {"quantize.linear.float8.enable_fsdp_float8_all_gather", "fp8_all_gather", "",
     titan_fp8_gather},
    {"model_converters.converters.Float8LinearConverter.enable_fsdp_float8_all_gather",
     "fp8_all_gather", "", titan_fp8_gather},
    {"float8.filter_fqns", "", "the head is never FP8; other names: fp8_skip", titan_filter},
    {"quantize.linear.float8.filter_fqns", "", "the same", titan_filter},
    {"quantize.linear.mx.filter_fqns", "", "the same", titan_filter},
    {"mx.filter_fqns", "", "the same", titan_filter},
    {"model_converters.converters.Float8LinearConverter.filter_fqns", "", "the same", titan_filter},
    {"checkpoint.folder", "checkpoint_dir", ""},
    {"checkpoint.interval", "checkpoint_freq", "0 when checkpoints are off", titan_interval},
    {"checkpoint.keep_latest_k", "keep_checkpoints", ""},
    {"validation.freq", "eval_freq", "0 when validation is off", titan_eval_freq},
    {"validator.freq", "eval_freq", "", titan_eval_freq},
    {"metrics.log_freq", "log_freq", ""},
    {"metrics.enable_tensorboard", "use_tensorboard", ""},
    {"metrics.enable_wandb", "use_wandb", ""},
};

}  // namespace

std::span<const Mapping> torchtitan_mappings() {
  return kTorchtitanKeys;
}

std::span<const Mapping> torchtitan_drops() {
  static constexpr Mapping kTable[] = {
      {"job.*", "", "a description, and where torchtitan writes; run_name, checkpoint_dir"},
      {"profiling.*", "", "trace: FILE writes a timeline that Perfetto opens"},
      {"metrics.*", "", "metrics.jsonl is always written"},
      {"model.*", "", "the tokenizer and the layers are the model's own"},
      {"model_spec.*", "", "the layers are the model's own"},
      {"optimizer.*", "", "octavo's AdamW is fused and decoupled; no such choice"},
      {"lr_scheduler.*", "", "the rate falls from the end of the warm-up on"},
      {"training.*", "", "a detail of PyTorch; no cost"},
      {"dataloader.*", "", "octavo's data keys say it"},
      {"parallelism.*", "", "octavo's sharding plans its own order; no cost"},
      {"checkpoint.*", "", "octavo's checkpoints have one form; resume says how to go on"},
      {"activation_checkpoint.*", "", "all blocks or none"},
      {"float8.*", "", "scales are made in one pass already; no cost"},
      {"mx.*", "", "a detail of torchao's kernels"},
      {"quantize.*", "",
       "linear layers of the blocks are FP8; experts of such a file are not read"},
      {"model_converters.*", "", "a detail of torchao's kernels"},
      {"compile.*", "", "octavo is compiled; no cost"},
      {"validation.*", "", "val_fraction, val_split_name and eval_batches say it"},
      {"validator.*", "", "val_fraction, val_split_name and eval_batches say it"},
      {"comm.*", "", "dist_timeout says how long a rank waits"},
      {"memory_estimation.*", "", "octavo plan is the counterpart"},
      {"fault_tolerance.*", "", "no torchft: a lost rank ends the step, and resume goes on"},
      {"debug.*", "", "deterministic is the counterpart; on CPUs runs are so unless told"},
      {"experimental.*", "", "code of torchtitan's own"},
      {"tokenizer.*", "", "the model's own"},
      {"loss.*", "", "cross entropy, in FP32"},
  };
  return kTable;
}

std::span<const ForeignDefault> torchtitan_defaults() {
  static constexpr ForeignDefault kDefaults[] = {
      {"training.local_batch_size", "8"},
      {"training.seq_len", "2048"},
      {"training.steps", "10000"},
      {"optimizer.lr", "0.0008"},
      {"lr_scheduler.warmup_steps", "200"},
      {"lr_scheduler.decay_type", "linear"},
      {"lr_scheduler.min_lr_factor", "0"},
      {"training.mixed_precision_param", "bfloat16"},
      {"checkpoint.interval", "500"},
      {"training.mixed_precision_reduce", "float32"},
      {"validation.freq", "10"},
  };
  return kDefaults;
}

}  // namespace octavo::migrate
