#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"

namespace octavo::data {
namespace {

constexpr uint64_t kMarkEvery = 256;
constexpr uint64_t kKeptLength = 4 * kLongestPeriod;  // of all tables
constexpr uint64_t kNever = UINT64_MAX;
constexpr size_t kMostSources = UINT16_MAX;

// As they were typed: times a power of ten that makes all of them whole. Empty: there is none.
std::vector<uint64_t> whole_numbers(const std::vector<double>& weights) {
  double scale = 1;
  for (int digits = 0; digits <= 12; ++digits, scale *= 10) {
    std::vector<uint64_t> numbers;
    for (const double weight : weights) {
      const double scaled = weight * scale, nearest = std::nearbyint(scaled);
      if (scaled > 0x1p53) return {};
      if (std::abs(scaled - nearest) > 1e-9 * scaled) break;
      numbers.push_back(static_cast<uint64_t>(nearest));
    }
    if (numbers.size() == weights.size()) return numbers;
  }
  return {};
}

// Of kLongestPeriod, by the largest remainders; each source that has a weight gets one at least.
std::vector<uint64_t> rounded_numbers(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> numbers;
  std::vector<std::pair<double, size_t>> remainders;
  uint64_t given = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double ideal = weights[i] / sum * static_cast<double>(kLongestPeriod);
    const uint64_t least = weights[i] > 0 ? 1 : 0;
    numbers.push_back(std::max(least, static_cast<uint64_t>(ideal)));
    remainders.emplace_back(static_cast<double>(numbers[i]) - ideal, i);  // smallest: the neediest
    given += numbers[i];
  }
  std::ranges::sort(remainders);
  for (size_t i = 0; given < kLongestPeriod; ++i, ++given)
    ++numbers[remainders[i % remainders.size()].second];
  for (; given > kLongestPeriod; --given) --*std::ranges::max_element(numbers);
  return numbers;
}

// Samples of a period that have `count` of the source, at most.
uint64_t latest(const Parts& parts, size_t source, uint64_t count) {
  return ceil_div(count * parts.sum, uint64_t{parts.of[source]});
}

}  // namespace

Parts whole_parts(const std::vector<double>& weights) {
  Parts parts;
  const auto divided = [&parts](const std::vector<uint64_t>& numbers) {
    uint64_t divisor = 0;
    for (const uint64_t number : numbers) divisor = std::gcd(divisor, number);
    parts.of.clear();
    parts.sum = 0;
    if (divisor == 0) return false;
    for (const uint64_t number : numbers) {
      parts.sum += number / divisor;
      if (parts.sum > kLongestPeriod) return false;
      parts.of.push_back(static_cast<uint32_t>(number / divisor));
    }
    return true;
  };
  if (divided(whole_numbers(weights))) return parts;
  parts.exact = false;
  const bool done = divided(rounded_numbers(weights));
  OCTAVO_ASSERT(done);
  return parts;
}

MixturePattern::MixturePattern(Parts parts)
    : parts_(std::move(parts)), counts_(parts_.of.size(), 0) {
  for (size_t k = 0; k < parts_.of.size(); ++k)
    if (parts_.of[k] > 0) waiting_.push({0, k});
}

void MixturePattern::make(uint64_t length) const {
  for (uint64_t place = table_.size(); place < length; ++place) {
    if (place % kMarkEvery == 0) marks_.insert(marks_.end(), counts_.begin(), counts_.end());
    for (; !waiting_.empty() && waiting_.top().time <= place; waiting_.pop()) {
      const size_t source = waiting_.top().source;
      ready_.push({ceil_div((counts_[source] + 1) * size(), uint64_t{parts_.of[source]}), source});
    }
    OCTAVO_ASSERT(!ready_.empty() && ready_.top().time > place);
    const size_t source = ready_.top().source;
    ready_.pop();
    table_.push_back(static_cast<uint16_t>(source));
    ++counts_[source];
    waiting_.push({counts_[source] * size() / parts_.of[source], source});
  }
}

