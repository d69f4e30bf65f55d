// The control plane of RANKS ranks on this machine, without a model: their launchers, one for every
// eight ranks (launch/coordinator.h), the rendezvous, the start of the ranks (dist/world.h), what
// they agree on before the first step, steps with the loader, and reports of all ranks' numbers.
// Processes, because that is what ranks are. Driven by bench/scale_sim.py.
// usage: scale_sim_tool RANKS STEPS REPORTS FOLDER      one JSON line

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "config/settings.h"
#include "data/dataset_index.h"
#include "data/token_data.h"
#include "dist/world.h"
#include "launch/coordinator.h"
#include "message_count.h"
#include "monitor/speed_watch.h"
#include "train/guards/same_run.h"

namespace octavo::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr int kRanksOfNode = 8;
constexpr int64_t kLength = 8;
constexpr seconds kPatience{300};
constexpr const char* kAddress = "127.0.0.1";
enum Phase : size_t { kStart, kSteps, kReports, kEnd, kPhases };
constexpr std::array<const char*, kPhases> kPhaseNames = {"start", "steps", "reports", "end"};

// What one process leaves in memory that all share.
struct Account {
  std::array<MessageCount, kPhases> phases{};
  double started = 0;                          // seconds since the simulation began
  double report_seconds = 0, cpu_seconds = 0;  // of all reports; of a node's launcher
};

struct Simulation {
  int ranks = 0, steps = 0, reports = 0, port = 0;
  fs::path folder;
  Clock::time_point begin;
  std::span<Account> of_ranks, of_launchers;
  int nodes() const { return (ranks - 1) / kRanksOfNode + 1; }
  double passed() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
};

// Takes what was said since the last call as a phase's.
class PhaseCounter {
 public:
  explicit PhaseCounter(Account& account) : account_(account) {}
  void end(Phase phase) {
    const MessageCount now = messages_so_far();
    account_.phases[phase] = now - last_;
    last_ = now;
  }

 private:
  Account& account_;
  MessageCount last_ = messages_so_far();
};

void make_data(const fs::path& folder, uint64_t samples) {
  data::ShardWriter writer(folder, "train-00000.tok",
                           {.vocab_size = 257, .tokenizer_fingerprint = "bench"});
  std::vector<int32_t> tokens(samples * kLength + 1);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (int32_t& token : tokens) token %= 257;
  writer.append(tokens);
  data::DatasetIndex index;
  index.tokenizer_name = "bytes";
  index.kind = {.vocab_size = 257, .tokenizer_fingerprint = "bench"};
  index.splits["train"].shards = {writer.finish()};
  data::write_index(folder, index);
}

