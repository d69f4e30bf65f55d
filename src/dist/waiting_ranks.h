#pragma once
// Who has not come to where this rank waits. A rank that has waited long for others says so in the
// store, again and again; the first at a place asks which of the others have not come there, and
// whether these wait somewhere else.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace octavo::dist {

class KeyValueStore;

// Where a rank waits: in a collective of a group, or in a step for its GPU.
struct WaitingPlace {
  std::string name;           // the same on all of its ranks, and no other place's
  int64_t order = 0;          // of what all ranks do one after the other
  int first = 0, stride = 1;  // its ranks in the world: first, first + stride, …
  int size = 1, rank = 0;     // of the group; and this one's number in it
};

struct AbsentRanks {
  int64_t count = 0;
  std::vector<int64_t> first;  // 16 of them at most, by their numbers in the world
  std::string text() const;    // "ranks 2, 5 and 30 more"

  // Of those that wait too, somewhere else, and renewed it since this rank first saw it.
  struct Elsewhere {
    int64_t rank = 0;
    WaitingPlace place;  // name and order
  };
  std::vector<Elsewhere> elsewhere;
  bool all_elsewhere() const { return std::ssize(elsewhere) == count; }
};

class WaitingRanks {
 public:
  explicit WaitingRanks(int64_t rank) : rank_(rank) {}
  // Nothing: another rank asks at this place. From one thread, every few seconds while it waits.
  std::optional<AbsentRanks> ask(KeyValueStore& store, const WaitingPlace& place);

 private:
  const int64_t rank_;  // in the world
  int64_t asked_ = 0;
  std::string name_;                      // of the place
  bool asks_ = false;                     // there, for all
  std::map<int64_t, std::string> begun_;  // what others said when this one began to ask there
};

}  // namespace octavo::dist
