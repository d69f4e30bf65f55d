#include "monitor/loss_watch.h"

#include <algorithm>
#include <cmath>

namespace octavo::monitor {
namespace {

constexpr size_t kLeastLosses = 32, kLeastNorms = 16;
constexpr double kSpikeSigmas = 6, kUsualSigmas = 3, kSpikeShare = 0.1;
// Losses that hardly differ would make a spike of everything.
constexpr double kLeastSigmaShare = 1e-3;
constexpr double kExplosion = 10, kYoungExplosion = 100, kUsualNorm = 3;
constexpr double kLeastNorm = 1e-30;         // a logarithm needs one
constexpr double kDecayed = 0.5;             // of the largest learning rate
constexpr double kLeastImprovement = 0.001;  // of the loss, over half the steps
constexpr size_t kLooksPerWindow = 64;
constexpr int64_t kUniformPatience = 100;  // steps after the warm-up
constexpr double kFarAboveUniform = 1.2, kFarAboveInWarmUp = 2;
constexpr size_t kLeastUniform = 2;  // losses

struct HalfMean {
  double mean = 0, variance_of_mean = 0;
};

HalfMean half_mean(const std::vector<double>& ring, size_t begin, size_t count) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; ++i) sum += ring[(begin + i) % ring.size()];
  const double mean = sum / static_cast<double>(count);
  for (size_t i = 0; i < count; ++i) {
    const double off = ring[(begin + i) % ring.size()] - mean;
    squares += off * off;
  }
  const auto n = static_cast<double>(count);
  return {mean, squares / n / n};
}

}  // namespace

SpikeDetector::Verdict SpikeDetector::judge(double loss) const {
  if (losses_.size() < kLeastLosses) return {};
  const auto [median, spread] = losses_.robust_stats();
  const double sigma = std::max(spread, kLeastSigmaShare * std::abs(median));
  const double sigmas = sigma > 0 ? (loss - median) / sigma : 0;
  return {.spike = sigmas > kSpikeSigmas && loss - median > kSpikeShare * std::abs(median),
          .usual = sigmas < kUsualSigmas,
          .median = median,
          .sigmas = sigmas};
}

void SpikeDetector::add(double loss) {
  if (std::isfinite(loss)) losses_.add(loss);
}

double UniformDetector::limit(int64_t step) const {
  if (step <= warmup_steps_) return kFarAboveInWarmUp * uniform_;
  return step <= warmup_steps_ + kUniformPatience ? kFarAboveUniform * uniform_ : uniform_;
}

UniformDetector::Verdict UniformDetector::add(int64_t step, double loss) {
  if (uniform_ <= 0 || !std::isfinite(loss)) return {};
  losses_.add(loss);
  const double median = median_of(losses_.values());
  return {.worse = losses_.size() >= kLeastUniform && median > limit(step),
          .better = median < uniform_,
          .loss = median};
}

bool UniformDetector::worse_evaluation(int64_t step, double loss) const {
  return uniform_ > 0 && loss > limit(step);
}

ExplosionDetector::Verdict ExplosionDetector::judge(double norm) const {
  if (!std::isfinite(norm)) return {.explodes = true, .usual = false};
  if (log_norms_.size() == 0) return {};
  const double log_norm = std::log(std::max(norm, kLeastNorm));
  if (log_norms_.size() < kLeastNorms) {
    const double least = *std::ranges::min_element(log_norms_.values());
    return {.explodes = log_norm - least > std::log(kYoungExplosion), .reference = std::exp(least)};
  }
  const auto [median, sigma] = log_norms_.robust_stats();
  const double off = log_norm - median;
  return {.explodes = off > std::max(std::log(kExplosion), kSpikeSigmas * sigma),
          .usual = off < std::log(kUsualNorm),
          .reference = std::exp(median)};
}

void ExplosionDetector::add(double norm) {
  if (std::isfinite(norm)) log_norms_.add(std::log(std::max(norm, kLeastNorm)));
}

PlateauDetector::PlateauDetector(int64_t steps)
    : steps_(static_cast<size_t>(std::max<int64_t>(steps, 0)) / 2 * 2),
      stride_(std::max<size_t>(steps_ / kLooksPerWindow, 1)) {}

PlateauDetector::Verdict PlateauDetector::add(double loss, double learning_rate) {
  if (steps_ == 0 || !std::isfinite(loss)) return {};
  largest_rate_ = std::max(largest_rate_, learning_rate);
  if (losses_.size() < steps_)
    losses_.push_back(loss);
  else
    losses_[seen_ % steps_] = loss;
  ++seen_;
  if (losses_.size() < steps_ || seen_ % stride_ != 0) return {};
  const HalfMean before = half_mean(losses_, seen_, steps_ / 2);
  const HalfMean after = half_mean(losses_, seen_ + steps_ / 2, steps_ / 2);
  const double wanted = kLeastImprovement * std::abs(before.mean) +
                        std::sqrt(before.variance_of_mean + after.variance_of_mean);
  const double improvement = before.mean - after.mean;
  const bool decayed = learning_rate < kDecayed * largest_rate_;
  return {.looked = true,
          .plateau = improvement < wanted && !decayed,
          .improves = improvement > 2 * wanted,
          .before = before.mean,
          .after = after.mean};
}

}  // namespace octavo::monitor