// The part of a rank.
void be_rank(const Simulation& sim, int rank, int generation) {
  at::set_num_threads(1);
  Account& account = sim.of_ranks[static_cast<size_t>(rank)];
  PhaseCounter counter(account);
  launch::RankInfo info;
  info.rank = rank;
  info.ranks = sim.ranks;
  info.node = rank / kRanksOfNode;
  info.nodes = sim.nodes();
  info.local_rank = rank % kRanksOfNode;
  info.local_ranks = std::min(kRanksOfNode, sim.ranks - info.node * kRanksOfNode);
  info.master_address = kAddress;
  info.master_port = sim.port;
  info.launcher = "octavo";
  info.store_is_running = true;
  info.generation = generation;
  {
    dist::World world =
        dist::World::connect(info, {.timeout = kPatience,
                                    .settings = train::settings_of_all_ranks(config::Settings()),
                                    .tensors = false});
    // What training agrees on before its first step: train/assemble.cpp, train/state.
    world.from_first(world.is_first() ? "a name" : "", "the run's name");
    std::shared_ptr<data::TokenData> data;
    world.rank_zero_first("names and data",
                          [&] { data = data::TokenData::open(sim.folder, "train"); });
    train::check_same_data(world, *data);
    world.from_first(world.is_first() ? "step-00000250" : "", "the checkpoint to resume from");
    world.from_first(world.is_first() ? "token" : "", "the token of checkpoints");
    const auto order = data::order_for(*data, kLength, static_cast<uint64_t>(sim.ranks));
    data::Loader loader(data, {.length = kLength, .seed = 7, .rank = rank, .world = sim.ranks},
                        {0, order});
    account.started = sim.passed();
    counter.end(kStart);

    uint64_t position = 0;
    for (int step = 1; step <= sim.steps; ++step) {
      world.set_step(step);
      position = loader.next().after.samples;
    }
    const auto wanted = static_cast<uint64_t>(sim.steps) * static_cast<uint64_t>(sim.ranks);
    if (position != wanted)
      fail(ExitCode::kDamaged, "bench", "position ", position, ", wanted ", wanted);
    counter.end(kSteps);

    monitor::SlowRankDetector slow;
    const auto before = Clock::now();
    for (int report = 1; report <= sim.reports; ++report) {
      const int64_t own[] = {rank, report};
      const at::Tensor all = world.from_all(own, "times of ranks");
      std::vector<double> of_ranks;
      for (int r = 0; r < sim.ranks; ++r) {
        const auto* row = all.const_data_ptr<int64_t>() + int64_t{2} * r;
        if (row[0] != r || row[1] != report) fail(ExitCode::kDamaged, "bench", "rank ", r, "'s");
        of_ranks.push_back(static_cast<double>(row[1]));
      }
      if (world.is_first()) slow.add(of_ranks);
    }
    account.report_seconds = std::chrono::duration<double>(Clock::now() - before).count();
    counter.end(kReports);
  }
  counter.end(kEnd);
}

