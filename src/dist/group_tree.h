#pragma once
// All ranks as a tree of small groups: every eight consecutive ranks are a group, their first ones
// are again in groups of eight, and so on. A rank connects to seven others for each group that it
// is in, and is in log8 of the ranks at most: Gloo's own group of all ranks would have each rank
// connect to every other one and read a key of each in the store.
//
// For the few numbers that ranks agree on outside of a step. Up to eight ranks it is one group.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/group.h"

namespace octavo::dist {

class GroupTree {
 public:
  static constexpr int kWidth = 8;

  // One group of a level, as this rank is in it: `size` ranks from `first` on, `stride` apart;
  // `number` counts the groups of a level. Level 0 has all ranks.
  struct Place {
    int level = 0, number = 0;
    int rank = 0, size = 1, first = 0, stride = 1;
  };
  // From the lowest level up; the first rank alone is in all of them.
  static std::vector<Place> places(int rank, int ranks);
  static int levels(int ranks);

  using Make = std::function<std::unique_ptr<Group>(const Place&)>;
  GroupTree(int rank, int ranks, const Make& make);

  // Over all ranks, in place: up level by level, and down again. All ranks get the same bits.
  void all_reduce(const std::string& what, const at::Tensor& values, Op op);

  // Calls of all_reduce; bytes and waits of all levels.
  Group::Usage usage() const;

 private:
  static void join(const std::string& what, const at::Tensor& values, Op op, Group& group);

  std::vector<std::unique_ptr<Group>> groups_;  // by level
  int levels_;                                  // of the tree
  int64_t calls_ = 0;
};

}  // namespace octavo::dist
