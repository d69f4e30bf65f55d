#include "launch/membership.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace octavo::launch {
namespace {

bool has(std::span<const int> nodes, int node) {
  return std::ranges::find(nodes, node) != nodes.end();
}

int64_t samples_of_step(const config::Settings& train, int most_ranks) {
  if (train.target_effective_batch_size > 0) return train.target_effective_batch_size;
  if (train.auto_batch_size)
    fail(
        ExitCode::kUsage, "launch",
        "nnodes MIN:MAX with auto_batch_size: wanted target_effective_batch_size, found none; give "
        "the samples of a step, which stay the same when the number of ranks changes");
  return train.batch_size * train.gradient_accumulation_steps * most_ranks;
}

// Here it can still be changed: with the samples of eight nodes a step, six share none.
void warn_of_least(const Elastic& elastic, int64_t pass) {
  const int64_t both = pass * std::lcm(elastic.least, elastic.most) * elastic.local_ranks;
  log_warn(str("nodes ", elastic.least, ":", elastic.most, ": only ", numbers_taken(elastic),
               " nodes of ", elastic.local_ranks, " ranks share the ", elastic.passes,
               " passes of a step, and with fewer the run waits; --target_effective_batch_size ",
               round_up(elastic.samples, both), " is shared by ", elastic.least, " as well"));
}

}  // namespace

Elastic elastic_of(const config::Settings& settings, const config::Settings& train,
                   int local_ranks) {
  Elastic elastic;
  elastic.most = static_cast<int>(std::max<int64_t>(1, settings.nnodes));
  elastic.least = settings.least_nodes > 0 ? static_cast<int>(settings.least_nodes) : elastic.most;
  elastic.spares = static_cast<int>(settings.spares);
  elastic.local_ranks = local_ranks;
  if (!elastic.on()) return elastic;
  if (settings.nnodes == 0)
    fail(ExitCode::kUsage, "launch", "spares ", settings.spares,
         ": wanted nnodes, found none; give --nnodes MIN:MAX or --nnodes N");
  elastic.samples = samples_of_step(train, elastic.most * local_ranks);
  // Passes keep their size where they can: what is measured of a pass (FP8's scales) stays.
  int64_t pass = train.auto_batch_size ? 1 : train.batch_size;
  if (train.max_batch_size > 0) pass = std::min(pass, train.max_batch_size);
  elastic.passes = elastic.samples % pass == 0 ? elastic.samples / pass : elastic.samples;
  if (settings.max_restarts == 0)
    fail(ExitCode::kUsage, "launch",
         "nnodes MIN:MAX and spares: wanted max_restarts above 0, found 0, with which a lost node "
         "ends the run; give --max_restarts 10");
  if (numbers_taken(elastic).empty())
    fail(ExitCode::kUsage, "launch", "wanted a number of nodes from ", elastic.least, " to ",
         elastic.most, " whose ranks (", local_ranks, " each) share the ", elastic.passes,
         " passes of a step, found none; change target_effective_batch_size (", elastic.samples,
         " samples) or batch_size");
  if (!elastic.takes(elastic.least)) warn_of_least(elastic, pass);
  return elastic;
}

Members chosen_members(const Elastic& elastic, std::span<const int> there,
                       std::span<const int> before) {
  std::vector<int> order;
  const auto add = [&](std::span<const int> nodes) {
    for (const int node : nodes)
      if (has(there, node) && !has(order, node)) order.push_back(node);
  };
  const int first[] = {0};
  add(first);
  add(before);
  add(there);
  int count = std::min(elastic.most, static_cast<int>(order.size()));
  while (count >= elastic.least && !elastic.takes(count)) --count;
  Members members;
  if (count < elastic.least || !has(there, 0)) {
    members.idle = order;
    std::ranges::sort(members.idle);
    return members;
  }
  members.nodes.assign(order.begin(), order.begin() + count);
  members.idle.assign(order.begin() + count, order.end());
  std::ranges::sort(members.nodes);
  std::ranges::sort(members.idle);
  return members;
}

std::vector<int> without(std::span<const int> all, std::span<const int> left_out) {
  std::vector<int> rest;
  for (const int node : all)
    if (!has(left_out, node)) rest.push_back(node);
  return rest;
}

RankInfo place_among(const RankInfo& own, std::span<const int> nodes) {
  const auto found = std::ranges::find(nodes, own.node);
  OCTAVO_ASSERT(found != nodes.end());
  RankInfo place = own;
  place.node = static_cast<int>(found - nodes.begin());
  place.nodes = static_cast<int>(nodes.size());
  place.ranks = place.nodes * place.local_ranks;
  place.rank = place.node * place.local_ranks;
  return place;
}

std::string node_names(std::span<const int> nodes) {
  std::string text = nodes.size() == 1 ? "node " : "nodes ";
  for (size_t at = 0; at < nodes.size(); ++at)
    text += str(at == 0 ? "" : at + 1 == nodes.size() ? " and " : ", ", nodes[at]);
  return text;
}

std::string described(const Elastic& elastic, const Members& members) {
  const auto ranks = static_cast<int64_t>(members.nodes.size()) * elastic.local_ranks;
  std::string text = str(node_names(members.nodes), ": ", ranks, " ranks");
  if (ranks > 0)
    text +=
        str(", each ", elastic.passes / ranks, " passes of a step's ", elastic.samples, " samples");
  if (!members.idle.empty())
    text += str("; ", node_names(members.idle), members.idle.size() == 1 ? " waits" : " wait",
                " beside them");
  return text;
}

std::string numbers_taken(const Elastic& elastic) {
  std::vector<std::string> numbers;
  for (int nodes = elastic.least; nodes <= elastic.most; ++nodes)
    if (elastic.takes(nodes)) numbers.push_back(std::to_string(nodes));
  return join(numbers, ", ");
}

}  // namespace octavo::launch
