#include "monitor/expert_watch.h"

#include <algorithm>

namespace octavo::monitor {
namespace {

constexpr double kIdle = 0.01, kUsed = 0.05;        // of an even share
constexpr double kCrowded = 0.5, kUncrowded = 0.4;  // of the way from even use to all tokens

// One expert in the verdict: `badness` grows with the trouble.
void judge(double badness, double bad_from, double good_to, const ExpertWatch::Verdict& expert,
           double& worst, ExpertWatch::Verdict& verdict) {
  if (badness > worst) {
    worst = badness;
    verdict.layer = expert.layer, verdict.expert = expert.expert;
    verdict.share = expert.share, verdict.even = expert.even;
  }
  if (badness > bad_from) ++verdict.count;
  verdict.good = verdict.good && badness < good_to;
  verdict.bad = verdict.count > 0;
}

}  // namespace

ExpertWatch::Verdicts ExpertWatch::add(const std::vector<ExpertLoad>& loads) {
  std::vector<double> shares;
  for (const ExpertLoad& load : loads)
    shares.insert(shares.end(), load.token_shares.begin(), load.token_shares.end());
  if (!steps_.empty() && steps_.front().size() != shares.size()) steps_.clear();
  if (steps_.size() < kSteps)
    steps_.push_back(std::move(shares));
  else
    steps_[next_++ % kSteps] = std::move(shares);
  Verdicts verdicts;
  if (steps_.size() < kSteps) return verdicts;

  verdicts.idle.good = verdicts.crowded.good = true;
  double least_used = -2, most_crowded = -2;  // every badness is above
  size_t at = 0;
  for (size_t layer = 0; layer < loads.size(); ++layer) {
    const double even = loads[layer].even_share;
    for (size_t i = 0; i < loads[layer].token_shares.size(); ++i, ++at) {
      double share = 0;
      for (const auto& step : steps_) share += step[at] / static_cast<double>(kSteps);
      const Verdict expert{.layer = static_cast<int64_t>(layer),
                           .expert = static_cast<int64_t>(i),
                           .share = share,
                           .even = even};
      judge(-share / even, -kIdle, -kUsed, expert, least_used, verdicts.idle);
      if (even < 1)  // else every token goes through every expert
        judge((share - even) / (1 - even), kCrowded, kUncrowded, expert, most_crowded,
              verdicts.crowded);
    }
  }
  return verdicts;
}

}  // namespace octavo::monitor
