#pragma once
// What all launchers of a run must have been told alike. Nodes are started one by one: where they
// differ, ranks count themselves differently, or one launcher waits beside the run for ever.

#include <cstdint>
#include <string>

#include "config/settings.h"
#include "launch/rank_info.h"
#include "rendezvous/client.h"

namespace octavo::launch {

struct RunTerms {
  int least = 1, most = 1;  // nodes that have ranks
  int spares = 0;           // nodes beside them
  int local_ranks = 1;      // of each node
  int max_restarts = 0;
};

// `node` as node_rank_info has it.
RunTerms terms_of(const config::Settings& settings, const RankInfo& node);

// "nnodes 2 (node 0 has 1:2)", of each option that differs; "" when none does.
std::string differences(const RunTerms& own, const RunTerms& first);

// Node 0 says its terms before the others can join; an Error of kUsage in one that differs.
void say_terms(rendezvous::Client& client, const RunTerms& own);
void check_terms(rendezvous::Client& client, int node, const RunTerms& own);

}  // namespace octavo::launch
