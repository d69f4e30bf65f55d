#include "data/packer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace octavo::data {

std::optional<PackedSample> Packer::add(std::span<const int32_t> document) {
  OCTAVO_ASSERT(!document.empty() && document.size() <= length_);
  // The fullest sample with enough room; the oldest of equals.
  size_t best = open_.size();
  for (size_t i = 0; i < open_.size() && max_open_ > 0; ++i) {
    if (open_[i].tokens.size() + document.size() > length_) continue;
    if (best == open_.size() || open_[i].tokens.size() > open_[best].tokens.size()) best = i;
  }
  if (best == open_.size()) open_.emplace_back();
  PackedSample& sample = open_[best];
  sample.tokens.insert(sample.tokens.end(), document.begin(), document.end());
  sample.ends.push_back(sample.tokens.size());
  if (sample.tokens.size() == length_) return take(best);
  if (open_.size() <= max_open_) return std::nullopt;
  const auto fullest = std::max_element(open_.begin(), open_.end(), [](auto& a, auto& b) {
    return a.tokens.size() < b.tokens.size();
  });
  return take(static_cast<size_t>(fullest - open_.begin()));
}

PackedSample Packer::take(size_t index) {
  PackedSample sample = std::move(open_[index]);
  open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
  return sample;
}

std::vector<PackedSample> Packer::take_all() {
  return std::exchange(open_, {});
}

}  // namespace octavo::data