uint64_t MixturePattern::made() const {
  const std::lock_guard lock(mutex_);
  return table_.size();
}

size_t MixturePattern::source(uint64_t index) const {
  const std::lock_guard lock(mutex_);
  make(index + 1);
  return table_[index];
}

uint64_t MixturePattern::count(size_t source, uint64_t length) const {
  if (length == 0) return 0;
  const std::lock_guard lock(mutex_);
  // The last mark is before the last sample: of a whole period the rest is counted.
  const uint64_t last = std::min(length, size() - 1), mark = last / kMarkEvery;
  make(last + 1);
  const auto first = table_.begin() + static_cast<ptrdiff_t>(mark * kMarkEvery);
  return marks_[mark * counts_.size() + source] +
         static_cast<uint64_t>(std::count(first, table_.begin() + static_cast<ptrdiff_t>(length),
                                          static_cast<uint16_t>(source)));
}

uint64_t MixturePattern::length_of(size_t source, uint64_t count) const {
  const std::lock_guard lock(mutex_);
  make(latest(parts_, source, count));
  uint64_t mark = 0, end = marks_.size() / counts_.size();  // the last mark with fewer
  while (end - mark > 1) {
    const uint64_t middle = (mark + end) / 2;
    (marks_[middle * counts_.size() + source] < count ? mark : end) = middle;
  }
  uint64_t found = marks_[mark * counts_.size() + source], place = mark * kMarkEvery;
  for (; found < count; ++place) found += table_[place] == source ? 1 : 0;
  return place;
}

Mixture::Mixture(std::vector<Source> sources, std::vector<MixtureChange> changes)
    : sources_(std::move(sources)), changes_(std::move(changes)) {
  OCTAVO_ASSERT(problem_of(changes_, sources_.size()).empty());
  for (size_t i = 0; i < changes_.size() && end_ == 0; ++i)
    add_phases(changes_[i], i + 1 < changes_.size() ? changes_[i + 1].at : kNever);
  if (phases_.empty() || phases_.front().begin != 0 || end_ > kMaxSamples)
    fail(ExitCode::kUsage, "data", "wanted from 1 to 2^62 samples in a mixture, found ", end_,
         "; give more data, or other weights and max_epochs");
}

namespace {

using Position128 = unsigned __int128;

// The position behind the last sample of a source, or bounds of it that need no table.
struct Leaving {
  size_t source;
  Position128 period;  // begins here
  uint64_t count;      // its samples in that period
  Position128 earliest, latest;
};

Leaving leaving(const Mixture::Phase& phase, size_t source, uint64_t left) {
  const uint64_t part = phase.parts.of[source], sum = phase.parts.sum;
  const uint64_t count = (left - 1) % part + 1;
  const Position128 period = Position128{(left - 1) / part} * sum + phase.begin;
  return {source, period, count, period + (count - 1) * sum / part + 1,
          period + latest(phase.parts, source, count)};
}

}  // namespace

// Phases from change.at to `until`; sets end_ when no source is left before it.
void Mixture::add_phases(const MixtureChange& change, uint64_t until) {
  Phase phase{.begin = change.at, .counts = {}, .parts = {}, .left = {}};
  for (size_t k = 0; k < sources_.size(); ++k) phase.counts.push_back(count(k, change.at));
  std::vector<uint64_t> most;
  for (size_t k = 0; k < sources_.size(); ++k)
    most.push_back(change.max_epochs[k] == 0
                       ? kNever
                       : checked_mul(sources_[k].samples, change.max_epochs[k], "max_epochs"));
  std::vector<double> weights = change.weights;
  for (;;) {
    for (size_t k = 0; k < weights.size(); ++k) {
      if (weights[k] <= 0 || phase.counts[k] < most[k]) continue;
      weights[k] = 0;
      if (!phases_.empty() && phases_.back().parts.of[k] > 0) phase.left.push_back(k);
    }
    if (std::ranges::none_of(weights, [](double weight) { return weight > 0; })) {
      end_ = phase.begin;
      return;
    }
    phase.parts = whole_parts(weights);
    phases_.push_back(phase);
    const auto table = pattern(phases_.size() - 1);
    // Before the first source leaves: of those that may be it, with the last of their samples.
    std::vector<Leaving> all;
    Position128 next = until, latest_end = until;
    for (size_t k = 0; k < weights.size(); ++k) {
      if (weights[k] <= 0 || most[k] == kNever) continue;
      all.push_back(leaving(phase, k, most[k] - phase.counts[k]));
      latest_end = std::min(latest_end, all.back().latest);
    }
    for (const Leaving& one : all)
      if (one.earliest <= latest_end)
        next = std::min(next, one.period + table->length_of(one.source, one.count));
    if (next >= until) return;
    const auto begin = static_cast<uint64_t>(next);
    for (size_t k = 0; k < weights.size(); ++k) phase.counts[k] = count(k, begin);
    phase.begin = begin;
    phase.left.clear();
  }
}

