#include "monitor/metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octavo::monitor {
namespace {

constexpr int kMostOctaves = 64;  // bins of a histogram; a wider spread has wider bins

// The stats that are watched: the factors' geometric means over the tensors of the forward and
// of the backward pass, and the worst of the rest.
void add_fp8_stats(const std::vector<Fp8Tensor>& tensors, Metrics& metrics) {
  double log_scale[2] = {}, count[2] = {}, amax = 0, underflow = 0, saturation = 0, sqnr = 200;
  double ratio = 0;
  for (const Fp8Tensor& t : tensors) {
    const auto& h = t.health;
    if (h.factor > 0 && std::isfinite(h.factor)) {
      log_scale[t.backward] += std::log(static_cast<double>(h.factor));
      count[t.backward] += 1;
    }
    amax = std::max(amax, static_cast<double>(h.amax));
    underflow = std::max(underflow, h.underflowed_percent());
    saturation = std::max(saturation, h.saturated_percent());
    sqnr = std::min(sqnr, h.sqnr_db());
    if (t.channels.seen()) ratio = std::max(ratio, t.channels.ratio());
  }
  if (count[0] > 0) metrics.push_back({"fp8/fwd_scale", std::exp(log_scale[0] / count[0])});
  if (count[1] > 0) metrics.push_back({"fp8/bwd_scale", std::exp(log_scale[1] / count[1])});
  metrics.push_back({"fp8/amax", amax});
  metrics.push_back({"fp8/underflow", underflow});
  metrics.push_back({"fp8/saturation", saturation});
  metrics.push_back({"fp8/sqnr_db", sqnr});
  if (ratio > 0) metrics.push_back({"fp8/channel_ratio", ratio});
}

// The worst layer's load; of experts without a row, those of all layers.
void add_experts(const StepRecord& r, Metrics& metrics) {
  double busiest = 0, largest = 0, fullest = 0, emptiest = 1;
  int64_t idle = 0;
  for (const ExpertLoad& load : r.expert_loads) {
    busiest = std::max(busiest, load.busiest_share);
    largest = std::max(largest, load.largest);
    idle += load.idle;
    for (const double share : load.token_shares) {
      fullest = std::max(fullest, share);
      emptiest = std::min(emptiest, share);
    }
  }
  metrics.push_back({"moe/balance_loss", r.balance_loss});
  metrics.push_back({"moe/z_loss", r.router_z});
  metrics.push_back({"moe/busiest_share", busiest});
  metrics.push_back({"moe/largest_load", largest});
  metrics.push_back({"moe/fullest_share", fullest});
  metrics.push_back({"moe/emptiest_share", emptiest});
  metrics.push_back({"moe/idle_experts", static_cast<double>(idle)});
}

void add_gpus(const std::vector<GpuUse>& gpus, Metrics& metrics) {
  for (const GpuUse& gpu : gpus) {
    const std::string prefix = str("gpu/", gpu.index, "/");
    if (gpu.busy_percent) metrics.push_back({prefix + "utilization", *gpu.busy_percent});
    if (gpu.watts) metrics.push_back({prefix + "power", *gpu.watts});
    if (gpu.memory_bytes) metrics.push_back({prefix + "memory", *gpu.memory_bytes});
  }
}

}  // namespace

