#pragma once
// Until every rank of a run is there.

#include <chrono>

#include "dist/rendezvous_store.h"
#include "launch/rank_info.h"

namespace octavo::dist {

// What Gloo and NCCL wait for, they wait for in the store, where no signal reaches them, and other
// nodes may take as long as a cluster needs to start them: here a stop is heard. A few messages to
// the store for each rank, however long it takes.
void wait_for_ranks(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                    std::chrono::milliseconds timeout);

}  // namespace octavo::dist
