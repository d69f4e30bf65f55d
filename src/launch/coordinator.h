#pragma once
// How the launchers of several nodes start and end as one: node 0 says what is started, each node
// says how its ranks ended, node 0 decides for all, and everybody returns the same code or starts
// the same generation. A launcher that is started again joins the generation that is due.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/membership.h"
#include "launch/outcome.h"
#include "launch/presence.h"
#include "launch/terms.h"
#include "rendezvous/client.h"
#include "rendezvous/server.h"

namespace octavo::launch {

// What one generation of ranks is started with, the same on all nodes.
struct StartPlan {
  int generation = 0;
  bool resume = false;          // from the newest checkpoint
  std::string run_name;         // "": the command has it
  std::vector<int> nodes = {};  // that have ranks; none: all of them
  bool stop = false;            // nothing is started any more
  int code = 75;                // with which launchers end then
};

struct Verdict {
  bool restart = false;
  bool rejoin = false;  // node 0 is lost: it decides nothing, but it may come back
  std::chrono::milliseconds wait{0};
  Outcome outcome;
};

class LaunchCoordinator {
 public:
  struct Options {
    std::function<bool()> interrupted;  // asked now and then in every wait
    // For node 0 to be there: nodes of a job do not start together, and a lost one takes its time.
    std::chrono::milliseconds connect{120'000};
    // For its port to be free: the sockets of a node that was lost lag behind.
    std::chrono::milliseconds listen{60'000};
    // For a name that does not exist, or on node 0 is another machine's. One that a scheduler gives
    // may lag behind the node as long; one that a person typed is right or wrong, or a container's
    // that does not run yet. A resolver that does not answer is waited for like node 0.
    std::chrono::milliseconds resolve{30'000};
    // For node 0 to decide after ranks here have failed. Where they are done there is no limit.
    std::chrono::milliseconds decision{140'000};
    bool elastic = false;  // launchers come and go: each says that it is there
    RunTerms terms = {};
  };

  // Node 0 hosts the store at `address` (port 0: any); the others connect to it, and fail (kUsage)
  // when their terms are not node 0's.
  LaunchCoordinator(int node, int nodes, const std::string& address, int port, Options options);

  int port() const { return client_->port(); }
  // Node 0 publishes the plan; the others return the one that is published for a generation from
  // `plan.generation` on in which no launcher of this node has taken part. TimedOut after
  // `patience`, an Error of kStopped when it was interrupted.
  StartPlan start(const StartPlan& plan, std::chrono::milliseconds patience);
  struct Gathering {
    Elastic elastic;
    std::vector<int> before = {};    // the nodes of the last generation
    std::vector<int> left_out = {};  // not taken, unless there are too few without them
  };
  // Node 0: the nodes of the next generation, as soon as they are as many as before (none before:
  // as many as may be), else what is there after `wait`. None when too few came within `patience`;
  // an Error of kStopped when it was interrupted.
  Members gather(const Gathering& wanted, std::chrono::milliseconds wait,
                 std::chrono::milliseconds patience);
  // Node 0, while ranks run: the nodes that are there. One with ranks whose launcher is gone is
  // named, and the ranks of all are told.
  std::vector<int> look_at_nodes(int generation);
  // Node 0, while its ranks wait for the others: says, when it has changed, which nodes have not
  // started theirs. One question to the store; false: all have.
  bool say_missing_nodes(int generation);
  // Node 0: those that wait without ranks, or all of them, are told that the run has ended.
  void dismiss(StartPlan plan, int code, bool all = false) noexcept;
  // This node was asked to stop and starts no ranks in that generation: nobody is to wait for them.
  void decline(int generation) noexcept;
  // Tells the peers of a dead rank why it is gone: launch/dead/<rank>, and the alarm of their
  // generation, which ends those that would wait for it in a collective.
  void post_death(int rank, const std::string& text, int generation = 0);
  // Node 0 calls `decide` with the worst outcome of all nodes; every node returns its verdict.
  Verdict agree(int generation, const Outcome& own,
                const std::function<Verdict(const Outcome&)>& decide);

 private:
  Verdict lead(int generation, const Outcome& own,
               const std::function<Verdict(const Outcome&)>& decide);
  std::optional<Outcome> end_of(int node, int generation, const Outcome& own,
                                std::chrono::steady_clock::time_point deadline);
  std::unique_ptr<rendezvous::Server> listening(const std::string& address, int port) const;
  std::unique_ptr<rendezvous::Client> connected(const std::string& address, int port) const;
  // The key's value; TimedOut when it does not come, or when the wait is interrupted.
  std::string waited_for(const std::string& key, std::chrono::steady_clock::time_point deadline,
                         bool to_the_end = false, int node = -1);
  bool is_missed(int node);
  void check_terms(const RunTerms& own);
  void check_store();  // Unreachable when it is another one than at first: node 0 was started again
  bool has_ranks(const StartPlan& plan) const;
  StartPlan next_plan(int from, std::chrono::steady_clock::time_point deadline);
  void leave_generation(int generation, const Outcome& end, const std::string& why);
  void stay_out(int generation, const Outcome& own);
  Verdict follow(int generation, const Outcome& own);

  int node_, nodes_;
  Options options_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Client> client_;
  std::string store_;                     // the name that node 0 gave it
  std::unique_ptr<PresenceBeat> beat_;    // of an elastic run: the other nodes'
  std::unique_ptr<PresenceWatch> watch_;  // and node 0's
  std::vector<int> members_;              // the nodes of this generation
  bool waits_beside_ = false;             // this node has no ranks in it
  std::string missing_;                   // what was said last of nodes that have not come
  int alarmed_ = -1;                      // the generation that lost a node, as node 0 has seen
};

}  // namespace octavo::launch
