#include "launch/coordinator.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "rendezvous/auth.h"
#include "rendezvous/keys.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kConnect{120'000};      // nodes of a job do not start together
constexpr milliseconds kPatience{3'000};       // for one answer of the store
constexpr milliseconds kOthersDone{120'000};   // from our ranks' good end to the others'
constexpr milliseconds kOthersFailed{20'000};  // and from a failure: they notice within seconds
constexpr milliseconds kReadVerdict{10'000};
// Signals are looked at between slices.
constexpr milliseconds kSlice{1'000}, kPause{300};

std::string written(const Verdict& verdict) {
  const Outcome& outcome = verdict.outcome;
  return nlohmann::json{{"restart", verdict.restart}, {"resume", verdict.resume},
                        {"code", outcome.code},       {"cause", static_cast<int>(outcome.cause)},
                        {"curable", outcome.curable}, {"rank", outcome.rank},
                        {"what", outcome.what}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Verdict read_verdict(const std::string& text) {
  const std::string source = "another node's message";
  const auto value = nlohmann::json::parse(text, nullptr, false);
  const auto flag = [&](const char* name) { return value.contains(name) && value[name] == true; };
  const auto small = [&](const char* name, int least, int most) {
    const bool known = value.is_object() && value.contains(name) && value[name].is_number_integer();
    const int64_t number = known ? value[name].get<int64_t>() : int64_t{least} - 1;
    if (number < least || number > most)
      fail(ExitCode::kEnvironment, "launch", source, ": wanted ", name, " from ", least, " to ",
           most, ", found another; do all nodes run the same octavo?");
    return static_cast<int>(number);
  };
  Verdict verdict;
  verdict.outcome.code = small("code", 0, 255);
  verdict.outcome.cause = static_cast<Cause>(small("cause", 0, static_cast<int>(Cause::kItself)));
  verdict.outcome.rank = small("rank", -1, 1 << 20);
  verdict.outcome.curable = flag("curable");
  verdict.restart = flag("restart");
  verdict.resume = flag("resume");
  if (value.contains("what") && value["what"].is_string()) verdict.outcome.what = value["what"];
  return verdict;
}

Outcome lost_node(int node, const std::string& why) {
  Outcome outcome;
  outcome.code = static_cast<int>(ExitCode::kEnvironment);
  outcome.cause = Cause::kSilent;
  outcome.what = str("node ", node, " is lost (", why, ")");
  return outcome;
}

}  // namespace

LaunchCoordinator::LaunchCoordinator(int node, int nodes, const std::string& address, int port,
                                     std::function<bool()> interrupted)
    : node_(node), nodes_(nodes), interrupted_(std::move(interrupted)) {
  if (node == 0)
    server_ =
        std::make_unique<rendezvous::Server>(address, port, rendezvous::secret_from_environment());
  client_ = connected(address, server_ != nullptr ? server_->port() : port);
  client_->set_answer_timeout(kPatience);
}

std::unique_ptr<rendezvous::Client> LaunchCoordinator::connected(const std::string& address,
                                                                 int port) const {
  const std::string secret = rendezvous::secret_from_environment();
  const Clock::time_point deadline = Clock::now() + kConnect;
  bool said = false;
  for (;;) {
    try {
      return std::make_unique<rendezvous::Client>(address, port, secret, kSlice);
    } catch (const rendezvous::Unreachable& error) {
      if (Clock::now() >= deadline) throw;
      if (interrupted_())
        fail(ExitCode::kStopped, "launch", "asked to stop before node 0 was there; no rank ran");
      if (!said) log_info(str("waiting for node 0 at ", address, " port ", port));
      said = true;
    }
    std::this_thread::sleep_for(kPause);
  }
}

std::string LaunchCoordinator::waited_for(const std::string& key, milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  for (;;) {
    try {
      return client_->get(key, kSlice);
    } catch (const rendezvous::TimedOut&) {
      if (Clock::now() >= deadline || interrupted_()) throw;
    }
  }
}

// A stop that this node's ranks obeyed is no failure, whether or not the other nodes ever came.
bool LaunchCoordinator::was_asked_to_stop(const Outcome& own) const {
  return own.code == static_cast<int>(ExitCode::kStopped) && own.cause == Cause::kNone &&
         interrupted_();
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
    Verdict verdict = decide(own);
    if (verdict.restart) client_->remove_prefix("launch/dead/");
    return verdict;
  }
  const std::string prefix = str("launch/", generation, "/");
  return node_ == 0 ? lead(prefix, own, decide) : follow(prefix, own);
}

Verdict LaunchCoordinator::lead(const std::string& prefix, const Outcome& own,
                                const std::function<Verdict(const Outcome&)>& decide) {
  std::vector<Outcome> outcomes = {own};
  std::vector<std::string> readers;  // of the verdict: the nodes that are still there
  const milliseconds patience = own.cause == Cause::kNone ? kOthersDone : kOthersFailed;
  for (int node = 1; node < nodes_; ++node) {
    try {
      const std::string text = waited_for(str(prefix, "end/", node), patience);
      outcomes.push_back(read_verdict(text).outcome);
      readers.push_back(str(prefix, "read/", node));
    } catch (const rendezvous::TimedOut&) {
      if (was_asked_to_stop(own)) {
        log_info(str("node ", node, " has not said how its ranks ended; it is not waited for"));
        continue;
      }
      outcomes.push_back(lost_node(
          node, str("it has not said how its ranks ended within ", patience.count() / 1000, " s")));
    }
  }
  Outcome together = worst(outcomes);
  for (const Outcome& each : outcomes)
    together.curable = together.curable && (each.cause == Cause::kNone || each.curable);
  const Verdict verdict = decide(together);
  if (verdict.restart) client_->remove_prefix("launch/dead/");
  client_->set(prefix + "verdict", written(verdict));
  try {
    if (!readers.empty()) client_->wait(readers, kReadVerdict);  // the store ends with this process
  } catch (const rendezvous::TimedOut& error) {
    log_warn(str("not all nodes have read the decision: ", error.what()));
  }
  return verdict;
}

Verdict LaunchCoordinator::follow(const std::string& prefix, const Outcome& own) {
  try {
    client_->set(str(prefix, "end/", node_), written({.outcome = own}));
    Verdict verdict = read_verdict(
        waited_for(prefix + "verdict", kOthersDone + kOthersFailed * (nodes_ > 2 ? 2 : 1)));
    client_->set(str(prefix, "read/", node_), "1");
    return verdict;
  } catch (const rendezvous::TimedOut& error) {
    if (was_asked_to_stop(own)) return {.outcome = own};
    return {.outcome = worst(std::vector{own, lost_node(0, error.what())})};
  } catch (const rendezvous::Unreachable& error) {
    return {.outcome = worst(std::vector{own, lost_node(0, error.what())})};
  }
}

}  // namespace octavo::launch
