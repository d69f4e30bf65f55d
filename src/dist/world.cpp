#include "dist/world.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "dist/address.h"
#include "dist/arrival.h"
#include "dist/gloo.h"
#include "dist/group_tree.h"
#include "dist/lost_ranks.h"
#include "dist/nccl.h"
#include "dist/rendezvous_store.h"
#include "launch/interfaces.h"

namespace octavo::dist {

struct World::Connection {
  explicit Connection(int rank) : waiting(rank) {}
  Rendezvous rendezvous;
  int shards = 1, shard = 0;
  std::unique_ptr<GroupTree> host;  // of numbers in memory, Gloo
  // On a GPU NCCL for what is there. `gathering` is null where `device` serves.
  std::unique_ptr<Group> device, gathering, reducing, replicas;
  int64_t step = 0;
  WaitingRanks waiting;
};

namespace {

constexpr std::chrono::minutes kTurnSlice{10};

// The address of this machine that the other ranks reach it at.
std::string own_address(const launch::RankInfo& rank_info, const std::string& interface) {
  const std::string name = launch::chosen_interface(interface, launch::environment());
  if (!name.empty()) return launch::interface_address(name);
  return address_towards(rank_info.master_address, rank_info.master_port);
}

// Makes groups: each with keys of its own in the store.
struct GroupFactory {
  const launch::RankInfo& rank_info;
  const WorldOptions& options;
  const c10::intrusive_ptr<c10d::Store>& store;
  std::string address;
  Group::OnFailure on_failure;
  // The first group on a GPU, of all ranks: the others split its communicator.
  c10::intrusive_ptr<c10d::Backend> whole;

