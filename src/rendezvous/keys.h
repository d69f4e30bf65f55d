#pragma once
// The keys by which launchers and ranks speak about ranks that fail. What ranks write stands under
// their generation (a start of the ranks; each restart counts one more).

#include <cstdint>
#include <string>

namespace octavo::rendezvous {

inline std::string generation_prefix(int generation) {
  return "generation/" + std::to_string(generation) + "/";
}

// Set (to why) by the first who knows that the run cannot continue; every rank watches it and ends.
inline std::string alarm_key(int generation) {
  return generation_prefix(generation) + "alarm";
}

// Set by the launcher of a rank that has ended, to how it ended; cleared before a restart.
inline std::string dead_key(int64_t rank) {
  return "launch/dead/" + std::to_string(rank);
}

}  // namespace octavo::rendezvous
