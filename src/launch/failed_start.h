#pragma once
// A launcher that cannot start its ranks (a wrong flag, another config than node 0's) tells node 0.
// Its ranks would wait for this node until dist_timeout, and be started again to wait once more.

#include "base/error.h"
#include "config/settings.h"
#include "launch/rank_info.h"
#include "rendezvous/client.h"

namespace octavo::launch {

// Wrong use ends the run if it cannot do without this node, unless another launcher of the node
// takes part in it.
void tell_failed_start(rendezvous::Client& client, int node, const Error& error) noexcept;

// The same of a launcher that has not joined. A node 0 that does not answer within seconds is not
// waited for.
void tell_failed_start(const config::Settings& settings, const Variables& variables,
                       const Error& error) noexcept;

}  // namespace octavo::launch
