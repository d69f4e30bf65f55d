#include "dist/rendezvous_store.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "dist/key_value_store.h"
#include "rendezvous/auth.h"
#include "rendezvous/keys.h"

namespace octavo::dist {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

constexpr milliseconds kFarewell{30'000};

std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}
Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

// c10d's callers look for c10d's errors.
template <typename Action>
auto as_c10d(const Action& action) {
  try {
    return action();
  } catch (const rendezvous::Unreachable& error) {
    C10_THROW_ERROR(DistNetworkError, error.what());
  } catch (const Error& error) {
    C10_THROW_ERROR(DistStoreError, error.what());
  }
}

}  // namespace

RendezvousStore::RendezvousStore(std::shared_ptr<rendezvous::Client> client, milliseconds timeout)
    : Store(timeout), client_(std::move(client)) {}

c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() {
  return c10::make_intrusive<RendezvousStore>(client_, timeout_);
}

void RendezvousStore::set(const std::string& key, const Bytes& value) {
  as_c10d([&] { client_->set(key, text_of(value)); });
}

Bytes RendezvousStore::compareSet(const std::string& key, const Bytes& expected,
                                  const Bytes& desired) {
  return as_c10d(
      [&] { return bytes_of(client_->compare_set(key, text_of(expected), text_of(desired))); });
}

Bytes RendezvousStore::get(const std::string& key) {
  return as_c10d([&] { return bytes_of(client_->get(key, timeout_)); });
}

int64_t RendezvousStore::add(const std::string& key, int64_t value) {
  return as_c10d([&] { return client_->add(key, value); });
}

bool RendezvousStore::deleteKey(const std::string& key) {
  return as_c10d([&] { return client_->remove(key); });
}

bool RendezvousStore::check(const std::vector<std::string>& keys) {
  return as_c10d([&] { return client_->check(keys); });
}

int64_t RendezvousStore::getNumKeys() {
  return as_c10d([&] { return client_->size(); });
}

void RendezvousStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void RendezvousStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  as_c10d([&] { client_->wait(keys, timeout); });
}

void RendezvousStore::append(const std::string& key, const Bytes& value) {
  as_c10d([&] { client_->append(key, text_of(value)); });
}

std::vector<Bytes> RendezvousStore::multiGet(const std::vector<std::string>& keys) {
  return as_c10d([&] {
    std::vector<Bytes> values;
    for (const std::string& value : client_->multi_get(keys, timeout_))
      values.push_back(bytes_of(value));
    return values;
  });
}

void RendezvousStore::multiSet(const std::vector<std::string>& keys,
                               const std::vector<Bytes>& values) {
  as_c10d([&] {
    std::vector<std::string> texts;
    for (const Bytes& value : values) texts.push_back(text_of(value));
    client_->multi_set(keys, texts);
  });
}

Rendezvous::~Rendezvous() {
  if (watch == nullptr) return;
  const bool failed = watch->failed();
  const int ranks = watch->ranks(), rank = watch->rank(), generation = watch->generation();
  watch.reset();
  if (failed || client == nullptr) return;
  try {
    const std::string prefix = rendezvous::generation_prefix(generation) + "done/";
    client->set_answer_timeout(milliseconds(1000));
    client->set(prefix + std::to_string(rank), "");
    if (server == nullptr) return;
    std::vector<std::string> all;
    for (int i = 0; i < ranks; ++i) all.push_back(prefix + std::to_string(i));
    client->wait(all, kFarewell);
  } catch (const std::exception& error) {
    log_warn(octavo::str("at the end of the run: ", error.what()));
  }
}

Rendezvous join_rendezvous(const launch::RankInfo& rank_info, milliseconds timeout) {
  Rendezvous joined;
  if (rank_info.ranks == 1) return joined;
  // Gloo writes to peers that may be gone: that is an error to be named, not the end of this rank.
  std::signal(SIGPIPE, SIG_IGN);
  c10::intrusive_ptr<c10d::Store> store;
  if (rank_info.store_is_torch) {
    store = torch_store(rank_info, timeout);
  } else {
    const std::string secret = rendezvous::secret_from_environment();
    if (rank_info.rank == 0 && !rank_info.store_is_running)
      joined.server = std::make_unique<rendezvous::Server>(rank_info.master_address,
                                                           rank_info.master_port, secret);
    joined.client = std::make_shared<rendezvous::Client>(rank_info.master_address,
                                                         rank_info.master_port, secret, timeout);
    store = c10::make_intrusive<RendezvousStore>(joined.client, timeout);
  }
  joined.store = c10::make_intrusive<c10d::PrefixStore>(
      octavo::str("generation/", rank_info.generation), store);
  joined.watch = std::make_unique<Watch>(rank_info, KeyValueStore::open(rank_info, timeout));
  return joined;
}

}  // namespace octavo::dist