// Runs `work` in a process that ends with its parent.
pid_t start(const Simulation& sim, const std::function<void()>& work) {
  const pid_t pid = ::fork();
  if (pid < 0) fail(ExitCode::kEnvironment, "bench", "no process could be started");
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int log = ::open((sim.folder / "log").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  ::dup2(log, STDERR_FILENO);
  ::close(log);
  int code = 0;
  try {
    work();
  } catch (const std::exception& error) {
    log_error(error.what());
    code = 3;
  }
  ::_exit(code);
}

bool all_good(std::span<const pid_t> pids) {
  bool good = true;
  for (const pid_t pid : pids) {
    int status = 0;
    good = ::waitpid(pid, &status, 0) == pid && status == 0 && good;
  }
  return good;
}

// The part of a node's launcher. Its ranks are forked before it has a thread, and begin when the
// launchers have agreed on a start.
void be_launcher(const Simulation& sim, int node) {
  std::array<int, 2> gate{};
  if (::pipe(gate.data()) != 0) fail(ExitCode::kEnvironment, "bench", "no pipe");
  std::vector<pid_t> ranks;
  const int first = node * kRanksOfNode, behind = std::min(sim.ranks, first + kRanksOfNode);
  for (int rank = first; rank < behind; ++rank)
    ranks.push_back(start(sim, [&, rank] {
      char generation = 0;
      if (::read(gate[0], &generation, 1) == 1) be_rank(sim, rank, generation);
    }));
  Account& account = sim.of_launchers[static_cast<size_t>(node)];
  PhaseCounter counter(account);
  launch::LaunchCoordinator coordinator(node, sim.nodes(), kAddress, sim.port,
                                        {.interrupted = [] { return false; }});
  const launch::StartPlan plan = coordinator.start({.generation = 1}, kPatience);
  for (size_t i = 0; i < ranks.size(); ++i)
    if (const auto byte = static_cast<char>(plan.generation); ::write(gate[1], &byte, 1) != 1)
      fail(ExitCode::kEnvironment, "bench", "a rank could not be let go");
  account.started = sim.passed();
  if (node != 0) counter.end(kStart);  // node 0's process also answers for the store
  const bool good = all_good(ranks);
  if (node != 0) counter.end(kSteps);
  launch::Outcome own;
  own.code = good ? 0 : 3;
  const auto decide = [](const launch::Outcome& worst) {
    return launch::Verdict{.outcome = worst};
  };
  const launch::Verdict verdict = coordinator.agree(plan.generation, own, decide);
  counter.end(kEnd);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto in_seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  account.cpu_seconds = in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
  if (!good || verdict.outcome.code != 0) fail(ExitCode::kEnvironment, "bench", "a rank failed");
}

Json summary_of(std::span<const Account> accounts, Phase phase) {
  Json json;
  const auto add = [&](const char* name, int64_t MessageCount::*field) {
    int64_t most = 0, sum = 0;
    for (const Account& one : accounts) {
      most = std::max(most, one.phases[phase].*field);
      sum += one.phases[phase].*field;
    }
    json[name] = {{"most", most},
                  {"mean", static_cast<double>(sum) / static_cast<double>(accounts.size())}};
  };
  add("store_operations", &MessageCount::store_operations);
  add("sent", &MessageCount::sent);
  add("received", &MessageCount::received);
  add("bytes", &MessageCount::bytes);
  add("connections", &MessageCount::connections);
  return json;
}

double available_gb() {
  std::ifstream in("/proc/meminfo");
  for (std::string word; in >> word;)
    if (double kb = 0; word == "MemAvailable:" && in >> kb) return kb / 1e6;
  return 0;
}

std::span<Account> shared(int count) {
  void* memory = ::mmap(nullptr, sizeof(Account) * static_cast<size_t>(count),
                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(ExitCode::kEnvironment, "bench", "no shared memory");
  return {static_cast<Account*>(memory), static_cast<size_t>(count)};
}

int main_of(const std::vector<std::string>& words) {
  Simulation sim;
  sim.ranks = std::stoi(words.at(0));
  sim.steps = std::stoi(words.at(1));
  sim.reports = std::stoi(words.at(2));
  sim.folder = words.at(3);
  make_data(sim.folder, static_cast<uint64_t>(sim.ranks) * static_cast<uint64_t>(sim.steps + 8));
  sim.of_ranks = shared(sim.ranks);
  sim.of_launchers = shared(sim.nodes());
  sim.port = rendezvous::Server(kAddress, 0, "").port();  // a free one
  count_store_at(sim.port);
  const double before = available_gb();
  sim.begin = Clock::now();
  std::vector<pid_t> launchers;
  for (int node = 0; node < sim.nodes(); ++node)
    launchers.push_back(start(sim, [&, node] { be_launcher(sim, node); }));
  double least = before;
  std::jthread memory([&](const std::stop_token& token) {
    for (; !token.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(100)))
      least = std::min(least, available_gb());
  });
  const bool good = all_good(launchers);
  memory.request_stop();
  memory.join();
  Json json = {{"ranks", sim.ranks}, {"good", good}, {"memory_gb", before - least}};
  double started = 0, report = 0;
  for (const Account& one : sim.of_ranks) {
    started = std::max(started, one.started);
    report = std::max(report, one.report_seconds);
  }
  json["start_seconds"] = started;
  json["report_seconds"] = report / std::max(sim.reports, 1);
  json["store_cpu_seconds"] = sim.of_launchers[0].cpu_seconds;
  for (size_t phase = 0; phase < kPhases; ++phase)
    json["of_ranks"][kPhaseNames[phase]] = summary_of(sim.of_ranks, static_cast<Phase>(phase));
  if (sim.nodes() > 1)
    for (const Phase phase : {kStart, kSteps, kEnd})
      json["of_launchers"][kPhaseNames[phase]] = summary_of(sim.of_launchers.subspan(1), phase);
  json["of_store"] = summary_of(sim.of_launchers.first(1), kEnd);
  std::printf("%s\n", json.dump().c_str());
  return good ? 0 : 1;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  try {
    return octavo::bench::main_of({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scale_sim_tool: %s\n", error.what());
    return 1;
  }
}
