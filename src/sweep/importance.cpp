#include "sweep/importance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/printed.h"
#include "config/key_makers.h"

namespace octavo::sweep {
namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double correlation_of(const std::vector<double>& x, const std::vector<double>& y) {
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

double correlation_ratio(const std::vector<std::string>& words, const std::vector<double>& ranks) {
  std::map<std::string, std::vector<double>> groups;
  for (size_t i = 0; i < words.size(); ++i) groups[words[i]].push_back(ranks[i]);
  const double mean = mean_of(ranks);
  double between = 0, all = 0;
  for (const auto& [word, group] : groups)
    between += static_cast<double>(group.size()) * std::pow(mean_of(group) - mean, 2);
  for (const double rank : ranks) all += std::pow(rank - mean, 2);
  return all > 0 ? std::sqrt(between / all) : 0;
}

}  // namespace

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i)
      ranks[order[i]] = 0.5 * static_cast<double>(begin + 1 + end);
    begin = end;
  }
  return ranks;
}

std::vector<Importance> importances(const Definition& sweep, const std::vector<Trial>& trials) {
  std::vector<const Trial*> judged;
  std::vector<double> metric;
  for (const Trial& trial : trials) {
    const bool counts =
        trial.state == TrialState::kFinished || trial.state == TrialState::kStoppedEarly;
    if (!counts || !trial.metric || !std::isfinite(*trial.metric)) continue;
    judged.push_back(&trial);
    metric.push_back(*trial.metric);
  }
  std::vector<Importance> result;
  if (judged.size() < 4) return result;
  const std::vector<double> ranks = ranks_of(metric);
  for (size_t p = 0; p < sweep.parameters.size(); ++p) {
    if (!varies(sweep.parameters[p])) continue;
    std::vector<double> numbers;
    std::vector<std::string> words;
    for (const Trial* trial : judged) {
      words.push_back(trial->values[p]);
      if (const auto number = config::parse_number<double>(words.back()))
        numbers.push_back(*number);
    }
    Importance entry{.parameter = sweep.parameters[p].name,
                     .ordered = numbers.size() == words.size()};
    entry.correlation =
        entry.ordered ? correlation_of(ranks_of(numbers), ranks) : correlation_ratio(words, ranks);
    result.push_back(entry);
  }
  std::ranges::stable_sort(result, std::greater{},
                           [](const Importance& entry) { return std::abs(entry.correlation); });
  return result;
}

std::string correlation_text(const Importance& entry) {
  return entry.ordered ? printed("%+.2f", entry.correlation) : printed("%.2f", entry.correlation);
}

}  // namespace octavo::sweep
