#pragma once
// What a rank says when the run cannot continue: which rank was lost and in which collective it was
// missed, or why this one leaves.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "dist/rendezvous_store.h"
#include "launch/rank_info.h"

namespace octavo::dist {

// A collective ("reduce-scatter of layers.3 (#123, group shard)") failed or timed out: asks the
// others, logs one line that names the lost rank, and fails with kEnvironment. Takes some seconds.
[[noreturn]] void fail_lost(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                            const std::string& collective, int64_t step, const std::string& error);

// This rank is about to fail by itself with `code`: the others will name it and `error`. Takes a
// second at most; after fail_lost it does nothing.
void announce_exit(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                   const std::string& error, ExitCode code = ExitCode::kEnvironment) noexcept;

// Whether an alarm or a verdict is announce_exit's of wrong use (kUsage). The rank that found the
// mistake says it, and rank 0's watch as soon as it knows; thousands that repeat it would bury it.
bool is_users_mistake(std::string_view verdict);
// Such a verdict for all that is said after that: who left, and not why.
std::string without_mistake(const std::string& verdict);

// The watch over hangs ends this rank next: the others will name `text`. Takes some seconds at
// most; uses the watch's own connection, since the main thread may hang with any other.
void announce_hang(Rendezvous& rendezvous, const std::string& text) noexcept;

}  // namespace octavo::dist