size_t Mixture::phase_number(uint64_t position) const {
  const auto after = std::ranges::upper_bound(phases_, position, {}, &Phase::begin);
  return static_cast<size_t>(after - phases_.begin()) - 1;
}

std::shared_ptr<const MixturePattern> Mixture::pattern(size_t phase) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const MixturePattern>& kept = patterns_[phase];
  if (kept != nullptr) return kept;
  uint64_t made = 0;
  for (const auto& [number, pattern] : patterns_) made += pattern == nullptr ? 0 : pattern->made();
  if (made > kKeptLength) std::erase_if(patterns_, [&](const auto& p) { return p.first != phase; });
  kept = std::make_shared<const MixturePattern>(phases_[phase].parts);
  return kept;
}

Mixture::Place Mixture::at(uint64_t position) const {
  if (end_ > 0) position %= end_;
  const size_t number = phase_number(position);
  const Phase& phase = phases_[number];
  const auto table = pattern(number);
  const uint64_t periods = (position - phase.begin) / phase.parts.sum;
  const uint64_t inside = (position - phase.begin) % phase.parts.sum;
  const size_t source = table->source(inside);
  return {source,
          phase.counts[source] + periods * phase.parts.of[source] + table->count(source, inside)};
}

uint64_t Mixture::count(size_t source, uint64_t position) const {
  if (phases_.empty()) return 0;
  if (end_ > 0) position = std::min(position, end_);
  const size_t number = phase_number(position);
  const Phase& phase = phases_[number];
  const uint64_t periods = (position - phase.begin) / phase.parts.sum;
  const uint64_t inside = (position - phase.begin) % phase.parts.sum;
  return phase.counts[source] + periods * phase.parts.of[source] +
         (inside == 0 ? 0 : pattern(number)->count(source, inside));
}

std::vector<MixtureChange> once_each(const std::vector<uint64_t>& samples) {
  return {{.at = 0,
           .weights = {samples.begin(), samples.end()},
           .max_epochs = std::vector<uint64_t>(samples.size(), 1)}};
}

std::string problem_of(const std::vector<MixtureChange>& changes, size_t sources) {
  if (sources == 0 || sources > kMostSources || changes.empty() || changes.front().at != 0)
    return "wanted weights from sample 0 on";
  for (size_t i = 0; i < changes.size(); ++i) {
    const MixtureChange& change = changes[i];
    if (change.weights.size() != sources || change.max_epochs.size() != sources)
      return str("wanted weights and max_epochs of ", sources, " sources, found ",
                 change.weights.size(), " and ", change.max_epochs.size());
    if (i > 0 && change.at <= changes[i - 1].at) return "wanted changes in ascending order";
    double sum = 0;
    for (const double weight : change.weights) {
      if (!(weight >= 0 && weight <= 0x1p62)) return "wanted weights from 0 to 2^62";
      sum += weight;
    }
    if (!(sum > 0)) return "wanted a weight above 0";
  }
  return "";
}

}  // namespace octavo::data
