#include "monitor/red_flags.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printed.h"

namespace octavo::monitor {
namespace {

std::string rounded(double value) {
  return printed("%.4g", value);
}

std::string times(double value) {
  return printed("%.1f times", value);
}

// The worst of the tensors that are in trouble for this reason, and how many layers are.
struct WorstTensor {
  const Fp8Tensor* worst = nullptr;
  double percent = 0;
  std::vector<std::string> layers;
};

template <typename Percent>
WorstTensor worst_by(const std::vector<Fp8Tensor>& tensors, double limit, Percent&& percent_of) {
  WorstTensor found;
  for (const Fp8Tensor& t : tensors) {
    const double percent = percent_of(t.health);
    // Delayed factors are no verdict in the first steps: then nothing is in trouble.
    if (t.trouble.empty() || percent <= limit) continue;
    if (found.layers.empty() || found.layers.back() != t.layer) found.layers.push_back(t.layer);
    if (percent <= found.percent) continue;
    found.worst = &t;
    found.percent = percent;
  }
  return found;
}

std::string describe_worst(const WorstTensor& found, const char* what) {
  return str(found.worst->layer, " ", found.worst->tensor, ": ", rounded(found.percent), "% ", what,
             found.layers.size() > 1 ? str("; ", found.layers.size(), " layers in all") : "");
}

std::string describe_expert(const ExpertWatch::Verdict& found) {
  return str("layer ", found.layer, " of those with experts: ", rounded(100 * found.share),
             "% of the tokens of the last ", ExpertWatch::kSteps, " steps went through expert ",
             found.expert, ", with even use it would be ", rounded(100 * found.even), "%",
             found.count > 1 ? str("; ", found.count, " such experts in all layers") : "");
}

constexpr double kVeryOdd = 12;  // sigmas
constexpr const char* kSpikes =
    "when it does not come back in some 100 steps, resume from before it with a lower "
    "learning_rate or max_grad_norm; look for strange text in the data";
constexpr const char* kUniform =
    "start again, or resume from before it, with a tenth of the learning_rate and more "
    "warmup_steps; for a pretrained model see that tokenizer and weights are of one model";
constexpr const char* kRouters =
    "router_aux_loss_coef 0.001 to 0.01, router_z_loss_coef 0.001, a lower learning_rate; resume "
    "from before it";
constexpr const char* kNotFinite =
    "resume from the last checkpoint with half the learning_rate or more warmup_steps; in FP8, "
    "with fp8_recipe current or fp8_skip first and last";

}  // namespace

RedFlags::RedFlags(const FlagOptions& options)
    : plateau_(options.plateau_steps),
      uniform_(options.uniform_loss, options.warmup_steps),
      speed_(options.bf16_baseline) {}

void RedFlags::raise(Flags& flags, int64_t step, const char* name, std::string seen,
                     std::string remedy) {
  ++total_;
  ++counts_[name];
  raised_at_[name] = step;
  flags.push_back({step, name, std::move(seen), std::move(remedy)});
}

template <typename Self, typename Visit>
void RedFlags::visit_lasting(Self& self, Visit&& visit) {
  visit("spike", self.spike_);
  visit("gradient_explosion", self.explosion_);
  visit("plateau", self.flat_);
  visit("saturating_layer", self.saturating_);
  visit("underflowing_layer", self.underflowing_);
  visit("amplified_channel", self.amplified_);
  visit("data_starvation", self.starving_);
  visit("slow_rank", self.slow_rank_);
  visit("fp8_slower", self.slower_);
  visit("failed_save", self.unsaved_);
  visit("failed_upload", self.not_uploaded_);
  visit("nan_loss", self.bad_evaluation_);
  visit("worse_than_uniform", self.uniform_trouble_);
  visit("expert_collapse", self.collapsed_);
  visit("idle_expert", self.idle_expert_);
  visit("crowded_expert", self.crowded_expert_);
}

std::vector<Flag> RedFlags::take_ended(int64_t step) {
  Flags flags;
  visit_lasting(*this, [&](const char* name, RaiseOnce& trouble) {
    if (trouble.take_end())
      flags.push_back({step, name, str("raised at step ", raised_at_[name]), "", true});
  });
  return flags;
}

std::vector<std::string> RedFlags::open() const {
  std::vector<std::string> names;
  visit_lasting(*this, [&](const char* name, const RaiseOnce& trouble) {
    if (trouble.is_open()) names.emplace_back(name);
  });
  return names;
}

void RedFlags::remember(const StepRecord& record) {
  spikes_.add(record.loss);
  norms_.add(record.grad_norm);
  plateau_.add(record.loss, record.learning_rate);
  uniform_.add(record.step, record.loss);
}

std::vector<Flag> RedFlags::on_step(const StepRecord& record) {
  Flags flags;
  check_loss(record, flags);
  check_norm(record, flags);
  if (!record.fp8_tensors.empty()) {
    check_fp8(record, flags);
    check_channels(record, flags);
  }
  check_speed(record, flags);
  check_saves(record, flags);
  if (!record.expert_loads.empty()) check_experts(record, flags);
  if (!record.rank_seconds.empty()) check_ranks(record, flags);
  first_step_ = false;
  return flags;
}

std::vector<Flag> RedFlags::on_eval(const EvalRecord& record) {
  Flags flags;
  const bool finite = std::isfinite(record.val_loss);
  if (bad_evaluation_.begins(!finite, finite))
    raise(flags, record.step, "nan_loss", str("the validation loss is ", record.val_loss),
          kNotFinite);
  const bool worse = uniform_.worse_evaluation(record.step, record.val_loss);
  check_uniform(record.step, "validation loss", record.val_loss, worse, false, flags);
  return flags;
}

void RedFlags::check_uniform(int64_t step, const char* what, double loss, bool worse, bool better,
                             Flags& flags) {
  if (worse)
    worse_than_uniform_ = str(what, " ", rounded(loss), ", guessing has ",
                              rounded(uniform_.uniform()), " (ln of the vocabulary)");
  else if (better)
    worse_than_uniform_.clear();
  if (uniform_trouble_.begins(worse, better))
    raise(flags, step, "worse_than_uniform", worse_than_uniform_, kUniform);
}

std::string RedFlags::final_remark() const {
  if (worse_than_uniform_.empty()) return "";
  return str("the model is worse than one that guesses every token: ", worse_than_uniform_,
             "; it is of no use. ", kUniform);
}

Flag RedFlags::on_guard(int64_t step, const std::string& seen, bool spikes) {
  Flags flags;
  raise(flags, step, spikes ? "spike" : "nan_loss", seen, spikes ? kSpikes : kNotFinite);
  return flags.front();
}

void RedFlags::check_loss(const StepRecord& record, Flags& flags) {
  const SpikeDetector::Verdict spike = spikes_.judge(record.loss);
  spikes_.add(record.loss);
  // One odd batch is nobody's business, unless it is very odd.
  const bool spikes = spike.spike && (after_spike_ || spike.sigmas > kVeryOdd);
  after_spike_ = spike.spike;
  if (spike_.begins(spikes, spike.usual))
    raise(flags, record.step, "spike",
          str("loss ", rounded(record.loss), ", usual ", rounded(spike.median), ": ",
              rounded(spike.sigmas), " sigmas above it"),
          kSpikes);
  const UniformDetector::Verdict guess = uniform_.add(record.step, record.loss);
  check_uniform(record.step, "loss", guess.loss, guess.worse, guess.better, flags);
  const PlateauDetector::Verdict flat = plateau_.add(record.loss, record.learning_rate);
  if (flat.looked && flat_.begins(flat.plateau, flat.improves))
    raise(flags, record.step, "plateau",
          str("mean loss ", rounded(flat.after), ", before it ", rounded(flat.before),
              ", at a learning rate of ", rounded(record.learning_rate)),
          "a learning_rate that is too low or too high keeps a model where it is: try a third and "
          "three times as much; else the model has learned what its size or data allow");
}

void RedFlags::check_norm(const StepRecord& record, Flags& flags) {
  ExplosionDetector::Verdict norm = norms_.judge(record.grad_norm);
  if (record.skipped) norm = {.explodes = true, .usual = false, .reference = norm.reference};
  norms_.add(record.grad_norm);
  if (explosion_.begins(norm.explodes, norm.usual))
    raise(flags, record.step, "gradient_explosion",
          record.skipped ? "the gradient is not finite, and no update was applied"
                         : str("gradient norm ", rounded(record.grad_norm), ", usual ",
                               rounded(norm.reference)),
          "lower learning_rate or lengthen warmup_steps; keep max_grad_norm at 1; resume from "
          "before it when the loss has left its course");
}

void RedFlags::check_fp8(const StepRecord& record, Flags& flags) {
  const fp8::Limits limits;
  const auto& tensors = record.fp8_tensors;
  const WorstTensor high = worst_by(tensors, limits.saturated_percent,
                                    [](const auto& h) { return h.saturated_percent(); });
  if (saturating_.begins(high.worst != nullptr, high.worst == nullptr))
    raise(flags, record.step, "saturating_layer", describe_worst(high, "of it saturates"),
          str("fp8_interval 1, fp8_margin 1, fp8_recipe current or blockwise; or keep it in BF16: "
              "fp8_skip ",
              high.worst->layer, ", fp8_guard fallback"));
  const WorstTensor low = worst_by(tensors, limits.underflowed_percent,
                                   [](const auto& h) { return h.underflowed_percent(); });
  if (underflowing_.begins(low.worst != nullptr, low.worst == nullptr))
    raise(flags, record.step, "underflowing_layer", describe_worst(low, "of it becomes zero"),
          str("fp8_margin 0, fp8_format hybrid, a shorter fp8_amax_history, fp8_recipe current or "
              "blockwise; or keep it in BF16: fp8_skip ",
              low.worst->layer, ", fp8_guard fallback"));
}

// A pretrained model has channels that stand out from the first statistics on, and lives with them:
// what counts is that one grows.
void RedFlags::check_channels(const StepRecord& record, Flags& flags) {
  constexpr double kAmplified = 100, kGrowth = 4;
  const Fp8Tensor* worst = nullptr;
  for (const Fp8Tensor& t : record.fp8_tensors) {
    if (!t.channels.seen()) continue;
    const double ratio = t.channels.ratio();
    const double first = first_ratios_.try_emplace(t.layer, ratio).first->second;
    if (ratio > kAmplified && ratio > kGrowth * first &&
        (worst == nullptr || ratio > worst->channels.ratio()))
      worst = &t;
  }
  if (amplified_.begins(worst != nullptr, worst == nullptr))
    raise(
        flags, record.step, "amplified_channel",
        str(worst->layer, " ", worst->tensor, ": channel ", worst->channels.worst, " has ",
            times(worst->channels.ratio()), " the median channel's magnitude, in the first ",
            "statistics it was ", times(first_ratios_[worst->layer])),
        str("fp8_recipe blockwise or mxfp8, whose scales are of small blocks; or keep it in BF16: "
            "fp8_skip ",
            worst->layer, "; a lower learning_rate, more weight_decay"));
}

void RedFlags::check_speed(const StepRecord& record, Flags& flags) {
  // The first step waits for the loader to start.
  if (!first_step_) waits_.add(record.data_wait_seconds, record.seconds);
  if (starving_.begins(waits_.bad(), waits_.good()))
    raise(flags, record.step, "data_starvation",
          str(rounded(100 * waits_.share()), "% of the last steps was waiting for data"),
          "put the prepared shards on a local disk, free a core for the thread that reads, or "
          "prepare fewer and larger shards (shard_tokens)");
  const SlowerDetector::Verdict speed = speed_.add(record);
  const bool rehearsal = record.precision.find("rehearsal") != std::string::npos;
  if (slower_.begins(speed.slower, speed.faster))
    raise(flags, record.step, "fp8_slower",
          str(rounded(speed.tokens_per_second), " tokens/s in FP8, ", rounded(speed.baseline),
              " in BF16",
              rehearsal ? "; this is a rehearsal, which says nothing about a GPU's speed" : ""),
          "larger batch_size or max_seq_length, fp8_skip for small layers, cuda_graph; where "
          "GEMMs are too small for FP8 to pay, train in bf16");
}

void RedFlags::check_experts(const StepRecord& record, Flags& flags) {
  // Of the way from even use to the same experts for every token.
  constexpr double kCollapsed = 0.8, kFine = 0.6;
  const auto excess = [](const ExpertLoad& load) {
    return (load.busiest_share - load.even_share) / std::max(1 - load.even_share, 1e-9);
  };
  const auto worst = std::ranges::max_element(record.expert_loads, {}, excess);
  if (collapsed_.begins(excess(*worst) > kCollapsed, excess(*worst) < kFine))
    raise(flags, record.step, "expert_collapse",
          str("layer ", worst - record.expert_loads.begin(),
              " of those with experts: ", rounded(100 * worst->busiest_share),
              "% of its rows go to as many experts as a token "
              "has, with even use it would be ",
              rounded(100 * worst->even_share), "%; ", worst->idle, " experts have none"),
          kRouters);
  const ExpertWatch::Verdicts found = experts_.add(record.expert_loads);
  if (idle_expert_.begins(found.idle.bad, found.idle.good))
    raise(flags, record.step, "idle_expert", describe_expert(found.idle),
          str(kRouters, "; in fine-tuning on one kind of text some may have nothing to do"));
  if (crowded_expert_.begins(found.crowded.bad, found.crowded.good))
    raise(flags, record.step, "crowded_expert", describe_expert(found.crowded), kRouters);
}

void RedFlags::check_ranks(const StepRecord& record, Flags& flags) {
  const SlowRankDetector::Verdict rank = ranks_.add(record.rank_seconds);
  if (slow_rank_.begins(rank.slow, rank.even))
    raise(flags, record.step, "slow_rank",
          str("rank ", rank.rank, " works ", rounded(rank.seconds), " s a step, ",
              times(rank.seconds / std::max(rank.others, 1e-9)), " what the others do"),
          "look at that rank's machine: another job, heat (nvidia-smi -q -d PERFORMANCE), a slow "
          "disk; leave the machine out when it stays");
}

void RedFlags::check_saves(const StepRecord& record, Flags& flags) {
  if (unsaved_.begins(record.failed_saves > 0, record.failed_saves == 0))
    raise(flags, record.step, "failed_save",
          "the last checkpoint could not be saved; the line CHECKPOINT NOT SAVED says why",
          "free the disk, or look at the file server; after max_failed_saves in a row the run is "
          "ended");
  if (not_uploaded_.begins(record.failed_uploads > 0, record.failed_uploads == 0))
    raise(flags, record.step, "failed_upload",
          "the last checkpoint could not be uploaded yet; the line CHECKPOINT NOT UPLOADED says "
          "why, and it is tried again",
          "look at the credentials, the bucket's policy and the network; checkpoints are safe on "
          "the disk of checkpoint_dir");
}

Json RedFlags::receipt() const {
  Json made = {{"total", total_}};
  for (const auto& [name, count] : counts_) made[name] = count;
  return made;
}

}  // namespace octavo::monitor
