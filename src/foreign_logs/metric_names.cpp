#include "foreign_logs/metric_names.h"

#include <algorithm>

namespace octavo::foreign_logs {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr KnownMetric kMetrics[] = {
    {"train/loss", Role::kLoss, 1, "transformers, TRL, nanoGPT, nanochat, octavo"},
    {"loss", Role::kLoss, 1, "transformers, LLaMA-Factory; text logs"},
    {"loss_metrics/global_avg_loss", Role::kLoss, 1, "torchtitan"},
    {"lm loss", Role::kLoss, 1, "Megatron-LM"},
    {"reduced_train_loss", Role::kLoss, 1, "NeMo"},
    {"train/lm_loss", Role::kLoss, 1, "GPT-NeoX"},
    {"train_loss_step", Role::kLoss, 1, "Lightning"},
    {"train_loss", Role::kLoss, 1, "Lightning"},
    {"train loss", Role::kLoss, 1, "nanoGPT's evaluations, llm.c"},
    {"trl", Role::kLoss, 1, "llm.c's main.log"},

    {"eval/loss", Role::kValidation, 1, "transformers, TRL"},
    {"eval_loss", Role::kValidation, 1, "transformers, LLaMA-Factory"},
    {"val/loss", Role::kValidation, 1, "nanoGPT, octavo"},
    {"validation_metrics/loss", Role::kValidation, 1, "torchtitan"},
    {"lm loss validation", Role::kValidation, 1, "Megatron-LM"},
    {"validation/lm_loss", Role::kValidation, 1, "GPT-NeoX"},
    {"val_loss", Role::kValidation, 1, "Lightning, NeMo"},
    {"valid_loss", Role::kValidation, 1, "fairseq"},
    {"val loss", Role::kValidation, 1, "nanoGPT, llm.c"},
    {"validate loss", Role::kValidation, 1, "torchtitan's text log"},
    {"tel", Role::kValidation, 1, "llm.c's main.log"},
    {"val/bpb", Role::kValidation, 1, "nanochat"},
    {"Validation bpb", Role::kValidation, 1, "nanochat's text log"},

    {"perf/step_seconds", Role::kSeconds, 1, "octavo"},
    {"time_metrics/end_to_end(s)", Role::kSeconds, 1, "torchtitan"},
    {"iteration-time", Role::kSeconds, 1, "Megatron-LM"},
    {"elapsed time per iteration (ms)", Role::kSeconds, 1e-3, "Megatron-LM's text log"},
    {"train_step_timing in s", Role::kSeconds, 1, "NeMo"},
    {"train/dt", Role::kSeconds, 1, "nanochat"},
    {"time (ms)", Role::kSeconds, 1e-3, "text logs"},

    {"tokens", Role::kTokens, 1, "octavo"},
    {"train/tokens", Role::kTokens, 1, "octavo"},
    {"num_input_tokens_seen", Role::kTokens, 1, "transformers"},
    {"train/num_input_tokens_seen", Role::kTokens, 1, "transformers"},
    {"n_tokens_seen", Role::kTokens, 1, "torchtitan"},
    {"total_tokens", Role::kTokens, 1, "LLaMA-Factory"},

    {"train/tok_per_sec", Role::kTokensPerSecond, 1, "nanochat"},
    {"tok/sec", Role::kTokensPerSecond, 1, "nanochat's text log"},
    {"tok/s", Role::kTokensPerSecond, 1, "llm.c"},

    {"throughput(tps)", Role::kTokensPerGpuSecond, 1, "torchtitan"},
    {"tps", Role::kTokensPerGpuSecond, 1, "torchtitan's text log"},

    {"memory/peak_bytes", Role::kPeakBytes, 1, "octavo"},
    {"memory/max_reserved(GiB)", Role::kPeakBytes, kGiB, "torchtitan"},
    {"memory (GiB)", Role::kPeakBytes, kGiB, "torchtitan's text log"},
    {"vram_reserved", Role::kPeakBytes, kGiB, "LLaMA-Factory"},

    {"_timestamp", Role::kClock, 1, "W&B"},
    {kWallTime, Role::kClock, 1, "TensorBoard"},
    {"train_runtime", Role::kClock, 1, "transformers 5"},
};

constexpr std::string_view kStepNames[] = {"train/global_step",
                                           "trainer/global_step",
                                           "global_step",
                                           "current_steps",
                                           "iteration",
                                           "iter",
                                           "step",
                                           "Step",
                                           "_step"};

}  // namespace

std::span<const KnownMetric> known_metrics() {
  return kMetrics;
}

const KnownMetric* find_metric(std::string_view name) {
  const auto* const found = std::ranges::find(kMetrics, name, &KnownMetric::name);
  return found == std::end(kMetrics) ? nullptr : found;
}

std::span<const std::string_view> step_names() {
  return kStepNames;
}

}  // namespace octavo::foreign_logs
