#include "dist/watch.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/rank_status.h"
#include "dist/lost_ranks.h"

namespace octavo::dist {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kForEver = std::chrono::hours(24 * 30);
constexpr milliseconds kSurvey{2000};      // for every living rank to answer
constexpr milliseconds kOtherDeaths{500};  // after the first that a launcher reported
constexpr milliseconds kAskAgain{100};
constexpr milliseconds kVerdict{4000};  // for the verdict of whoever surveys
constexpr milliseconds kGrace{1000};    // for a main thread to end by itself
constexpr milliseconds kLeavingGrace{10'000};
constexpr milliseconds kAnswer = kSurvey + kVerdict + milliseconds(2000);

std::string named(const std::vector<int64_t>& ranks, int64_t count) {
  std::string text = count == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += octavo::str(i == 0 ? "" : ", ", ranks[i]);
  const auto more = count - static_cast<int64_t>(ranks.size());
  if (more > 0) text += octavo::str(" and ", more, " more");
  return text + (count == 1 ? " is" : " are");
}

}  // namespace

Watch::Watch(launch::RankInfo rank_info, std::shared_ptr<KeyValueStore> store)
    : rank_info_(std::move(rank_info)), store_(std::move(store)), thread_([this] { run(); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  store_->stop();
  thread_.join();
}

void Watch::set_where(const std::string& where) {
  const std::lock_guard lock(mutex_);
  where_ = where;
}

void Watch::set_leaving(int code, const std::string& why) {
  const std::lock_guard lock(mutex_);
  leaving_ = code;
  why_leaving_ = why;
}

void Watch::set_alone() {
  {
    const std::lock_guard lock(mutex_);
    alone_ = true;
  }
  changed_.notify_all();
}

bool Watch::is_alone() const {
  const std::lock_guard lock(mutex_);
  return alone_;
}

bool Watch::failed() const {
  const std::lock_guard lock(mutex_);
  return verdict_.has_value() || leaving_.has_value();
}

std::string Watch::store_is_lost() const {
  return octavo::str(host_of_store(rank_info_),
                     " is lost, or the way to it, and with it the store where ranks are named");
}

bool Watch::is_stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void Watch::publish(const std::string& verdict) {
  const std::lock_guard lock(mutex_);
  if (!verdict_) verdict_ = verdict;
  changed_.notify_all();
}

std::string Watch::ask(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (verdict_) return *verdict_;
  }
  try {
    store_->set_first("alarm", octavo::str("rank ", rank_info_.rank, " ", why));
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);  // it may have come meanwhile
    if (!verdict_) {
      log_warn(error.what());
      verdict_ = store_is_lost();
    }
    return *verdict_;
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kAnswer, [&] { return verdict_.has_value(); });
  return verdict_.value_or("it could not be found out which rank is lost");
}

void Watch::run() {
  std::string alarm;
  try {
    alarm = wait_for_alarm();
    if (is_alone()) {
      store_->set(octavo::str("lost/", rank_info_.rank), "no collective");
      log_warn(octavo::str(alarm, "; this rank needs the others no more and goes on"));
      return;
    }
    const std::string verdict = verdict_on(alarm);
    say(verdict);  // now: whatever ends this rank may not leave it the time
    publish(verdict);
  } catch (const std::exception& error) {
    if (is_stopping()) return;
    // Collectives need no store: the run may continue; it fails by itself if that host was a rank.
    const std::string lost = store_is_lost();
    log_warn(octavo::str(lost, " (", error.what(), ")"));
    publish(lost);
    if (alarm.empty()) return;
  }
  end_process_unless_it_ends(alarm);
}

void Watch::say(const std::string& verdict) const {
  if (!is_users_mistake(verdict)) return log_warn(verdict);
  {
    const std::lock_guard lock(mutex_);
    if (is_users_mistake(why_leaving_)) return;  // who found one ends with it as its last words
  }
  // By rank 0 now: srun -K and mpirun may kill it, and who found it, before either has left.
  if (rank_info_.rank == 0)
    log_error(verdict);
  else
    log_info(verdict);
}

