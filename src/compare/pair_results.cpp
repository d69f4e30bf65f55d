#include "compare/pair_results.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octavo::compare {
namespace {

constexpr size_t kTimeBlocks = 8, kLeastBlockSteps = 3;

struct PairedRow {
  std::vector<double> a, b, difference;
  void add(double first, double second) {
    a.push_back(first);
    b.push_back(second);
    difference.push_back(second - first);
  }
};

Gap percent_gap(const PairedRow& row, bool paired) {
  Gap gap{mean_of(row.a), mean_of(row.b), {}, row.a.size() < kLeastEvaluations};
  const double scale = gap.a > 0 ? 100 / gap.a : 0;
  if (gap.open) {
    const double mean = (gap.b - gap.a) * scale;
    gap.interval = {mean, mean, mean, static_cast<double>(row.a.size())};
  } else {
    gap.interval = (paired ? correlated_mean(row.difference) : correlated_difference(row.a, row.b))
                       .times(scale);
  }
  return gap;
}

void judge_training(Pair& pair, double tail_share) {
  const std::vector<int64_t>& steps = pair.pairing.steps;
  if (!pair.pairing.comparable) return void(pair.no_train = pair.pairing.why);
  const size_t count =
      static_cast<size_t>(std::ceil(tail_share * static_cast<double>(steps.size())));
  pair.tail_steps = count;
  if (count < 4) {
    const double wanted = std::ceil(static_cast<double>(kLeastTailSteps) / tail_share);
    pair.no_train = str("the runs have ", steps.size(), " steps in common, and a verdict needs ",
                        wanted, ": longer runs (max_steps)");
    return;
  }
  pair.tail_from = steps[steps.size() - count];
  PairedRow row;
  for (size_t i = steps.size() - count; i < steps.size(); ++i)
    row.add(*pair.a->steps.at(steps[i]).loss, *pair.b->steps.at(steps[i]).loss);
  pair.train = percent_gap(row, pair.pairing.same_batches);
}

// The evaluations in the last part of what both have: their mean is the pair's result.
void judge_validation(Pair& pair, double tail_share) {
  if (!pair.pairing.validation) return void(pair.no_validation = pair.pairing.why);
  std::vector<int64_t> common;
  for (const auto& [step, loss] : pair.a->evaluations)
    if (const auto other = pair.b->evaluations.find(step);
        loss && other != pair.b->evaluations.end() && other->second)
      common.push_back(step);
  if (common.empty())
    return void(pair.no_validation = "the runs have no evaluation in common (see eval_freq)");
  const auto last = static_cast<double>(common.back());
  PairedRow row;
  for (const int64_t step : common)
    if (static_cast<double>(step) >= (1 - tail_share) * last)
      row.add(*pair.a->evaluations.at(step), *pair.b->evaluations.at(step));
  pair.evaluations = row.a.size();
  pair.validation = percent_gap(row, /*paired=*/true);
}

// Where one run says its tokens per second of one GPU, as torchtitan's text log, the other's are
// taken of one too, if its GPUs are known; else there is nothing to compare.
std::string take_rates_of_one_gpu(RunFolder& a, RunFolder& b) {
  if (a.rate_of_one_gpu == b.rate_of_one_gpu) return "";
  RunFolder &one = a.rate_of_one_gpu ? a : b, &all = a.rate_of_one_gpu ? b : a;
  if (all.ranks > 0) {
    for (auto& [step, point] : all.steps)
      if (const auto speed = point.speed())
        point.tokens_per_second = *speed / static_cast<double>(all.ranks);
    all.rate_of_one_gpu = true;
    return "";
  }
  for (auto& [step, point] : one.steps) point.tokens_per_second = 0;
  return str("the tokens per second of ", one.name(), " are of one GPU, those of ", all.name(),
             " of all, and nothing says how many there are");
}

// Of the steps that both runs have, in tokens per second: steps of a larger batch take longer and
// do more.
struct Speeds {
  std::vector<double> a, b, tokens_a, tokens_b;
};

Speeds common_speeds(const Pair& pair) {
  Speeds speeds;
  for (const auto& [step, point] : pair.a->steps)
    if (const auto other = pair.b->steps.find(step);
        other != pair.b->steps.end() && point.speed() && other->second.speed()) {
      speeds.a.push_back(*point.speed());
      speeds.b.push_back(*other->second.speed());
      speeds.tokens_a.push_back(point.step_tokens);
      speeds.tokens_b.push_back(other->second.step_tokens);
    }
  return speeds;
}

// Steps one after the other are alike in speed (another program ran, a GPU was warm), so a few long
// blocks of them are compared, each by its median. The first tenth is warming up.
void judge_speed(Pair& pair) {
  if (!pair.no_speed.empty()) return;
  pair.speed_of_one_gpu = pair.a->rate_of_one_gpu && pair.b->rate_of_one_gpu;
  const Speeds speeds = common_speeds(pair);
  const size_t count = speeds.a.size(), skipped = std::max<size_t>(2, count / 10);
  const size_t left = count > skipped ? count - skipped : 0;
  if (count == 0 && (pair.a->is_foreign() || pair.b->is_foreign()))
    return void(pair.no_speed =
                    "the logs have no steps in common with their time and tokens (where they "
                    "have times: --step_tokens N, global batch size x sequence length)");
  if (left < kTimeBlocks * kLeastBlockSteps) {
    pair.no_speed = str("the runs have ", count, " steps with a time and tokens in common, and ",
                        kTimeBlocks * kLeastBlockSteps + 2, " are needed: longer runs (max_steps)");
    return;
  }
  const auto part = [&](const std::vector<double>& values, size_t block, size_t blocks) {
    const auto at = [&](size_t i) {
      return values.begin() + static_cast<std::ptrdiff_t>(skipped + i * left / blocks);
    };
    return median_of({at(block), at(block + 1)});
  };
  std::vector<double> a, b, ratios;  // logarithms
  for (size_t i = 0; i < kTimeBlocks; ++i) {
    a.push_back(std::log(part(speeds.a, i, kTimeBlocks)));
    b.push_back(std::log(part(speeds.b, i, kTimeBlocks)));
    ratios.push_back(b.back() - a.back());
  }
  pair.speed =
      Gap{std::exp(mean_of(a)), std::exp(mean_of(b)), independent_mean(ratios).exponential()};
  pair.step_tokens_a = part(speeds.tokens_a, 0, 1);
  pair.step_tokens_b = part(speeds.tokens_b, 0, 1);
}

}  // namespace

Pair compare_pair(RunFolder a, RunFolder b, double tail_share) {
  Pair pair;
  pair.no_speed = take_rates_of_one_gpu(a, b);
  pair.a = std::make_shared<const RunFolder>(std::move(a));
  pair.b = std::make_shared<const RunFolder>(std::move(b));
  pair.pairing = pair_up(*pair.a, *pair.b);
  judge_training(pair, tail_share);
  judge_validation(pair, tail_share);
  judge_speed(pair);
  return pair;
}

}  // namespace octavo::compare
