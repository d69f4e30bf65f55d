#include "dist/key_value_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <type_traits>

#include "base/error.h"
#include "rendezvous/auth.h"
#include "rendezvous/keys.h"

namespace octavo::dist {
namespace {

using rendezvous::Missing;
using rendezvous::Unreachable;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{2000};
// torchrun's store cannot be waited at without blocking it: it is asked again and again. All ranks
// together ask it about 500 times a second when they wait for long, or each once in a second where
// that is more: the watch gives them two seconds to answer (dist/watch.cpp).
constexpr milliseconds kPoll{500}, kRarestPoll{1000};
milliseconds longest_poll(int ranks) {
  return std::clamp(milliseconds(2) * ranks, kPoll, kRarestPoll);
}

class RendezvousKeyValueStore : public KeyValueStore {
 public:
  RendezvousKeyValueStore(const launch::RankInfo& rank_info, milliseconds timeout)
      : client_(rank_info.master_address, rank_info.master_port,
                rendezvous::secret_from_environment(), timeout),
        prefix_(rendezvous::generation_prefix(rank_info.generation)) {
    client_.set_answer_timeout(kPatience);
  }
  void set(const std::string& key, const std::string& value) override {
    client_.set(prefix_ + key, value);
  }
  std::string set_first(const std::string& key, const std::string& value) override {
    return client_.compare_set(prefix_ + key, "", value);
  }
  int64_t add(const std::string& key, int64_t delta) override {
    return client_.add(prefix_ + key, delta);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return client_.try_get(prefix_ + key);
  }
  Missing missing(const std::string& prefix, int64_t n) override {
    return client_.missing(prefix_ + prefix, n);
  }
  std::optional<std::string> death_of(int64_t rank) override {
    return client_.try_get(rendezvous::dead_key(rank));
  }
  std::optional<std::string> wait_for(const std::string& key, milliseconds timeout) override {
    try {
      return client_.get(prefix_ + key, timeout);
    } catch (const rendezvous::TimedOut&) {
      return std::nullopt;
    }
  }
  void stop() override { client_.stop(); }

 private:
  rendezvous::Client client_;
  std::string prefix_;
};

class TorchKeyValueStore : public KeyValueStore {
 public:
  TorchKeyValueStore(const launch::RankInfo& rank_info, milliseconds timeout)
      : store_(c10::make_intrusive<c10d::PrefixStore>(
            octavo::str("generation/", rank_info.generation), torch_store(rank_info, timeout))),
        longest_poll_(longest_poll(rank_info.ranks)) {
    store_->setTimeout(kPatience);
  }
  void set(const std::string& key, const std::string& value) override {
    guarded([&] { store_->set(key, value); });
  }
  std::string set_first(const std::string& key, const std::string& value) override {
    return guarded([&] { return store_->compareSet(key, "", value); });
  }
  int64_t add(const std::string& key, int64_t delta) override {
    return guarded([&] { return store_->add(key, delta); });
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return guarded([&]() -> std::optional<std::string> {
      if (!store_->check({key})) return std::nullopt;
      return store_->get_to_str(key);
    });
  }
  Missing missing(const std::string& prefix, int64_t n) override {
    return guarded([&] {
      Missing missing;
      for (int64_t i = 0; i < n; ++i) {
        if (store_->check({prefix + std::to_string(i)})) continue;
        if (++missing.count <= 16) missing.first.push_back(i);
      }
      return missing;
    });
  }
  std::optional<std::string> death_of(int64_t /*rank*/) override { return std::nullopt; }
  std::optional<std::string> wait_for(const std::string& key, milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (milliseconds poll = kPoll; !stopped_; poll = std::min(longest_poll_, poll * 3 / 2)) {
      if (auto value = try_get(key)) return value;
      if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
      // Short naps, so that stop() is heard.
      for (milliseconds slept{0}; slept < poll && !stopped_; slept += milliseconds(20))
        std::this_thread::sleep_for(milliseconds(20));
    }
    throw Unreachable(ExitCode::kEnvironment, "dist", "stopped");
  }
  void stop() override { stopped_ = true; }

 private:
  template <typename Action>
  std::invoke_result_t<Action> guarded(const Action& action) {
    const std::lock_guard lock(mutex_);
    try {
      return action();
    } catch (const c10::Error& error) {
      throw Unreachable(ExitCode::kEnvironment, "dist", error.what_without_backtrace());
    }
  }

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_;
  const milliseconds longest_poll_;
  std::atomic<bool> stopped_{false};
};

}  // namespace

std::shared_ptr<KeyValueStore> KeyValueStore::open(const launch::RankInfo& rank_info,
                                                   milliseconds timeout) {
  if (rank_info.store_is_torch) return std::make_shared<TorchKeyValueStore>(rank_info, timeout);
  return std::make_shared<RendezvousKeyValueStore>(rank_info, timeout);
}

std::string host_of_store(const launch::RankInfo& rank_info) {
  const std::string where = octavo::str(rank_info.master_address, " port ", rank_info.master_port);
  if (rank_info.store_is_torch) return octavo::str("torchrun's agent at ", where);
  if (rank_info.store_is_running) return octavo::str("the launcher of node 0 at ", where);
  return octavo::str("rank 0 at ", where);
}

c10::intrusive_ptr<c10d::Store> torch_store(const launch::RankInfo& rank_info,
                                            milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(rank_info.master_port);
  options.isServer = false;
  options.waitWorkers = false;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(rank_info.master_address, options);
}

}  // namespace octavo::dist