  // Of the ranks `first`, `first` + `stride`, … where this one is `rank`; by `color` when several
  // groups of one name exist side by side.
  std::unique_ptr<Group> make(const std::string& name, int color, int rank, int size,
                              bool on_device, int first = 0, int stride = 1) {
    if (size == 1) return std::make_unique<Group>();
    const auto keys = c10::make_intrusive<c10d::PrefixStore>(octavo::str(name, ".", color), store);
    Group::Members members{name, rank, size, first, stride, options.timeout, on_failure};
    if (on_device) {
      auto made = make_nccl(keys, rank, size, options.device, options.timeout, {whole, color});
      if (whole == nullptr) whole = made;
      return std::make_unique<Group>(std::move(members), std::move(made), true);
    }
    return std::make_unique<Group>(std::move(members),
                                   make_gloo(keys, rank, size, {address, options.timeout}), false);
  }
};

}  // namespace

World::World() = default;
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

World World::connect(const launch::RankInfo& rank_info, const WorldOptions& options) {
  World world;
  world.rank_info_ = rank_info;
  if (rank_info.ranks == 1) return world;
  if (options.hybrid && rank_info.ranks % rank_info.local_ranks != 0)
    fail(ExitCode::kUsage, "dist", "sharding_mode hybrid wants as many ranks on every node, found ",
         rank_info.ranks, " ranks and ", rank_info.local_ranks, " on node ", rank_info.node,
         "; start as many everywhere, or take fsdp_full");
  if (options.device.is_cuda()) keep_nccl_from_polling();
  auto made = std::make_unique<Connection>(rank_info.rank);
  Connection* c = made.get();
  c->rendezvous = join_rendezvous(rank_info, options.timeout);
  GroupFactory factory{rank_info,
                       options,
                       c->rendezvous.store,
                       own_address(rank_info, options.interface),
                       [c, rank_info](const std::string& what, const std::string& error) {
                         fail_lost(c->rendezvous, rank_info, what, c->step, error);
                       },
                       nullptr};
  const bool gpu = options.device.is_cuda();
  try {
    const bool compares = !options.settings.empty();
    if (compares && rank_info.rank == 0) say_settings(c->rendezvous, options.settings);
    wait_for_ranks(c->rendezvous, rank_info, options.timeout);
    if (compares && rank_info.rank > 0)
      check_same_settings(c->rendezvous, rank_info, options.settings);
    c->shards = options.hybrid ? rank_info.local_ranks : rank_info.ranks;
    c->shard = options.hybrid ? rank_info.local_rank : rank_info.rank;
    c->host = std::make_unique<GroupTree>(
        rank_info.rank, rank_info.ranks, [&](const GroupTree::Place& at) {
          return factory.make(at.level == 0 ? "all" : octavo::str("leaders", at.level), at.number,
                              at.rank, at.size, false, at.first, at.stride);
        });
    if (gpu) c->device = factory.make("device", 0, rank_info.rank, rank_info.ranks, true);
    const int node = options.hybrid ? rank_info.node : 0;
    const int first = options.hybrid ? rank_info.rank - rank_info.local_rank : 0;
    const auto tensor_group = [&](auto&&... arguments) {
      return options.tensors ? factory.make(arguments...) : std::make_unique<Group>();
    };
    if (!gpu || options.spread)
      c->gathering = tensor_group("gather", node, c->shard, c->shards, gpu, first);
    c->reducing = tensor_group("reduce", node, c->shard, c->shards, gpu, first);
    c->replicas = options.hybrid ? tensor_group("replicas", rank_info.local_rank, rank_info.node,
                                                rank_info.ranks / rank_info.local_ranks, gpu,
                                                rank_info.local_rank, rank_info.local_ranks)
                                 : std::make_unique<Group>();
  } catch (const c10::Error& error) {
    fail_lost(c->rendezvous, rank_info, "connecting", 0, error.what_without_backtrace());
  }
  world.connection_ = std::move(made);
  log_info(octavo::str("ranks: ", rank_info.ranks, " on ", rank_info.nodes, " node(s), this is ",
                       rank_info.rank, " (started by ",
                       rank_info.launcher.empty() ? "hand" : rank_info.launcher, "), ",
                       gpu ? "NCCL" : "Gloo", " at ", factory.address));
  return world;
}

int World::shards() const {
  return connection_ == nullptr ? 1 : connection_->shards;
}
int World::shard() const {
  return connection_ == nullptr ? 0 : connection_->shard;
}

namespace {
Group& group_of_one() {
  static Group one;
  return one;
}
}  // namespace

Group& World::gathering() {
  if (connection_ == nullptr) return group_of_one();
  return connection_->gathering != nullptr ? *connection_->gathering : *connection_->device;
}
Group& World::reducing() {
  return connection_ == nullptr ? group_of_one() : *connection_->reducing;
}
Group& World::replicas() {
  return connection_ == nullptr ? group_of_one() : *connection_->replicas;
}

void World::over_all(at::Tensor& values, const std::string& what, Op op) {
  if (connection_ == nullptr) return;
  if (values.is_cuda())
    connection_->device->all_reduce(what, {values}, op).wait();
  else
    connection_->host->all_reduce(what, values, op);
}
void World::sum(at::Tensor& values, const std::string& what) {
  over_all(values, what, Op::kSum);
}
void World::max(at::Tensor& values, const std::string& what) {
  over_all(values, what, Op::kMax);
}

at::Tensor World::from_all(std::span<const int64_t> own, const std::string& what) {
  // A sum in which the others are zero: of integers, which lose no bits.
  at::Tensor all = at::zeros({size(), static_cast<int64_t>(own.size())}, at::kLong);
  std::ranges::copy(own, all[rank()].mutable_data_ptr<int64_t>());
  sum(all, what);
  return all;
}

std::string World::from_first(const std::string& text, const std::string& what) {
  if (connection_ == nullptr) return text;
  // Bytes of the first rank, of a size that all know; the others add zeros.
  const auto of_first = [&](std::string_view own, size_t size, const std::string& name) {
    at::Tensor bytes = at::zeros({static_cast<int64_t>(size)}, at::kByte);
    if (is_first()) std::ranges::copy(own, bytes.mutable_data_ptr<uint8_t>());
    sum(bytes, name);
    const auto* begin = bytes.const_data_ptr<uint8_t>();
    return std::string(begin, begin + size);
  };
  // The length, which the others do not know, comes with the beginning, nearly always the whole.
  constexpr size_t kBeginning = 248;
  const std::string_view own = text;
  uint64_t length = own.size();
  std::string head(sizeof length, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  head = of_first(head.append(own.substr(0, kBeginning)), sizeof length + kBeginning, what);
  std::memcpy(&length, head.data(), sizeof length);
  const std::string beginning = head.substr(sizeof length, length);
  if (length <= kBeginning) return beginning;
  return beginning + of_first(own.substr(std::min(kBeginning, own.size())), length - kBeginning,
                              "the rest of " + what);
}

void World::barrier(const std::string& what) {
  at::Tensor nothing = at::zeros({1}, at::kByte);
  sum(nothing, what);
}

void World::rank_zero_first(const std::string& what, const std::function<void()>& work) {
  if (connection_ == nullptr) return work();
  c10d::Store& store = *connection_->rendezvous.store;
  const std::vector<uint8_t> yes = {1};
  // In the store, which holds the request: thousands of ranks that asked again and again for hours
  // would be all that it does.
  const auto wait_for = [&](const std::string& key) {
    for (;; std::this_thread::sleep_for(std::chrono::seconds(1))) {
      try {
        return store.wait({key}, kTurnSlice);
      } catch (const c10::DistStoreError&) {  // not yet
      }
    }
  };
  const std::string first = "turn/" + what, mine = octavo::str(first, "/", rank_info_.node);
  if (!is_first()) wait_for(rank_info_.local_rank == 0 ? first : mine);
  work();
  if (is_first()) store.set(first, yes);
  if (rank_info_.local_rank == 0) store.set(mine, yes);
}

void World::set_step(int64_t step) {
  if (connection_ != nullptr) connection_->step = step;
}

void World::needs_no_others() {
  if (connection_ != nullptr && connection_->rendezvous.watch != nullptr)
    connection_->rendezvous.watch->set_alone();
}

void World::announce_exit(const std::exception& error) noexcept {
  if (connection_ == nullptr) return;
  const auto* ours = dynamic_cast<const Error*>(&error);
  dist::announce_exit(connection_->rendezvous, rank_info_, error.what(),
                      ours != nullptr ? ours->code() : ExitCode::kEnvironment);
}

std::optional<AbsentRanks> World::absent(const WaitingPlace& place) {
  if (connection_ == nullptr || connection_->rendezvous.watch == nullptr) return std::nullopt;
  return connection_->waiting.ask(connection_->rendezvous.watch->store(), place);
}

void World::announce_hang(const std::string& text) noexcept {
  if (connection_ != nullptr) dist::announce_hang(connection_->rendezvous, text);
}

World::Usage World::usage() const {
  if (connection_ == nullptr) return {};
  const Group::Usage on_host = connection_->host->usage();
  const auto& gathering = connection_->gathering;
  Usage usage{gathering != nullptr ? gathering->usage() : Group::Usage(),
              connection_->reducing->usage(), connection_->replicas->usage(), on_host,
              static_cast<int64_t>(on_host.all_reduce.calls)};
  if (connection_->device != nullptr) {
    const Group::Usage& on_device = connection_->device->usage();
    usage.all.all_reduce.calls += on_device.all_reduce.calls;
    usage.all.all_reduce.bytes += on_device.all_reduce.bytes;
    usage.all.waited_seconds += on_device.waited_seconds;
  }
  return usage;
}

double World::waited_seconds() const {
  const Usage all = usage();
  return all.gathering.waited_seconds + all.reducing.waited_seconds + all.replicas.waited_seconds +
         all.all.waited_seconds;
}

Json World::receipt() const {
  Json json = {{"ranks", size()}, {"nodes", rank_info_.nodes}, {"launcher", rank_info_.launcher}};
  if (connection_ == nullptr) return json;
  const Usage all = usage();
  const auto one = [](const Group::Counts& c) {
    return Json{{"calls", c.calls}, {"bytes_sent", c.bytes}};
  };
  json["collectives"] = {{"weights gathered", one(all.gathering.gather)},
                         {"gradients reduce-scattered", one(all.reducing.reduce)},
                         {"gradients all-reduced", one(all.reducing.all_reduce)},
                         {"gradients between nodes", one(all.replicas.all_reduce)},
                         {"agreements of shards", one(all.gathering.all_reduce)},
                         {"small numbers", one(all.all.all_reduce)}};
  return json;
}

}  // namespace octavo::dist
