#include "dist/group_tree.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/heartbeat.h"

namespace octavo::dist {
namespace {

// The watch over hangs compares how far ranks are by the number of their collectives: one that a
// rank has no part in counts there too.
void count_absent() {
  heartbeat::beats().collectives.fetch_add(2, std::memory_order_relaxed);  // begun and waited for
}

}  // namespace

int GroupTree::levels(int ranks) {
  int levels = 1;
  for (int groups = (ranks - 1) / kWidth + 1; groups > 1; groups = (groups - 1) / kWidth + 1)
    ++levels;
  return levels;
}

std::vector<GroupTree::Place> GroupTree::places(int rank, int ranks) {
  std::vector<Place> places;
  const int most = levels(ranks);
  int64_t stride = 1;
  for (int level = 0; level < most && rank % stride == 0; ++level, stride *= kWidth) {
    const int apart = static_cast<int>(stride);  // less than the ranks
    const int among = rank / apart, all = (ranks - 1) / apart + 1, number = among / kWidth;
    places.push_back({.level = level,
                      .number = number,
                      .rank = among % kWidth,
                      .size = std::min(kWidth, all - number * kWidth),
                      .first = number * kWidth * apart,
                      .stride = apart});
  }
  return places;
}

GroupTree::GroupTree(int rank, int ranks, const Make& make) : levels_(levels(ranks)) {
  for (const Place& place : places(rank, ranks)) groups_.push_back(make(place));
}

void GroupTree::all_reduce(const std::string& what, const at::Tensor& values, Op op) {
  const auto own = static_cast<int>(groups_.size());
  const auto takes_part = [&](int level) {
    if (level < own && groups_[static_cast<size_t>(level)]->size() > 1) return true;
    count_absent();
    return false;
  };
  if (levels_ == 1) {
    if (takes_part(0)) groups_[0]->all_reduce(what, {values}, op).wait();
    return;
  }
  ++calls_;
  for (int level = 0; level < levels_; ++level)
    if (takes_part(level)) join(what, values, op, *groups_[static_cast<size_t>(level)]);
  for (int level = levels_ - 1; level >= 0; --level)
    if (takes_part(level)) groups_[static_cast<size_t>(level)]->broadcast(what, values).wait();
}

// The first rank of the group has what all have, in the order of the ranks. An all-reduce of Gloo
// sends messages in a ring, several to each rank; this is one from each.
void GroupTree::join(const std::string& what, const at::Tensor& values, Op op, Group& group) {
  std::vector<at::Tensor> all;
  for (int rank = 0; group.rank() == 0 && rank < group.size(); ++rank)
    all.push_back(at::empty_like(values));
  group.gather_to_first(what, all, values).wait();
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (op == Op::kSum)
      values.add_(all[rank]);
    else
      values.copy_(at::maximum(values, all[rank]));
  }
}

Group::Usage GroupTree::usage() const {
  Group::Usage all;
  all.all_reduce.calls = calls_;
  for (const auto& group : groups_) {
    const Group::Usage& one = group->usage();
    all.all_reduce.calls += one.all_reduce.calls;  // of a tree of one level
    all.all_reduce.bytes += one.all_reduce.bytes + one.to_first.bytes + one.broadcast.bytes;
    all.waited_seconds += one.waited_seconds;
  }
  return all;
}

}  // namespace octavo::dist
