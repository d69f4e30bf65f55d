// LLaMA-Factory's keys of evaluation, output, sharding and precision.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "migrate/import_llamafactory.h"

namespace octavo::migrate::llama_factory {
namespace {

using enum Finding::Verdict;
constexpr ForeignForm kLlama = ForeignForm::kLlamaFactory;

// Steps from one of something to the next. Below 1 Trainer takes them as a share of the run's.
void map_interval(Importer& importer, const ForeignEntry& entry, std::string_view ours,
                  std::string_view note = "") {
  const double steps = importer.number(entry, 0, 1e12), length = given_steps(importer);
  if (steps != std::floor(steps) && steps > 1)
    return importer.map_to(entry, ours, entry.values, note);  // which Trainer refuses, too
  if (steps == 0 || steps >= 1)
    return importer.map_to(entry, ours, config::print_number(static_cast<int64_t>(steps)), note);
  if (length > 0)
    return importer.map_to(entry, ours,
                           config::print_number(static_cast<int64_t>(std::ceil(steps * length))),
                           "a share of max_steps");
  importer.drop(entry, "a share of a length that only the data says");
  importer.find(kRepaired, "share_of_steps", entry,
                "a share of a length that only the data says; octavo counts steps",
                "more or fewer of them than theirs",
                str(ours, " as octavo has it; write the steps when they are known"));
}

}  // namespace

int64_t given_steps(const Importer& importer) {
  const ForeignEntry* steps = importer.entry_of(kLlama, "max_steps");
  return steps == nullptr ? 0 : std::max<int64_t>(0, importer.whole(*steps, -1, int64_t{1} << 40));
}

void logging_steps(Importer& importer, const ForeignEntry& entry) {
  map_interval(importer, entry, "log_freq", "metrics.jsonl has every step");
}

std::vector<std::string> comma_parts(const ForeignEntry& entry) {
  std::vector<std::string> parts;
  for (const std::string& value : entry.values)
    for (const std::string& part : split(value, ','))
      if (const std::string_view name = trim(part); !name.empty()) parts.emplace_back(name);
  return parts;
}

// ---- evaluation, output

void val_size(Importer& importer, const ForeignEntry& entry) {
  const double size = importer.number(entry, 0, 1e12);
  if (size < 1) return importer.map_to(entry, "val_fraction", entry.values);
  importer.map_to(entry, "val_fraction", "0.1");
  importer.find(kRepaired, "validation_count", entry, "a number of rows; octavo keeps a share",
                "more or fewer rows are kept from training", "val_fraction 0.1; correct the share");
}

void eval_strategy(Importer& importer, const ForeignEntry& entry) {
  const std::string when = importer.word(entry);
  if (when == "no" || when == "false") return importer.map_to(entry, "eval_freq", "0");
  if (when == "steps") return importer.leave(entry, "eval_steps says it");
  importer.drop(entry, "octavo evaluates every eval_freq steps, 250 unless told");
}

void eval_steps(Importer& importer, const ForeignEntry& entry) {
  std::string when = importer.word_of(kLlama, "eval_strategy");
  if (when.empty()) when = importer.word_of(kLlama, "evaluation_strategy");
  if (when == "no" || when == "false") return importer.drop(entry, "not read: eval_strategy no");
  const ForeignEntry* kept = importer.entry_of(kLlama, "val_size");
  if (kept == nullptr || importer.number(*kept, 0, 1e12) > 0)
    return map_interval(importer, entry, "eval_freq");
  importer.map_to(entry, "eval_freq", "0");
  importer.find(kRepaired, "nothing_to_evaluate", entry, "val_size is 0, and nothing is kept",
                "no validation loss", "eval_freq 0; give val_size for a validation loss");
}

void save_strategy(Importer& importer, const ForeignEntry& entry) {
  const std::string when = importer.word(entry);
  if (when == "no" || when == "false")
    return importer.map_to(entry, "checkpoint_freq", "0", "one at the end all the same");
  if (when == "steps") return importer.leave(entry, "save_steps says it");
  importer.drop(entry, "octavo saves every checkpoint_freq steps, and at the end");
}

void save_steps(Importer& importer, const ForeignEntry& entry) {
  const std::string when = importer.word_of(kLlama, "save_strategy");
  if (!when.empty() && when != "steps") return importer.drop(entry, "not read: save_strategy");
  map_interval(importer, entry, "checkpoint_freq");
}

void resume(Importer& importer, const ForeignEntry& entry) {
  const std::optional<bool> on = config::parse_bool(importer.word(entry));
  if (on && !*on) return importer.leave(entry, "off");
  if (on) return importer.map_to(entry, "resume", "latest");
  importer.drop(entry,
                "their checkpoints are not octavo's: start from the exported model "
                "(init_from); the optimizer's state is lost");
}

void report_to(Importer& importer, const ForeignEntry& entry) {
  for (const std::string& name : comma_parts(entry)) {
    if (name == "wandb" || name == "all") importer.map_to(entry, "use_wandb", "true");
    if (name == "tensorboard" || name == "all") importer.map_to(entry, "use_tensorboard", "true");
    if (name == "none") importer.leave(entry, "metrics.jsonl is always written");
    if (name != "wandb" && name != "tensorboard" && name != "all" && name != "none")
      importer.drop(entry, "octavo writes metrics.jsonl; no such service");
  }
}

// ---- many GPUs

void fsdp(Importer& importer, const ForeignEntry& entry) {
  static constexpr std::pair<std::string_view, std::string_view> kModes[] = {
      {"full_shard", "fsdp_full"},
      {"shard_grad_op", "zero2"},
      {"hybrid_shard", "hybrid"},
      {"no_shard", "ddp"}};
  const std::string words = join(entry.values, " ");
  for (const auto& [theirs, ours] : kModes)
    if (words.find(theirs) != words.npos)
      return importer.map_to(entry, "sharding_mode", std::string(ours));
  importer.drop(entry, "no sharding that octavo knows");
}

void deepspeed(Importer& importer, const ForeignEntry& entry) {
  if (const ForeignFile* json = importer.file_of(ForeignForm::kDeepSpeed); json != nullptr) {
    importer.leave(entry, "imported from " + json->shown);
    if (fs::path(importer.word(entry)).filename() != fs::path(json->path).filename())
      importer.find(kNote, "other_deepspeed_file", entry,
                    "the JSON that was given has another name",
                    "the run may have used other settings", "make sure that it is the same file");
    return;
  }
  importer.drop(entry, "its file was not found");
  importer.find(kNote, "deepspeed_file", entry, "no such file here, nor beside the YAML",
                "sharding, clipping and batch sizes in it are not seen",
                "name it too: octavo config import TRAIN.yaml DEEPSPEED.json");
}

// ---- precision

void fp8(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  importer.map_to(entry, "mixed_precision", "fp8");
  if (!importer.is_on(kLlama, "bf16"))
    importer.find(kRepaired, "fp8_without_bf16", entry,
                  "bf16: true is missing, so what is not FP8 runs in FP32 there",
                  "attention, norms and the head at FP32 speed, and activations twice as large",
                  "in octavo the rest is always BF16");
}

void bf16(Importer& importer, const ForeignEntry& entry) {
  const bool on = importer.flag(entry), fp16 = importer.is_on(kLlama, "fp16");
  if (on && fp16)
    importer.find(kRefused, "two_precisions", entry, "fp16: true is given too",
                  "Hugging Face's Trainer stops at it", "keep bf16 and remove fp16");
  if (wants_fp8(importer)) return importer.leave(entry, "what is not FP8 is always BF16");
  if (on) return importer.map_to(entry, "mixed_precision", "bf16");
  if (fp16 || importer.is_on(kLlama, "pure_bf16")) return importer.leave(entry, "off");
  importer.map_to(entry, "mixed_precision", "fp32", "neither bf16 nor fp16 nor fp8 is on");
}

void fp16(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  if (wants_fp8(importer) || importer.is_on(kLlama, "bf16"))
    return importer.drop(entry, "octavo has BF16 in its place");
  importer.map_to(entry, "mixed_precision", "bf16");
  importer.find(kRepaired, "fp16", entry, "octavo has no FP16",
                "BF16 has 3 bits less of precision and needs no loss scaling",
                "mixed_precision bf16");
}

void pure_bf16(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  if (!wants_fp8(importer)) importer.map_to(entry, "mixed_precision", "bf16");
  for (const char* key : {"master_dtype", "moment_dtype", "gradient_dtype"})
    importer.map_to(entry, key, "bf16", "rounded stochastically, where theirs rounds to nearest");
}

void fp8_backend(Importer& importer, const ForeignEntry& entry) {
  if (!wants_fp8(importer)) return importer.leave(entry, "not read: fp8 is off");
  const std::string backend = importer.word(entry);
  if (backend == "te")
    return importer.map_to(entry, "fp8_backend", "te",
                           "the recipe is octavo's: delayed, hybrid, history 1024");
  if (backend == "torchao") {
    importer.map_to(entry, "fp8_backend", "aten", "the same cuBLASLt kernels");
    return importer.map_to(entry, "fp8_recipe", "rowwise", "torchao's recipe in LLaMA-Factory");
  }
  importer.map_to(entry, "fp8_backend", "te");
  if (backend == "msamp")
    return importer.find(kRepaired, "msamp", entry, "octavo has no MS-AMP",
                         "optimizer states are FP32 unless moment_dtype says fp8",
                         "fp8_backend te");
  importer.find(kRepaired, "fp8_backend_auto", entry,
                entry.is_default
                    ? "fp8_backend is not given; auto is torchao in many of its versions"
                    : "auto is torchao in many of its versions, whatever is installed",
                "a guide reports 16.29 s a step in FP8 set up like this, and 8.15 s in BF16",
                "fp8_backend te; without it octavo says so and takes aten");
}

void load_in_fp8(Importer& importer, const ForeignEntry& entry) {
  if (!importer.flag(entry)) return importer.leave(entry, "off");
  importer.drop(entry, "weights quantized for inference");
  importer.find(kRefused, "load_in_fp8", entry,
                "it stores weights in FP8 for inference; no GEMM of training runs in FP8",
                "a run that is called FP8 and has BF16's speed",
                "write fp8: true for training in FP8, or remove it");
}

}  // namespace octavo::migrate::llama_factory
