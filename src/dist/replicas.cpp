#include "dist/replicas.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/host.h"
#include "base/random.h"
#include "base/text.h"
#include "engine/range.h"

namespace octavo::dist {
namespace {

constexpr size_t kMostNamed = 8;  // tensors in a message

std::string spoken_ranks(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::vector<std::string> words;
  for (const int rank : ranks)
    words.push_back(octavo::str(rank, " (", hosts[static_cast<size_t>(rank)], ")"));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(words, ", ");
}

// Ranks whose `numbers` are the same, in the order of their first.
std::vector<std::vector<int>> groups_by(const std::vector<int>& numbers) {
  std::map<int, std::vector<int>> groups;
  for (size_t rank = 0; rank < numbers.size(); ++rank)
    groups[numbers[rank]].push_back(static_cast<int>(rank));
  std::vector<std::vector<int>> found;
  for (auto& [number, ranks] : groups) found.push_back(std::move(ranks));
  return found;
}

bool are_alike(const at::Tensor& hashes, int64_t column, const std::vector<int>& ranks) {
  const auto rows = hashes.accessor<int64_t, 2>();
  return std::ranges::all_of(ranks,
                             [&](int r) { return rows[r][column] == rows[ranks[0]][column]; });
}

std::vector<int> all_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::optional<Disagreement> find_disagreement(std::span<const int64_t> hashes,
                                              const std::vector<int>& replicas) {
  OCTAVO_ASSERT(hashes.size() == replicas.size() && !hashes.empty());
  std::map<int64_t, size_t> votes;
  for (const int64_t hash : hashes) ++votes[hash];
  if (votes.size() == 1) return std::nullopt;
  const auto most =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  Disagreement odd{.has_majority = 2 * most->second > hashes.size(), .replicas = replicas};
  for (size_t i = 0; i < hashes.size(); ++i)
    if (!odd.has_majority || hashes[i] != most->first) odd.ranks.push_back(replicas[i]);
  return odd;
}

std::vector<int> ReplicaDifference::ranks() const {
  std::set<int> found;
  for (const Tensor& t : tensors) found.insert(t.odd.ranks.begin(), t.odd.ranks.end());
  return {found.begin(), found.end()};
}

bool ReplicaDifference::has_majority() const {
  return std::ranges::all_of(tensors, [](const Tensor& t) { return t.odd.has_majority; });
}

std::string ReplicaDifference::text() const {
  std::vector<std::string> lines;
  for (const Tensor& t : tensors) {
    if (lines.size() == kMostNamed) {
      lines.push_back(octavo::str(tensors.size() - kMostNamed, " more tensors"));
      break;
    }
    const std::string what = octavo::str(t.kind, " of ", t.parameter);
    const std::string who = spoken_ranks(t.odd.ranks, hosts);
    lines.push_back(t.odd.has_majority
                        ? octavo::str(who, " against ", t.odd.replicas.size() - t.odd.ranks.size(),
                                      " others: ", what)
                        : octavo::str(who, ", which cannot be told apart: ", what));
  }
  const std::string since =
      last_alike >= 0 ? octavo::str("alike after step ", last_alike, ", ") : "";
  return octavo::str("replicas differ (", since, "different after step ", step,
                     "): ", join(lines, "; "));
}

Replicas::Replicas(World& world, at::Device device) : world_(world), hash_(device) {}

std::vector<int64_t> Replicas::hashes_of(const std::vector<Replicated>& tensors) const {
  std::vector<at::Tensor> hashes;
  for (const Replicated& it : tensors) hashes.push_back(hash_.of(it.values));
  if (hashes.empty()) return {};
  const at::Tensor host = at::stack(hashes).cpu();  // the one wait for the device
  const auto* first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

std::vector<std::string> Replicas::hosts_of_all() {
  constexpr size_t kLongest = 64;
  const std::string name = host_name().substr(0, kLongest);
  std::vector<int64_t> letters(name.begin(), name.end());
  letters.resize(kLongest);
  const at::Tensor all = world_.from_all(letters, "names of hosts");
  std::vector<std::string> hosts;
  for (int rank = 0; rank < world_.size(); ++rank) {
    std::string host;
    const auto* letter = all[rank].const_data_ptr<int64_t>();
    for (size_t i = 0; i < kLongest && letter[i] != 0; ++i) host += static_cast<char>(letter[i]);
    hosts.push_back(std::move(host));
  }
  return hosts;
}

ReplicaDifference Replicas::describe(const std::vector<Replicated>& tensors,
                                     const std::vector<int64_t>& hashes,
                                     const std::vector<int>& shards) {
  const at::Tensor all = world_.from_all(hashes, "hashes of tensors");
  const auto rows = all.accessor<int64_t, 2>();
  ReplicaDifference difference{.last_alike = last_alike_, .hosts = hosts_of_all()};
  const std::vector<std::vector<int>> everybody = {all_ranks(world_.size())};
  const auto by_shard = groups_by(shards);
  for (size_t t = 0; t < tensors.size(); ++t)
    for (const auto& group : tensors[t].own_rows ? by_shard : everybody) {
      std::vector<int64_t> of_group;
      for (const int rank : group) of_group.push_back(rows[rank][static_cast<int64_t>(t)]);
      if (auto odd = find_disagreement(of_group, group))
        difference.tensors.push_back({tensors[t].parameter, tensors[t].kind, std::move(*odd)});
    }
  return difference;
}

std::optional<ReplicaDifference> Replicas::compare(const std::vector<Replicated>& tensors,
                                                   int64_t step) {
  const engine::Range range("compare replicas");
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int64_t> hashes = hashes_of(tensors);
  // What all have alike, what ranks of the same shard have alike, and which shard this is.
  uint64_t whole = 0, own_rows = 0;
  bytes_ = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    (tensors[i].own_rows ? own_rows : whole) +=
        mix64(static_cast<uint64_t>(hashes[i]) ^ mix64(static_cast<uint64_t>(i)));
    bytes_ += static_cast<double>(tensors[i].values.nbytes());
  }
  const std::array<int64_t, 3> own = {static_cast<int64_t>(whole), static_cast<int64_t>(own_rows),
                                      world_.shard()};
  const at::Tensor all = world_.from_all(own, "hashes of replicas");
  std::vector<int> shards;
  for (int rank = 0; rank < world_.size(); ++rank)
    shards.push_back(static_cast<int>(all[rank][2].item<int64_t>()));
  bool alike = are_alike(all, 0, all_ranks(world_.size()));
  for (const auto& group : groups_by(shards)) alike = alike && are_alike(all, 1, group);

  std::optional<ReplicaDifference> difference;
  if (!alike) {
    difference = describe(tensors, hashes, shards);
    difference->step = step;
    ++differences_;
  } else {
    last_alike_ = step;
  }
  ++checks_;
  tensors_ = static_cast<int64_t>(tensors.size());
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  seconds_ += took;
  longest_ = std::max(longest_, took);
  return difference;
}

Json Replicas::receipt() const {
  return {{"checks", checks_},         {"differences", differences_},
          {"last_alike", last_alike_}, {"tensors", tensors_},
          {"bytes", bytes_},           {"seconds", seconds_},
          {"longest", longest_}};
}

}  // namespace octavo::dist
