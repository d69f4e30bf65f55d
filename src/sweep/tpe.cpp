#include "sweep/tpe.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/random.h"

namespace octavo::sweep {
namespace {

// A list has few values: the best of many candidates would be the same one every time, and a value
// that had bad luck early would never be tried again.
constexpr int kCandidates = 24, kListCandidates = 2;

double normal_below(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

// A mixture of Gaussians cut to (0, 1), and the uniform prior as one more part of the same weight.
class ParzenDensity {
 public:
  explicit ParzenDensity(std::vector<double> centres) : centres_(std::move(centres)) {
    std::ranges::sort(centres_);
    const size_t count = centres_.size();
    const double narrowest = 1.0 / static_cast<double>(std::min<size_t>(100, count + 1));
    for (size_t i = 0; i < count; ++i) {
      // As wide as the larger gap to a neighbour, so that lonely points speak for their
      // neighbourhood.
      const double left = centres_[i] - (i == 0 ? 0 : centres_[i - 1]);
      const double right = (i + 1 == count ? 1 : centres_[i + 1]) - centres_[i];
      widths_.push_back(std::clamp(std::max(left, right), narrowest, 1.0));
    }
  }

  double at(double x) const {
    double sum = 1;  // the prior
    for (size_t i = 0; i < centres_.size(); ++i) {
      const double z = (x - centres_[i]) / widths_[i];
      const double inside =
          normal_below((1 - centres_[i]) / widths_[i]) - normal_below(-centres_[i] / widths_[i]);
      sum += std::exp(-0.5 * z * z) / (widths_[i] * std::sqrt(2 * std::numbers::pi) * inside);
    }
    return sum / static_cast<double>(centres_.size() + 1);
  }

  double drawn(Draws& random) const {
    const auto part = static_cast<size_t>(random.next() * static_cast<double>(centres_.size() + 1));
    if (part >= centres_.size()) return random.next();
    for (int tries = 0; tries < 64; ++tries) {
      const double x = centres_[part] + widths_[part] * random.next_normal();
      if (x > 0 && x < 1) return x;
    }
    return centres_[part];
  }

 private:
  std::vector<double> centres_, widths_;
};

// Shares of a list's values: their counts, with the prior as one observation of each.
class ListDensity {
 public:
  ListDensity(const Parameter& parameter, const std::vector<double>& draws)
      : parameter_(parameter), shares_(parameter.values.size()) {
    const auto count = static_cast<double>(shares_.size());
    for (size_t i = 0; i < shares_.size(); ++i)
      shares_[i] = parameter.probabilities.empty() ? 1 : count * parameter.probabilities[i];
    for (const double u : draws) shares_[index_at(parameter_, u)] += 1;
    for (double& share : shares_) share /= static_cast<double>(draws.size()) + count;
  }

  double at(double u) const { return shares_[index_at(parameter_, u)]; }
  double drawn(Draws& random) const {
    double u = random.next();
    for (size_t i = 0; i < shares_.size(); ++i) {
      if (u < shares_[i]) return middle_of(parameter_, i);
      u -= shares_[i];
    }
    return middle_of(parameter_, shares_.size() - 1);
  }

 private:
  const Parameter& parameter_;
  std::vector<double> shares_;
};

template <typename Density>
double best_candidate(const Density& good, const Density& rest, int candidates, Draws& random) {
  double best = 0.5, best_ratio = -1;
  for (int i = 0; i < candidates; ++i) {
    const double x = good.drawn(random);
    const double ratio = good.at(x) / rest.at(x);
    if (ratio > best_ratio) {
      best = x;
      best_ratio = ratio;
    }
  }
  return best;
}

}  // namespace

double Draws::next() {
  static const uint64_t kStream = stream_of("sweep");
  const auto bits = philox(seed_, kStream ^ mix64(trial_), position_++);
  const uint64_t wide = (static_cast<uint64_t>(bits[0]) << 32) | bits[1];
  return (static_cast<double>(wide >> 12) + 0.5) * 0x1p-52;
}

double Draws::next_normal() {
  const double radius = std::sqrt(-2 * std::log(next()));
  return radius * std::cos(2 * std::numbers::pi * next());
}

std::vector<double> tpe_draws(const std::vector<Parameter>& parameters,
                              const std::vector<SeenTrial>& seen, Draws& random) {
  std::vector<const SeenTrial*> judged;
  for (const SeenTrial& trial : seen)
    if (trial.value) judged.push_back(&trial);
  std::vector<double> draws(parameters.size());
  if (judged.size() < kFirstRandomTrials) {
    std::ranges::generate(draws, [&] { return random.next(); });
    return draws;
  }
  std::ranges::stable_sort(judged, {}, [](const SeenTrial* trial) { return *trial->value; });
  const double count = static_cast<double>(judged.size());
  const auto good = static_cast<size_t>(std::clamp(std::ceil(0.2 * count), 2.0, 25.0));
  for (size_t p = 0; p < parameters.size(); ++p) {
    std::vector<double> low, high;
    for (size_t i = 0; i < judged.size(); ++i)
      (i < good ? low : high).push_back(judged[i]->draws[p]);
    for (const SeenTrial& trial : seen)
      if (!trial.value) high.push_back(trial.draws[p]);
    const Parameter& parameter = parameters[p];
    if (parameter.kind == Kind::kConstant)
      draws[p] = 0.5;
    else if (parameter.kind == Kind::kCategorical)
      draws[p] = best_candidate(ListDensity(parameter, low), ListDensity(parameter, high),
                                kListCandidates, random);
    else
      draws[p] = best_candidate(ParzenDensity(low), ParzenDensity(high), kCandidates, random);
  }
  return draws;
}

}  // namespace octavo::sweep
