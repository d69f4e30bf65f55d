#pragma once
// Where the ranks of a run rendezvous: a c10d::Store over our own rendezvous (or torchrun's), which
// the process groups of c10d connect through, and on which ranks that fail are named.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "dist/watch.h"
#include "launch/rank_info.h"
#include "rendezvous/client.h"
#include "rendezvous/server.h"

namespace octavo::dist {

// May be used from any thread. Errors are c10d's own: DistStoreError, DistNetworkError.
class RendezvousStore : public c10d::Store {
 public:
  RendezvousStore(std::shared_ptr<rendezvous::Client> client, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  using c10d::Store::compareSet;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  std::shared_ptr<rendezvous::Client> client_;
};

struct Rendezvous {
  c10::intrusive_ptr<c10d::Store> store;       // the keys of this generation only
  std::shared_ptr<rendezvous::Client> client;  // null with torchrun's store
  std::unique_ptr<rendezvous::Server> server;  // in rank 0, when no launcher hosts the store
  std::unique_ptr<Watch> watch;                // null in a run of one rank

  Rendezvous() = default;
  Rendezvous(Rendezvous&&) noexcept = default;
  Rendezvous& operator=(Rendezvous&&) noexcept = default;
  // The rank that hosts the store waits (half a minute at most) until the others are done with it.
  ~Rendezvous();
};

// All ranks call it. Rank 0 starts the store when no launcher did; `timeout` is for the others to
// reach it, and is the store's own for c10d.
Rendezvous join_rendezvous(const launch::RankInfo& rank_info, std::chrono::milliseconds timeout);

}  // namespace octavo::dist
