#include "compare/pairing.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "config/key.h"

namespace octavo::compare {
namespace {

// Another text, other tokens, or another context: losses cannot be compared.
constexpr std::array<std::string_view, 23> kTextKeys = {"special_tokens_in_text",
                                                        "val_split_name",
                                                        "dataset",
                                                        "dataset_weights",
                                                        "dataset_max_epochs",
                                                        "mixture_schedule",
                                                        "length_schedule",
                                                        "split_name",
                                                        "dataset_config",
                                                        "tokenizer",
                                                        "text_field",
                                                        "prompt_field",
                                                        "response_field",
                                                        "messages_field",
                                                        "chat_template",
                                                        "train_on",
                                                        "packing",
                                                        "val_fraction",
                                                        "max_seq_length",
                                                        "penalty_type",
                                                        "penalty_weight",
                                                        "router_aux_loss_coef",
                                                        "router_z_loss_coef"};
// The same text in another order or in other portions.
constexpr std::array<std::string_view, 6> kBatchKeys = {"seed",
                                                        "shuffle",
                                                        "batch_size",
                                                        "gradient_accumulation_steps",
                                                        "target_effective_batch_size",
                                                        "auto_batch_size"};
constexpr std::array<std::string_view, 6> kScheduleKeys = {
    "learning_rate", "min_lr_ratio", "warmup_steps", "max_steps", "num_epochs", "max_grad_norm"};
// What changes nothing that is compared here.
constexpr std::array<std::string_view, 32> kSideKeys = {"max_skipped_rows",
                                                        "run_name",
                                                        "runs_dir",
                                                        "data_cache",
                                                        "num_workers",
                                                        "log_freq",
                                                        "eval_freq",
                                                        "sample_freq",
                                                        "sample_tokens",
                                                        "sample_prompt",
                                                        "trace",
                                                        "use_tensorboard",
                                                        "use_wandb",
                                                        "wandb_project",
                                                        "wandb_run_name",
                                                        "metrics_address",
                                                        "plateau_steps",
                                                        "bf16_baseline",
                                                        "checkpoint_dir",
                                                        "checkpoint_freq",
                                                        "checkpoint_minutes",
                                                        "max_failed_saves",
                                                        "keep_checkpoints",
                                                        "permanent_checkpoint_freq",
                                                        "checkpoint_upload",
                                                        "resume",
                                                        "list_checkpoints",
                                                        "fp8_stats_freq",
                                                        "shard_tokens",
                                                        "offline",
                                                        "replica_check_freq",
                                                        "overwrite"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string spoken(const std::vector<Difference>& differences,
                   std::span<const std::string_view> names) {
  std::vector<std::string> texts;
  for (const Difference& d : differences)
    if (is_one_of(names, d.key)) texts.push_back(str(d.key, " (", d.a, " and ", d.b, ")"));
  return join(texts, ", ");
}

std::vector<Difference> differences_of(const config::Settings& a, const config::Settings& b) {
  std::vector<Difference> found;
  for (const config::Key& key : config::keys()) {
    if (!(key.readers & config::reader::kTrain) || is_one_of(kSideKeys, key.name)) continue;
    const std::string first = key.text(a), second = key.text(b);
    if (first != second) found.push_back({key.name, first.substr(0, 200), second.substr(0, 200)});
  }
  return found;
}

void add_reason(Pairing& pairing, const std::string& reason) {
  if (pairing.why.empty()) pairing.why = reason;
  pairing.remarks.push_back(reason);
}

// Logs do not say what was trained on.
void judge_foreign(Pairing& pairing, const RunFolder& a, const RunFolder& b) {
  pairing.same_batches = a.same_batches && b.same_batches;
  if (pairing.same_batches)
    pairing.remarks.emplace_back(
        "same_batches: the runs are compared step by step, since step n of both is said to be of "
        "the same batch");
  else
    add_reason(pairing,
               "logs do not say that the runs saw the same batches: they are compared as wholes, "
               "not step by step (--same_batches when they did: the intervals become narrower)");
  pairing.remarks.emplace_back(
      "nothing here tells whether both runs had the same text, tokens and schedule; their losses "
      "are taken to be of the same thing");
  if (a.format != b.format)
    pairing.remarks.push_back(str("the logs are of two kinds (", a.label(), " and ", b.label(),
                                  "), which may count time and tokens differently"));
}

void judge_settings(Pairing& pairing, const RunFolder& a, const RunFolder& b) {
  if (a.is_foreign() || b.is_foreign()) return judge_foreign(pairing, a, b);
  if (!a.settings || !b.settings) {
    pairing.same_batches = false;
    return add_reason(pairing,
                      "without both config.yaml nothing says that the runs saw the same batches: "
                      "they are compared as wholes, not step by step");
  }
  pairing.differences = differences_of(*a.settings, *b.settings);
  if (const std::string keys = spoken(pairing.differences, kTextKeys); !keys.empty()) {
    pairing.comparable = pairing.validation = pairing.same_batches = false;
    add_reason(
        pairing,
        str("the losses are not of the same thing, and are not compared: the runs differ in ",
            keys));
  }
  if (const std::string keys = spoken(pairing.differences, kBatchKeys); !keys.empty()) {
    pairing.same_batches = false;
    add_reason(pairing,
               str("the runs did not see the same batches and are compared as wholes, not step "
                   "by step: they differ in ",
                   keys));
  }
  if (a.settings->eval_batches != b.settings->eval_batches) {
    pairing.validation = false;
    add_reason(pairing, str("the evaluations are not of the same batches: eval_batches is ",
                            a.settings->eval_batches, " and ", b.settings->eval_batches));
  }
  if (const std::string keys = spoken(pairing.differences, kScheduleKeys); !keys.empty())
    pairing.remarks.push_back(
        str("the runs were not trained alike: they differ in ", keys, "; the gap is of that too"));
  std::vector<std::string_view> others;
  for (const Difference& d : pairing.differences)
    if (!is_one_of(kTextKeys, d.key) && !is_one_of(kBatchKeys, d.key) &&
        !is_one_of(kScheduleKeys, d.key))
      others.push_back(d.key);
  if (!others.empty())
    pairing.remarks.push_back(str("compared: ", spoken(pairing.differences, others)));
}

void match_steps(Pairing& pairing, const RunFolder& a, const RunFolder& b) {
  int64_t unequal = 0, first = -1;
  for (const auto& [step, point] : a.steps) {
    const auto other = b.steps.find(step);
    if (other == b.steps.end()) continue;
    if (point.tokens > 0 && other->second.tokens > 0 && point.tokens != other->second.tokens) {
      if (unequal++ == 0) first = step;
    }
    if (point.loss && other->second.loss) pairing.steps.push_back(step);
  }
  if (unequal > 0 && pairing.same_batches) {
    pairing.same_batches = false;
    add_reason(pairing,
               str("the runs did not see the same batches and are compared as wholes, not step "
                   "by step: at step ",
                   first, " they had trained on ", a.steps.at(first).tokens, " and ",
                   b.steps.at(first).tokens, " tokens"));
  }
  const int64_t last_a = a.steps.rbegin()->first, last_b = b.steps.rbegin()->first;
  if (last_a != last_b)
    pairing.remarks.push_back(
        str("the runs end at steps ", last_a, " and ", last_b, "; what both have is compared"));
}

void look_at_ends(Pairing& pairing, const RunFolder& run, const char* side) {
  const int64_t last = run.steps.rbegin()->first, wanted = run.wanted_steps();
  if (run.status == "running" || (wanted > 0 && last < wanted && last + 1 < wanted))
    pairing.remarks.push_back(str("run ", side, " is not at its end: step ", last,
                                  wanted > 0 ? str(" of ", wanted) : "",
                                  run.status.empty() ? "" : str(" (", run.status, ")")));
}

}  // namespace

Pairing pair_up(const RunFolder& a, const RunFolder& b) {
  Pairing pairing;
  judge_settings(pairing, a, b);
  match_steps(pairing, a, b);
  look_at_ends(pairing, a, "A");
  look_at_ends(pairing, b, "B");
  if (!a.device.empty() && !b.device.empty() && a.device != b.device)
    pairing.remarks.push_back(
        str("the runs were on different devices: ", a.device, " and ", b.device));
  return pairing;
}

}  // namespace octavo::compare
