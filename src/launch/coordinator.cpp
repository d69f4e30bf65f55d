#include "launch/coordinator.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "launch/failed_start.h"
#include "launch/messages.h"
#include "rendezvous/auth.h"
#include "rendezvous/keys.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPatience{3'000};       // for one answer of the store
constexpr milliseconds kOthersDone{120'000};   // from our ranks' good end to the others'
constexpr milliseconds kOthersFailed{20'000};  // and from a failure: they notice within seconds
constexpr milliseconds kOthersStop{20'000};    // and from a stop: the first rank has most to finish
constexpr milliseconds kReadVerdict{10'000};
// Signals are looked at between slices.
constexpr milliseconds kSlice{1'000}, kPause{300};

Outcome lost_node(int node, const std::string& why) {
  Outcome outcome;
  outcome.code = static_cast<int>(ExitCode::kEnvironment);
  outcome.cause = Cause::kSilent;
  outcome.kind = node == 0 ? EndKind::kLostFirstNode : EndKind::kLostNode;
  outcome.curable = row_of(outcome.kind).curable;
  outcome.what = str("node ", node, " is lost (", why, ")");
  return outcome;
}

bool has_stopped(const Outcome& own) {
  return own.stopped && own.cause == Cause::kNone;
}

// Every launcher prints what is decided about: of which node it is.
Outcome of_node(int node, Outcome outcome) {
  if (outcome.rank >= 0 && !outcome.what.empty())
    outcome.what = str("node ", node, ": ", outcome.what);
  return outcome;
}

}  // namespace

LaunchCoordinator::LaunchCoordinator(int node, int nodes, const std::string& address, int port,
                                     Options options)
    : node_(node), nodes_(nodes), options_(std::move(options)) {
  if (node == 0) server_ = listening(address, port);
  client_ = connected(address, server_ != nullptr ? server_->port() : port);
  client_->set_answer_timeout(kPatience);
  if (node == 0) {
    say_terms(*client_, options_.terms);
    client_->set(kStoreKey, rendezvous::new_secret());
  }
  store_ = client_->get(kStoreKey, kReadVerdict);
  if (node != 0) check_terms(options_.terms);
  for (int each = 0; each < nodes; ++each) members_.push_back(each);
  if (!options_.elastic) return;
  if (node == 0)
    watch_ = std::make_unique<PresenceWatch>(nodes);
  else
    beat_ = std::make_unique<PresenceBeat>(*client_, node);
}

void LaunchCoordinator::check_terms(const RunTerms& own) {
  try {
    launch::check_terms(*client_, node_, own);
  } catch (const Error& error) {
    if (error.code() == ExitCode::kUsage) tell_failed_start(*client_, node_, error);
    throw;
  }
}

std::unique_ptr<rendezvous::Server> LaunchCoordinator::listening(const std::string& address,
                                                                 int port) const {
  const Clock::time_point begin = Clock::now();
  Clock::time_point wrong_since = Clock::time_point::max();
  for (bool said = false;;) {
    try {
      return std::make_unique<rendezvous::Server>(address, port,
                                                  rendezvous::secret_from_environment());
    } catch (const Error& error) {
      const bool is_wrong = dynamic_cast<const rendezvous::WrongAddress*>(&error) != nullptr;
      const milliseconds patience =
          is_wrong ? std::min(options_.resolve, options_.listen) : options_.listen;
      wrong_since = is_wrong ? std::min(wrong_since, Clock::now()) : Clock::time_point::max();
      const Clock::time_point end = (is_wrong ? wrong_since : begin) + patience;
      if (error.code() != ExitCode::kEnvironment || nodes_ == 1 || Clock::now() >= end) throw;
      if (options_.interrupted())
        fail(ExitCode::kStopped, "launch", "asked to stop before node 0 could listen; no rank ran");
      if (!said) log_warn(str(error.what(), "; tried again for ", patience.count() / 1000.0, " s"));
      said = true;
    }
    std::this_thread::sleep_for(kPause);
  }
}

std::unique_ptr<rendezvous::Client> LaunchCoordinator::connected(const std::string& address,
                                                                 int port) const {
  const std::string secret = rendezvous::secret_from_environment();
  const Clock::time_point deadline = Clock::now() + options_.connect;
  Clock::time_point wrong_since = Clock::time_point::max();
  bool said = false, named = false;
  for (;;) {
    const Clock::time_point tried = Clock::now();
    try {
      return std::make_unique<rendezvous::Client>(address, port, secret, kSlice);
    } catch (const rendezvous::Unreachable& error) {
      const bool is_wrong = dynamic_cast<const rendezvous::WrongAddress*>(&error) != nullptr;
      const bool has_none =
          is_wrong || dynamic_cast<const rendezvous::Unresolved*>(&error) != nullptr;
      wrong_since = is_wrong ? std::min(wrong_since, tried) : Clock::time_point::max();
      if (is_wrong && Clock::now() >= wrong_since + options_.resolve) throw;
      const milliseconds patience =
          is_wrong ? std::min(options_.resolve, options_.connect) : options_.connect;
      if (has_none && !named)
        log_warn(str(error.what(), "; tried again for ", patience.count() / 1000.0, " s"));
      named = named || has_none;
      if (Clock::now() >= deadline) throw;
      if (options_.interrupted())
        fail(ExitCode::kStopped, "launch", "asked to stop before node 0 was there; no rank ran");
      if (!said && !has_none) log_info(str("waiting for node 0 at ", address, " port ", port));
      said = said || !has_none;
    }
    std::this_thread::sleep_for(kPause);
  }
}

std::string LaunchCoordinator::waited_for(const std::string& key, Clock::time_point deadline,
                                          bool to_the_end, int node) {
  for (;;) {
    check_store();
    try {
      return client_->get(key, kSlice);
    } catch (const rendezvous::TimedOut&) {
      if (is_missed(node)) throw;
      if (Clock::now() >= deadline || (!to_the_end && options_.interrupted())) throw;
    }
  }
}

// The others are told now that this node's ranks are not there, instead of when they miss them.
void LaunchCoordinator::leave_generation(int generation, const Outcome& end,
                                         const std::string& why) {
  // The alarm first: once all ends are known node 0 goes on to the next generation.
  client_->compare_set(rendezvous::alarm_key(generation), "", why);
  client_->compare_set(end_key(generation, node_), "", written({.outcome = end}));
}

void LaunchCoordinator::decline(int generation) noexcept {
  try {
    if (nodes_ == 1 || node_ == 0) return;
    if (waits_beside_) return beat_->leave();  // the run goes on without it
    const Outcome stopped{
        .code = static_cast<int>(ExitCode::kStopped), .kind = EndKind::kStopped, .stopped = true};
    leave_generation(generation, stopped, str("node ", node_, " was asked to stop"));
  } catch (const std::exception& error) {
    log_warn(str("node 0 could not be told that this node stops: ", error.what()));
  }
}

StartPlan LaunchCoordinator::next_plan(int from, Clock::time_point deadline) {
  for (;; std::this_thread::sleep_for(kPause)) {
    const StartPlan plan = read_plan(waited_for(kPlanKey, deadline));
    if (plan.stop || plan.generation >= from) return plan;
    if (options_.interrupted())
      fail(ExitCode::kStopped, "launch", "asked to stop before the ranks were started again");
    if (Clock::now() >= deadline)
      throw rendezvous::TimedOut(ExitCode::kEnvironment, "launch",
                                 "node 0 has not started the ranks again");
  }
}

StartPlan LaunchCoordinator::start(const StartPlan& plan, milliseconds patience) {
  if (nodes_ == 1) return plan;
  if (node_ == 0) {
    client_->set(node_key(plan.generation, 0), "here");
    client_->set(kPlanKey, written(plan));
    if (!plan.nodes.empty()) members_ = plan.nodes;
    return plan;
  }
  waits_beside_ = false;
  const std::string mine = rendezvous::new_secret();  // of this launcher, not of the node
  const Clock::time_point deadline = Clock::now() + patience;
  for (int from = plan.generation;;) {
    StartPlan found = next_plan(from, deadline);
    if (found.stop) {
      if (options_.elastic) client_->set(left_key(node_), "1");
      return found;
    }
    if (!has_ranks(found)) {
      if (!waits_beside_) log_info(str("node ", node_, " waits beside the run, without ranks"));
      waits_beside_ = true;
      from = found.generation + 1;
      continue;
    }
    waits_beside_ = false;
    if (client_->compare_set(node_key(found.generation, node_), "", mine) == mine) return found;
    // An earlier launcher of this node took part in it; its ranks ended with it.
    const std::string why = str("the launcher of node ", node_, " was started again");
    log_info(str(why, ": waiting for the next restart of the ranks"));
    leave_generation(found.generation, lost_node(node_, why), why);
    from = found.generation + 1;
  }
}

void LaunchCoordinator::post_death(int rank, const std::string& text, int generation) {
  try {
    client_->set(rendezvous::dead_key(rank), text);
    client_->compare_set(rendezvous::alarm_key(generation), "", str("rank ", rank, ": ", text));
  } catch (const Error& error) {
    log_warn(
        str("peers could not be told that rank ", rank, " is gone (", text, "): ", error.what()));
  }
}

Verdict LaunchCoordinator::agree(int generation, const Outcome& own,
                                 const std::function<Verdict(const Outcome&)>& decide) {
  if (nodes_ == 1) {
    Verdict verdict = decide(together(std::span(&own, 1)));
    if (verdict.restart) client_->remove_prefix("launch/dead/");
    return verdict;
  }
  return node_ == 0 ? lead(generation, own, decide) : follow(generation, own);
}

// Nothing: the node is not waited for, since it never came and nobody misses it.
std::optional<Outcome> LaunchCoordinator::end_of(int node, int generation, const Outcome& own,
                                                 Clock::time_point deadline) {
  const bool stopped = has_stopped(own);
  const bool came = client_->check({node_key(generation, node)});
  try {
    return read_verdict(waited_for(end_key(generation, node), deadline, stopped && came, node))
        .outcome;
  } catch (const rendezvous::TimedOut&) {
    if (is_missed(node)) return lost_node(node, "no sign of life of its launcher");
    if (stopped) {
      log_info(str("node ", node, " has not said how its ranks ended; it is not waited for"));
      return std::nullopt;
    }
    return lost_node(node, "it has not said in time how its ranks ended");
  }
}

Verdict LaunchCoordinator::lead(int generation, const Outcome& own,
                                const std::function<Verdict(const Outcome&)>& decide) {
  std::vector<Outcome> outcomes = {of_node(0, own)};
  std::vector<std::string> readers;  // of the verdict: the nodes that are still there
  const milliseconds patience = has_stopped(own)            ? kOthersStop
                                : own.cause == Cause::kNone ? kOthersDone
                                                            : kOthersFailed;
  const Clock::time_point deadline = Clock::now() + patience;
  for (const int node : members_) {
    if (node == 0) continue;
    const std::optional<Outcome> end = end_of(node, generation, own, deadline);
    if (!end) continue;
    outcomes.push_back(of_node(node, *end));
    if (end->kind != EndKind::kLostNode) readers.push_back(read_key(generation, node));
  }
  const Verdict verdict = decide(together(outcomes));
  if (verdict.restart) client_->remove_prefix("launch/dead/");
  client_->set(verdict_key(generation), written(verdict));
  try {
    if (!readers.empty()) client_->wait(readers, kReadVerdict);  // the store ends with this process
  } catch (const rendezvous::TimedOut& error) {
    log_warn(str("not all nodes have read the decision: ", error.what()));
  }
  return verdict;
}

// Node 0 had decided before it knew that a restart cannot help here: a rank that did not end after
// SIGKILL would run beside the new ones.
void LaunchCoordinator::stay_out(int generation, const Outcome& own) {
  if (options_.elastic) return beat_->leave();
  leave_generation(generation + 1, own, str("node ", node_, ": ", own.what));
}

Verdict LaunchCoordinator::follow(int generation, const Outcome& own) {
  // Done: the first rank may still upload the last checkpoint, as long as node 0's launcher
  // answers.
  const bool done = own.cause == Cause::kNone && !own.stopped;
  const Clock::time_point deadline =
      done ? Clock::time_point::max() : Clock::now() + options_.decision;
  std::string why;
  try {
    check_store();
    client_->set(end_key(generation, node_), written({.outcome = own}));
    Verdict verdict = read_verdict(waited_for(verdict_key(generation), deadline));
    client_->set(read_key(generation, node_), "1");
    if (!verdict.restart || own.cause == Cause::kNone || own.curable || options_.interrupted())
      return verdict;
    stay_out(generation, own);
    return {.outcome = own};
  } catch (const rendezvous::TimedOut& error) {
    if (done)
      fail(ExitCode::kStopped, "launch", "asked to stop before node 0 said how the run ended: its ",
           "first rank may still upload the last checkpoint");
    why = error.what();
  } catch (const rendezvous::Unreachable& error) {
    why = error.what();
  }
  // All ranks save together: a stop that those here have made is no failure, whoever left first. In
  // an elastic run it may only be one before the run grows, unless this node itself was asked.
  const bool grows = options_.elastic && !options_.interrupted();
  if (has_stopped(own) && !grows) return {.outcome = own};
  Verdict verdict{.outcome = together(std::vector{own, lost_node(0, why)})};
  verdict.rejoin = verdict.outcome.curable && (own.cause != Cause::kNone || has_stopped(own));
  return verdict;
}

}  // namespace octavo::launch
