#pragma once
// How the launchers of several nodes end as one: each says how its ranks ended, the first decides
// for all, and everybody returns the same code or starts the same generation.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "launch/outcome.h"
#include "rendezvous/client.h"
#include "rendezvous/server.h"

namespace octavo::launch {

struct Verdict {
  bool restart = false, resume = false;
  Outcome outcome;
};

class LaunchCoordinator {
 public:
  // Node 0 hosts the store at `address` (port 0: any); the others connect to it. While it waits
  // for other nodes it asks `interrupted` now and then, and gives up when that says so.
  LaunchCoordinator(int node, int nodes, const std::string& address, int port,
                    std::function<bool()> interrupted);

  int port() const { return client_->port(); }
  // Tells the peers of a dead rank why it is gone: launch/dead/<rank>, and the alarm of their
  // generation, which ends those that would wait for it in a collective.
  void post_death(int rank, const std::string& text, int generation = 0);
  // Node 0 calls `decide` with the worst outcome of all nodes; every node returns its verdict.
  Verdict agree(int generation, const Outcome& own,
                const std::function<Verdict(const Outcome&)>& decide);

 private:
  Verdict lead(const std::string& prefix, const Outcome& own,
               const std::function<Verdict(const Outcome&)>& decide);
  std::unique_ptr<rendezvous::Client> connected(const std::string& address, int port) const;
  // The key's value; TimedOut when it does not come.
  std::string waited_for(const std::string& key, std::chrono::milliseconds patience);
  bool was_asked_to_stop(const Outcome& own) const;
  Verdict follow(const std::string& prefix, const Outcome& own);

  int node_, nodes_;
  std::function<bool()> interrupted_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Client> client_;
};

}  // namespace octavo::launch
