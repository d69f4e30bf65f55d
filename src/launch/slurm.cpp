#include "launch/slurm.h"

#include <cstdint>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "launch/interfaces.h"
#include "launch/variables.h"

namespace octavo::launch {
namespace {

constexpr size_t kMostHosts = 1 << 17;
// Steps that are no srun: batch script, interactive shell, external processes have these numbers.
constexpr int64_t kFirstSpecialStep = 0xfffffff0;

[[noreturn]] void bad_list(std::string_view list) {
  fail(ExitCode::kUsage, "launch", "SLURM: wanted a list such as node[01-03,7],login or 2(x3),1, ",
       "found '", list.substr(0, 200), "'; is the variable cut off?");
}

// Parts between commas that are outside brackets.
std::vector<std::string_view> outer_parts(std::string_view list) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  bool inside = false;
  for (size_t at = 0; at <= list.size(); ++at) {
    const char c = at < list.size() ? list[at] : ',';
    if (c == '[' || c == ']') {
      if (inside == (c == '[')) bad_list(list);
      inside = c == '[';
    } else if (c == ',' && (!inside || at == list.size())) {
      if (inside || at == begin) bad_list(list);
      parts.push_back(list.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  return parts;
}

// "01-03" as 01, 02, 03: zeros in front belong to the name.
std::vector<std::string> range_of(std::string_view range, std::string_view list) {
  const size_t dash = range.find('-');
  const std::string_view from = range.substr(0, dash);
  const std::string_view to = dash == range.npos ? from : range.substr(dash + 1);
  const auto first = config::parse_number<uint32_t>(from),
             last = config::parse_number<uint32_t>(to);
  if (!first || !last || *last < *first || *last - *first >= kMostHosts) bad_list(list);
  std::vector<std::string> names;
  for (uint32_t number = *first;; ++number) {
    std::string name = std::to_string(number);
    if (name.size() < from.size()) name.insert(0, from.size() - name.size(), '0');
    names.push_back(std::move(name));
    if (number == *last) return names;
  }
}

// One part with any number of brackets: rack[1-2]node[01-02].
std::vector<std::string> expand_part(std::string_view part, std::string_view list) {
  std::vector<std::string> names = {""};
  while (!part.empty()) {
    const size_t open = part.find('[');
    const std::string_view plain = part.substr(0, open);
    for (std::string& name : names) name += plain;
    if (open == part.npos) break;
    const size_t close = part.find(']');
    std::vector<std::string> endings;
    for (const std::string& range : split(part.substr(open + 1, close - open - 1), ','))
      for (std::string& ending : range_of(range, list)) endings.push_back(std::move(ending));
    if (names.size() * endings.size() > kMostHosts) bad_list(list);
    std::vector<std::string> longer;
    for (const std::string& name : names)
      for (const std::string& ending : endings) longer.push_back(name + ending);
    names = std::move(longer);
    part.remove_prefix(close + 1);
  }
  return names;
}

// A step's own variable, or else the job's.
std::string either(const Variables& variables, std::string_view step, std::string_view job) {
  const std::optional<std::string> value = variable(variables, step);
  return value ? *value : variable(variables, job).value_or("");
}

uint64_t job_number(const Variables& variables, std::string_view name) {
  return config::parse_number<uint64_t>(variable(variables, name).value_or("0")).value_or(0);
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view part : outer_parts(list)) {
    for (std::string& host : expand_part(part, list)) hosts.push_back(std::move(host));
    if (hosts.size() > kMostHosts) bad_list(list);
  }
  return hosts;
}

std::vector<int> expand_counts(std::string_view list) {
  std::vector<int> counts;
  for (const std::string& part : split(list, ',')) {
    const size_t times = part.find("(x");
    const auto count = config::parse_number<int>(std::string_view(part).substr(0, times));
    std::optional<int> repeats = 1;
    if (times != part.npos) {
      if (part.back() != ')') bad_list(list);
      repeats = config::parse_number<int>(
          std::string_view(part).substr(times + 2, part.size() - times - 3));
    }
    if (!count || *count < 1 || !repeats || *repeats < 1 ||
        counts.size() + static_cast<size_t>(*repeats) > kMostHosts)
      bad_list(list);
    counts.insert(counts.end(), static_cast<size_t>(*repeats), *count);
  }
  return counts;
}

bool in_slurm_step(const Variables& variables) {
  const std::optional<std::string> step = variable(variables, "SLURM_STEP_ID");
  if (!step || !is_set(variables, "SLURM_PROCID")) return false;
  const std::optional<int64_t> number = config::parse_number<int64_t>(*step);
  return number && *number >= 0 && *number < kFirstSpecialStep;
}

RankInfo slurm_rank_info(const Variables& variables) {
  constexpr std::string_view kStep = "SLURM_STEP_ID";
  RankInfo rank_info;
  rank_info.launcher = "slurm";
  const auto count = [&](const char* step, const char* job) {
    return needed_number(variables, is_set(variables, step) ? step : job, 1, kMostRanks, kStep);
  };
  rank_info.ranks = count("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  rank_info.nodes = count("SLURM_STEP_NUM_NODES", "SLURM_NNODES");
  rank_info.rank = needed_number(variables, "SLURM_PROCID", 0, rank_info.ranks - 1, kStep);
  rank_info.node = needed_number(variables, "SLURM_NODEID", 0, rank_info.nodes - 1, kStep);
  rank_info.local_rank = needed_number(variables, "SLURM_LOCALID", 0, rank_info.ranks - 1, kStep);
  const std::string tasks = either(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  const std::vector<int> counts = expand_counts(tasks);
  if (counts.size() != static_cast<size_t>(rank_info.nodes))
    fail(ExitCode::kUsage, "launch", "SLURM: wanted tasks for ", rank_info.nodes, " nodes, found '",
         tasks, "'; start the ranks with one srun");
  rank_info.local_ranks = counts[static_cast<size_t>(rank_info.node)];
  if (rank_info.ranks == 1) return rank_info;

  const std::string hosts = either(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  const std::optional<std::string> master = address(variables, "MASTER_ADDR");
  if (rank_info.nodes == 1 && !master)
    rank_info.master_address = "127.0.0.1";
  else
    rank_info.master_address = master ? *master : expand_hosts(hosts).front();
  if (rank_info.nodes > 1 && rank_info.rank == 0 && is_loopback_name(rank_info.master_address))
    fail(ExitCode::kEnvironment, "launch",
         "wanted an address of this node that others can reach, found ",
         master ? "MASTER_ADDR " : "the name ", rank_info.master_address,
         ", which is loopback here; export MASTER_ADDR=<this node's address>, or fix /etc/hosts");
  const uint64_t job = job_number(variables, "SLURM_JOB_ID");
  const uint64_t step = job_number(variables, "SLURM_STEP_ID");
  rank_info.master_port =
      number(variables, "MASTER_PORT", 1, 65535).value_or(port_of_job(job + 97 * step));
  return rank_info;
}

}  // namespace octavo::launch