Metrics metrics_of(const StepRecord& r) {
  Metrics metrics = {{"train/loss", r.loss},
                     {"train/learning_rate", r.learning_rate},
                     {"train/grad_norm", r.grad_norm},
                     {"train/epoch", static_cast<double>(r.epoch)},
                     {"train/tokens", static_cast<double>(r.tokens)},
                     {"perf/step_seconds", r.seconds},
                     {"perf/tokens_per_second", r.tokens_per_second},
                     {"data/wait", r.data_wait_seconds},
                     {"memory/peak_bytes", r.memory_peak_bytes},
                     {"memory/kept_bytes", r.memory_kept_bytes},
                     {"flags/total", static_cast<double>(r.flags)}};
  if (r.penalty != 0) metrics.push_back({"train/penalty", r.penalty});
  if (r.sequence_length > 0)
    metrics.push_back({"train/sequence_length", static_cast<double>(r.sequence_length)});
  if (r.skipped) metrics.push_back({"train/skipped", 1});
  if (!r.rank_seconds.empty())
    metrics.push_back({"perf/slowest_rank_seconds", *std::ranges::max_element(r.rank_seconds)});
  if (r.save_seconds) {
    metrics.push_back({"perf/save_seconds", *r.save_seconds});
    metrics.push_back({"flags/failed_saves", static_cast<double>(r.failed_saves)});
  }
  if (r.upload_seconds) {
    metrics.push_back({"perf/upload_seconds", *r.upload_seconds});
    metrics.push_back({"flags/failed_uploads", static_cast<double>(r.failed_uploads)});
  }
  if (r.mfu) metrics.push_back({"perf/mfu", *r.mfu});
  if (r.goodput) metrics.push_back({"goodput", *r.goodput});
  if (r.fp8_layers > 0 || r.fp8_fallbacks > 0) {
    metrics.push_back({"fp8/layers", static_cast<double>(r.fp8_layers)});
    metrics.push_back({"fp8/fallbacks", static_cast<double>(r.fp8_fallbacks)});
  }
  for (const SourceUse& source : r.sources) {
    metrics.push_back({"data/" + source.name + "/tokens", static_cast<double>(source.tokens)});
    metrics.push_back({"data/" + source.name + "/epochs", source.epochs});
    if (source.loss) metrics.push_back({"data/" + source.name + "/loss", *source.loss});
  }
  if (!r.expert_loads.empty()) add_experts(r, metrics);
  if (!r.fp8_tensors.empty()) add_fp8_stats(r.fp8_tensors, metrics);
  add_gpus(r.gpus, metrics);
  return metrics;
}

Metrics metrics_of(const EvalRecord& r) {
  return {{"val/loss", r.val_loss},
          {"val/tokens", static_cast<double>(r.tokens)},
          {"val/best", r.best ? 1.0 : 0.0}};
}

Metrics metrics_of(const TaskRecord& r) {
  return {{"eval/hellaswag_acc_norm", r.acc_norm},
          {"eval/hellaswag_acc", r.acc},
          {"eval/hellaswag_rows", static_cast<double>(r.rows)}};
}

Histogram histogram_of(std::string name, const std::vector<double>& values) {
  Histogram h{.name = std::move(name)};
  std::vector<double> finite;
  for (const double x : values)
    if (std::isfinite(x) && x >= 0) finite.push_back(x);
  if (finite.empty()) return h;
  std::ranges::sort(finite);
  h.least = finite.front();
  h.most = finite.back();
  h.count = static_cast<int64_t>(finite.size());
  for (const double x : finite) {
    h.sum += x;
    h.sum_of_squares += x * x;
  }
  const auto first_above_zero = std::ranges::upper_bound(finite, 0.0);
  if (first_above_zero != finite.begin()) h.edges.push_back(0);
  if (first_above_zero != finite.end()) {
    // std::frexp: x = m * 2^e with m in [0.5, 1), so that x lies in [2^(e-1), 2^e).
    int low = 0, high = 0;
    std::frexp(*first_above_zero, &low);
    std::frexp(h.most, &high);
    const int octaves = high - low + 1;
    const int width = (octaves + kMostOctaves - 1) / kMostOctaves;
    for (int e = low - 1; e < high + width; e += width) h.edges.push_back(std::ldexp(1.0, e));
  } else {
    h.edges.push_back(1);  // all are zero
  }
  h.counts.assign(h.edges.size() - 1, 0);
  for (const double x : finite) {
    const auto right = std::ranges::upper_bound(h.edges, x);
    const auto bin = std::min<ptrdiff_t>(right - h.edges.begin() - 1,
                                         static_cast<ptrdiff_t>(h.counts.size()) - 1);
    ++h.counts[static_cast<size_t>(bin)];
  }
  return h;
}

std::vector<Histogram> histograms_of(const StepRecord& record) {
  std::vector<double> scales[2], amaxes;
  for (const Fp8Tensor& t : record.fp8_tensors) {
    scales[t.backward].push_back(static_cast<double>(t.health.factor));
    amaxes.push_back(static_cast<double>(t.health.amax));
  }
  std::vector<Histogram> made;
  std::vector<Histogram> all = {histogram_of("fp8/fwd_scales", scales[0]),
                                histogram_of("fp8/bwd_scales", scales[1]),
                                histogram_of("fp8/amaxes", amaxes)};
  for (Histogram& h : all)
    if (h.count > 0) made.push_back(std::move(h));
  return made;
}

}  // namespace octavo::monitor
