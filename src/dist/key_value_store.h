#pragma once
// The keys of this generation in the store of the ranks' rendezvous, whichever store it is: ours,
// or torchrun's. Every call ends within the patience, and fails with rendezvous::Unreachable when
// the store does not answer.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "launch/rank_info.h"
#include "rendezvous/client.h"

namespace octavo::dist {

class KeyValueStore {
 public:
  // A connection of its own.
  static std::shared_ptr<KeyValueStore> open(const launch::RankInfo& rank_info,
                                             std::chrono::milliseconds timeout);

  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Only when it is not there; returns what is there.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  virtual rendezvous::Missing missing(const std::string& prefix, int64_t n) = 0;
  // What the launcher knows of a rank's end.
  virtual std::optional<std::string> death_of(int64_t rank) = 0;
  // The value when it comes in time. A thread may wait here while others call the rest.
  virtual std::optional<std::string> wait_for(const std::string& key,
                                              std::chrono::milliseconds timeout) = 0;
  // Whoever waits gets Unreachable, now and later.
  virtual void stop() = 0;
};

// How messages call the process that hosts the store.
std::string host_of_store(const launch::RankInfo& rank_info);

// torchrun's store, as a client.
c10::intrusive_ptr<c10d::Store> torch_store(const launch::RankInfo& rank_info,
                                            std::chrono::milliseconds timeout);

}  // namespace octavo::dist
