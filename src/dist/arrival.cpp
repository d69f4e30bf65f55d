#include "dist/arrival.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "dist/lost_ranks.h"
#include "rendezvous/keys.h"

namespace octavo::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSignalSlice{500};  // of torchrun's store: signals are looked at between
constexpr milliseconds kSayWaiting{2'000};

// The key is there. False: the time is over, or `look` wants to look around. Our own store is asked
// once and `look` looks without a message; torchrun's is asked again for every look.
bool is_there(Rendezvous& rendezvous, const launch::RankInfo& rank_info, const std::string& key,
              milliseconds timeout, const std::function<bool()>& look) {
  try {
    if (rendezvous.client != nullptr)
      return rendezvous.client->wait_unless(
          {rendezvous::generation_prefix(rank_info.generation) + key}, timeout, look);
    rendezvous.store->wait({key}, std::min(timeout, kSignalSlice));
    return true;
  } catch (const c10::DistStoreError&) {
  } catch (const rendezvous::TimedOut&) {
  } catch (const rendezvous::Unreachable& error) {
    fail_lost(rendezvous, rank_info, "connecting", 0, error.what());
  }
  return false;
}

}  // namespace

void wait_for_ranks(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                    milliseconds timeout) {
  c10d::Store& store = *rendezvous.store;
  const std::string all_here = "ranks/all_here", arrived = "ranks/arrived";
  const auto start = std::chrono::steady_clock::now();
  if (store.add(arrived, 1) >= rank_info.ranks) store.set(all_here, std::vector<uint8_t>{1});
  bool said = false;
  const auto passed = [&] {
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
  };
  const auto fails = [&] { return rendezvous.watch != nullptr && rendezvous.watch->failed(); };
  const auto look = [&] {
    return stop_requested() || fails() || (!said && passed() >= kSayWaiting);
  };
  for (;;) {
    const auto left = std::max(timeout - passed(), milliseconds(1));
    if (is_there(rendezvous, rank_info, all_here, left, look)) return;
    const bool late = passed() >= timeout;
    if (!stop_requested() && !late && !fails() && (said || passed() < kSayWaiting)) continue;
    const std::string count =
        octavo::str(store.add(arrived, 0), " of ", rank_info.ranks, " ranks are here");
    if (stop_requested()) {
      const std::string why = octavo::str("asked to stop (", stop_reason(),
                                          ") while waiting for ranks: ", count, "; no step ran");
      announce_exit(rendezvous, rank_info, why, ExitCode::kStopped);
      fail(ExitCode::kStopped, "dist", why);
    }
    if (fails() || late) fail_lost(rendezvous, rank_info, "connecting", 0, count);
    log_info(octavo::str("waiting for the other ranks: ", count));
    said = true;
  }
}

}  // namespace octavo::dist
