#include "dist/lost_ranks.h"

#include <algorithm>
#include <chrono>

#include "base/failure.h"
#include "base/log.h"
#include "rendezvous/keys.h"

namespace octavo::dist {
namespace {

constexpr size_t kLongestError = 500;
constexpr std::string_view kMistake = " left, for wrong use or configuration: ";

// c10d's messages begin with a place in its source and carry a stack, one frame a line; Gloo's end
// with advice for who knows nothing of the others, which are asked here.
std::string plain(const std::string& text) {
  const size_t rank_info = text.starts_with("[/") ? text.find("] ") : std::string::npos;
  const size_t begin = rank_info == std::string::npos ? 0 : rank_info + 2;
  const size_t advice = text.find(" This is typically caused by", begin);
  const size_t end = std::min({text.find('\n', begin), advice, text.size()});
  return text.substr(begin, std::min(end - begin, kLongestError));
}

}  // namespace

bool is_users_mistake(std::string_view verdict) {
  return verdict.find(kMistake) != verdict.npos;
}

std::string without_mistake(const std::string& verdict) {
  return verdict.substr(0, verdict.find(kMistake)) +
         " left, for wrong use or configuration, and says which";
}

void fail_lost(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
               const std::string& collective, int64_t step, const std::string& error) {
  const auto start = std::chrono::steady_clock::now();
  const std::string missed = octavo::str("missed in ", collective, " at step ", step);
  std::string verdict = "it cannot be found out which rank is lost";
  if (rendezvous.watch != nullptr) {
    rendezvous.watch->set_where(octavo::str(collective, " at step ", step));
    verdict = rendezvous.watch->ask(octavo::str("failed in ", collective, " at step ", step));
  }
  if (is_users_mistake(verdict))
    fail_as(Failure::kPeerLost, "dist", without_mistake(verdict), "; ", missed);
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::steady_clock::now() - start)
                          .count() /
                      100;
  // Said here and not only where the Error is caught: what is in between may hang or be ended.
  log_error(octavo::str(verdict, "; ", missed, " by rank ", rank_info.rank, " (", plain(error),
                        "; then the others were asked for ", tenths / 10, ".", tenths % 10, " s)"));
  fail_as(Failure::kPeerLost, "dist", verdict, "; ", missed);
}

void announce_exit(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                   const std::string& error, ExitCode code) noexcept {
  try {
    if (rendezvous.watch == nullptr || rendezvous.watch->failed()) return;
    const std::string text = octavo::str(
        "rank ", rank_info.rank, code == ExitCode::kUsage ? kMistake : " left: ", plain(error));
    rendezvous.watch->set_leaving(static_cast<int>(code), text);
    if (rendezvous.client != nullptr) {
      const std::string prefix = rendezvous::generation_prefix(rank_info.generation);
      rendezvous.client->set_answer_timeout(std::chrono::milliseconds(3000));
      rendezvous.client->compare_set(prefix + "left", "", text);
      rendezvous.client->compare_set(prefix + "alarm", "", text);
    } else {
      rendezvous.store->compareSet("left", "", text);
      rendezvous.store->compareSet("alarm", "", text);
    }
  } catch (const std::exception& problem) {
    log_warn(
        octavo::str("the other ranks could not be told why this one leaves: ", problem.what()));
  }
}

void announce_hang(Rendezvous& rendezvous, const std::string& text) noexcept {
  try {
    if (rendezvous.watch == nullptr || rendezvous.watch->failed()) return;
    rendezvous.watch->set_leaving(static_cast<int>(ExitCode::kEnvironment), text);
    rendezvous.watch->store().set_first("left", text);
    rendezvous.watch->store().set_first("alarm", text);
  } catch (const std::exception& problem) {
    log_warn(octavo::str("the other ranks could not be told of the hang: ", problem.what()));
  }
}

}  // namespace octavo::dist