std::string Watch::wait_for_alarm() {
  for (;;) {
    try {
      if (const auto alarm = store_->wait_for("alarm", kForEver)) return *alarm;
    } catch (const rendezvous::Unreachable& error) {
      if (is_stopping()) throw;
      // A connection may break without anybody's end; with the host gone this throws again.
      if (const auto alarm = store_->try_get("alarm")) return *alarm;
      log_warn(octavo::str("the watch over the ranks had to connect again: ", error.what()));
    }
  }
}

// One rank asks for all: ten thousand that ask for ten thousand would be too much for the store.
std::string Watch::verdict_on(const std::string& alarm) {
  std::string where;
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    where = where_;
    leaving = leaving_.has_value();
  }
  store_->set(octavo::str("lost/", rank_info_.rank), where);
  // Who leaves will not be here long enough to ask for the others; after a mistake none is lost.
  if (leaving || is_users_mistake(alarm)) return alarm;
  log_warn(octavo::str("the run ends: ", alarm));
  if (store_->add("surveyors", 1) != 1)
    if (const auto verdict = store_->wait_for("verdict", kVerdict)) return *verdict;
  const std::string verdict = survey();
  store_->set("verdict", verdict);
  // The store may live in this very process: those who wait for the verdict need a moment.
  std::this_thread::sleep_for(milliseconds(200));
  return verdict;
}

// Those that do not answer. A launcher knows at once who has died, and others may only be slow:
// then they are not waited for.
Watch::MissingRanks Watch::missing_ranks() {
  const auto start = Clock::now();
  for (;;) {
    MissingRanks found;
    found.missing = store_->missing("lost/", rank_info_.ranks);
    for (const int64_t rank : found.missing.first)
      if (const auto death = store_->death_of(rank)) found.dead.emplace_back(rank, *death);
    found.waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    const bool all_known = found.dead.size() == static_cast<size_t>(found.missing.count);
    const bool some_known = !found.dead.empty() && found.waited >= kOtherDeaths;
    if (all_known || some_known || found.waited >= kSurvey) return found;
    std::this_thread::sleep_for(kAskAgain);
  }
}

std::string Watch::survey() {
  const MissingRanks found = missing_ranks();
  const int64_t count = found.missing.count;
  std::string text;
  if (!found.dead.empty()) {
    std::vector<int64_t> ranks;
    std::string how;
    for (const auto& [rank, death] : found.dead) {
      ranks.push_back(rank);
      how += octavo::str(how.empty() ? ": " : "; ", death);
    }
    const auto known = static_cast<int64_t>(ranks.size());
    text = named(ranks, known) + " lost" + how;
    if (count > known) text += octavo::str(" (no answer yet from ", count - known, " more)");
  } else if (count > 0) {
    text = octavo::str(named(found.missing.first, count), " lost (no answer within ",
                       found.waited.count(), " ms)");
  }
  if (const auto left = store_->try_get("left"))
    return octavo::str(*left, text.empty() ? "" : "; ", text);
  if (!text.empty()) return text;
  text = octavo::str("all ", rank_info_.ranks, " ranks answer:");
  for (int rank = 0; rank < std::min(rank_info_.ranks, 16); ++rank)
    text += octavo::str(rank == 0 ? " rank " : ", rank ", rank, " in ",
                        store_->try_get(octavo::str("lost/", rank)).value_or("?"));
  return text;
}

void Watch::end_process_unless_it_ends(const std::string& alarm) {
  std::unique_lock lock(mutex_);
  const milliseconds grace = leaving_ ? kLeavingGrace : kGrace;
  if (changed_.wait_for(lock, grace, [&] { return stopping_ || alone_; })) return;
  const std::string ended = "this rank (in " + where_ + ") did not end by itself and is ended";
  if (!is_users_mistake(*verdict_) && !is_users_mistake(why_leaving_))
    log_error(octavo::str(*verdict_, "; ", alarm, "; ", ended));
  else if (leaving_)  // its main thread has not said it
    log_error(octavo::str(why_leaving_, "; ", ended));
  else if (rank_info_.rank == 0)
    log_error(octavo::str(without_mistake(*verdict_), "; ", ended));
  else
    log_info(ended);
  if (!leaving_) note_failure(Failure::kPeerLost);
  std::_Exit(leaving_.value_or(static_cast<int>(ExitCode::kEnvironment)));
}

}  // namespace octavo::dist
