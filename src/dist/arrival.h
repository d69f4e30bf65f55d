#pragma once
// Until every rank of a run is there.

#include <chrono>
#include <string>

#include "dist/rendezvous_store.h"
#include "launch/rank_info.h"

namespace octavo::dist {

// What Gloo and NCCL wait for, they wait for in the store, where no signal reaches them, and other
// nodes may take as long as a cluster needs to start them: here a stop is heard. A few messages to
// the store for each rank, however long it takes.
void wait_for_ranks(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                    std::chrono::milliseconds timeout);

// What all ranks must have been told alike, a line each ("learning_rate: 0.001"). The first rank
// says it before it waits for the others; each of them compares afterwards, and fails by name. A
// run whose nodes train by other settings does not fail by itself: it only learns less.
void say_settings(Rendezvous& rendezvous, const std::string& settings);
void check_same_settings(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                         const std::string& settings);

}  // namespace octavo::dist
