// What is wrong with several keys, or several files, together.

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;

struct AdvisedVariable {
  std::string_view name, value, truth;
};

// The list that the guides hand around. What each really does: docs/reference/verify-checks.md.
constexpr std::string_view kPythonOnly =
    "read by Transformer Engine's Python layers; octavo has none";
constexpr AdvisedVariable kAdvisedVariables[] = {
    {"CUDA_DEVICE_MAX_CONNECTIONS", "1",
     "orders launches for Megatron's tensor parallelism; octavo does not need it"},
    {"NVTE_FP8_ALLREDUCE", "1", "read by no version of Transformer Engine, CUDA or NCCL"},
    {"NVTE_APPLY_QK_LAYER_SCALING", "1", kPythonOnly},
    {"NVTE_FP8_DPA_BWD", "1", kPythonOnly},
    {"NVTE_FLASH_ATTN", "1", kPythonOnly},
    {"NVTE_FUSED_ATTN", "1", kPythonOnly},
};

const AdvisedVariable* find_advised(std::string_view name) {
  const auto* const found = std::ranges::find(kAdvisedVariables, name, &AdvisedVariable::name);
  return found == std::end(kAdvisedVariables) ? nullptr : found;
}

// The guides count nodes in WORLD_SIZE; everybody else counts processes.
void check_world_size(Importer& importer, const ForeignFile& script) {
  const auto named = [&](std::string_view name) {
    return std::ranges::find(script.entries, name, &ForeignEntry::path);
  };
  const auto gpus = named("GPU_NUM"), nodes = named("WORLD_SIZE");
  if (gpus == script.entries.end() || nodes == script.entries.end()) return;
  importer.find(kRepaired, "world_size_counts_nodes", *nodes,
                str("beside GPU_NUM=", gpus->text(), " it counts nodes"),
                "torchrun and octavo count processes: ranks wait for one another for ever",
                "let torchrun or srun set it");
}

}  // namespace

bool wants_fp8(const Importer& importer) {
  return importer.is_on(ForeignForm::kLlamaFactory, "fp8") ||
         importer.is_on(ForeignForm::kDeepSpeed, "fp8.enabled") ||
         importer.word_of(ForeignForm::kAccelerate, "mixed_precision") == "fp8";
}

void check_batch_product(Importer& importer) {
  const ForeignEntry* total = importer.entry_of(ForeignForm::kDeepSpeed, "train_batch_size");
  const MappedKey* micro = importer.mapped("batch_size");
  if (total == nullptr || micro == nullptr || micro->is_default || total->values.size() != 1 ||
      total->values.front() == "auto")
    return;
  const std::optional<int64_t> size = config::parse_number<int64_t>(total->values.front());
  if (!size || *size < 1 || *size > (int64_t{1} << 40)) return;  // refused where it was read
  const config::Settings& s = importer.result.settings;
  // Bounded by their keys, and the size above: no overflow.
  const int64_t pass = s.batch_size * s.gradient_accumulation_steps;
  if (*size % pass != 0)
    return importer.find(
        kRefused, "batch_does_not_multiply_out", *total,
        str("not a multiple of ", s.batch_size, " samples x ", s.gradient_accumulation_steps,
            " passes = ", pass, " for any number of GPUs"),
        "DeepSpeed stops at it", str("take ", (*size / pass + 1) * pass, ", or change the others"));
  importer.find(kNote, "gpus_implied", *total,
                str(s.batch_size, " samples x ", s.gradient_accumulation_steps, " passes x ",
                    *size / pass, " GPUs"),
                "with another number of GPUs the batch is another one, and so is the best "
                "learning rate",
                "nothing; octavo multiplies by the GPUs that it is started on");
}

void check_lora_gain(Importer& importer) {
  const config::Settings& s = importer.result.settings;
  if (s.lora_rank == 0 || (!s.use_fp8 && s.mixed_precision != config::Precision::kFp8)) return;
  importer.result.findings.push_back(
      {kNote, "lora_hides_fp8", "all files together",
       str("FP8 with adapters of rank ", s.lora_rank, ": adapters run in BF16"),
       "measured by the guides on H100: 8B rank 32 1.00x, rank 8 1.20x, 1B rank 16 1.13x; full "
       "fine-tuning 1.3x to 1.5x",
       s.lora_rank > 16 ? "a rank of 8 to 16, fewer lora_target_modules, or full fine-tuning"
                        : "nothing; fewer lora_target_modules help"});
}

// octavo evaluates unless told not to, and refuses to when nothing is kept for it.
void check_evaluation(Importer& importer) {
  const MappedKey* kept = importer.mapped("val_fraction");
  if (kept == nullptr || kept->to != "0" || importer.mapped("eval_freq") != nullptr) return;
  const ForeignEntry reason{.path = kept->theirs, .values = {kept->from}, .where = kept->where};
  importer.map_to(reason, "eval_freq", "0");
  importer.find(kRepaired, "nothing_to_evaluate", reason, "no rows are kept for evaluation",
                "no validation loss", "eval_freq 0; keep a share for a validation loss");
}

void check_precision(Importer& importer) {
  if (!importer.has(ForeignForm::kDeepSpeed) || importer.mapped("mixed_precision") != nullptr)
    return;
  importer.result.findings.push_back({kNote, "no_precision", "all files together",
                                      "no file switches bf16 or fp8 on",
                                      "DeepSpeed would train in FP32, and octavo in BF16",
                                      "add mixed_precision: fp8, bf16 or fp32"});
}

void check_names(Importer& importer) {
  for (const char* key : {"model_name", "dataset"})
    if (importer.mapped(key) == nullptr)
      importer.result.findings.push_back(
          {kNote, str("no_", key), "all files together", str("no file says ", key),
           std::string_view(key) == "dataset" ? "train stops without data"
                                              : "train would take gpt2 with random weights",
           str("add ", key, " before training")});
}

void check_variables(Importer& importer, std::span<const ForeignFile> files) {
  std::vector<std::string> missing;
  for (const AdvisedVariable& variable : kAdvisedVariables) missing.emplace_back(variable.name);
  for (const ForeignFile& file : files) {
    if (file.form != ForeignForm::kVariables) continue;
    for (const ForeignEntry& entry : file.entries) {
      std::erase(missing, entry.path);
      const AdvisedVariable* known = find_advised(entry.path);
      importer.drop(entry, known == nullptr ? "a variable, not a key; octavo verify looks at those "
                                              "that matter"
                                            : known->truth);
    }
    check_world_size(importer, file);
    if (file.other_lines > 0)
      importer.result.unset.push_back({file.shown, str(file.other_lines, " lines"), "", "",
                                       "set no variable; commands of a script are not read"});
  }
  const config::Settings& s = importer.result.settings;
  const bool fp8 = s.use_fp8 || s.mixed_precision == config::Precision::kFp8;
  const bool reads_others =  // the guides' list is for LLaMA-Factory on Transformer Engine
      importer.has(ForeignForm::kGuide) || importer.has(ForeignForm::kTorchtitan) ||
      importer.has(ForeignForm::kMegatron);
  if (missing.empty() || !fp8 || reads_others) return;
  importer.result.findings.push_back(
      {kRepaired, "missing_variables", "the launch script",
       join(missing, ", ") + ": named by the guides, set in none of these files",
       "nothing in octavo: NVTE_FP8_ALLREDUCE is read by nobody, the other NVTE_ ones by "
       "Transformer Engine's Python layers, CUDA_DEVICE_MAX_CONNECTIONS=1 serves tensor "
       "parallelism",
       "none is needed; octavo verify looks at the machine's variables"});
}

}  // namespace octavo::migrate
