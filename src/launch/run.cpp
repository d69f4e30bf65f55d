#include "launch/run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/secrets.h"
#include "base/text.h"
#include "launch/coordinator.h"
#include "launch/interfaces.h"
#include "launch/node_secret.h"
#include "launch/restart.h"
#include "launch/supervise.h"
#include "launch/variables.h"
#include "rendezvous/auth.h"

namespace octavo::launch {
namespace {

constexpr int kUsualPort = 29500;
constexpr std::chrono::milliseconds kOtherNodes{120'000};  // nodes of a job do not start together

int chosen_or(int64_t key, int otherwise) {
  return key >= 0 ? static_cast<int>(key) : otherwise;
}

// Every user of a machine reaches its loopback: a run of one node, whose ranks are all children of
// this process, has a secret even when none was given. They inherit it.
void have_secret() {
  if (!rendezvous::secret_from_environment().empty()) return;
  const std::string secret = rendezvous::new_secret();
  add_secret(secret);
  ::setenv("OCTAVO_RENDEZVOUS_SECRET", secret.c_str(), 1);
}

void check_launcher(const Variables& variables) {
  if (!is_set(variables, "OCTAVO_RANK") && !is_set(variables, "TORCHELASTIC_RUN_ID")) return;
  fail(ExitCode::kUsage, "launch", "wanted to start ranks, found that this process is a rank of ",
       is_set(variables, "OCTAVO_RANK") ? "octavo launch" : "torchrun",
       " itself; leave one of the two launchers out");
}

Verdict decided(RestartPolicy& policy, const Outcome& outcome, bool may_restart,
                std::optional<int64_t> step) {
  Verdict verdict{.outcome = outcome};
  if (outcome.cause == Cause::kNone || !may_restart) return verdict;
  const RestartPolicy::Decision decision = policy.decide(outcome, step);
  verdict.restart = decision.restart;
  verdict.resume = step.has_value();
  if (decision.restart)
    log_warn(str(outcome.what, "; ", decision.reason));
  else
    log_info(str("no restart: ", decision.reason));
  return verdict;
}

}  // namespace

int gpus_here(const Variables& variables) {
  const auto visible = variables.find("CUDA_VISIBLE_DEVICES");
  if (visible != variables.end()) return static_cast<int>(split(visible->second, ',').size());
  if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return 0;  // `variables` has no empty ones
  int count = 0;
  std::error_code error;
  while (fs::exists(str("/dev/nvidia", count), error)) ++count;
  return count;
}

RankInfo node_rank_info(const config::Settings& settings, const Variables& variables) {
  const std::optional<RankInfo> guide = guide_rank_info(variables);
  RankInfo rank_info = guide.value_or(RankInfo{});
  rank_info.launcher = "octavo";
  rank_info.store_is_running = true;
  if (settings.nproc > 0)
    rank_info.local_ranks = static_cast<int>(settings.nproc);
  else if (!guide)
    rank_info.local_ranks = std::max(1, gpus_here(variables));
  if (settings.nnodes > 0) rank_info.nodes = static_cast<int>(settings.nnodes);
  rank_info.node = chosen_or(settings.node_rank, rank_info.node);
  if (rank_info.nodes > kMostRanks / rank_info.local_ranks)
    fail(ExitCode::kUsage, "launch", "wanted at most ", kMostRanks, " ranks, found nnodes ",
         rank_info.nodes, " x nproc ", rank_info.local_ranks);
  if (rank_info.node >= rank_info.nodes)
    fail(ExitCode::kUsage, "launch", "wanted node_rank from 0 to ", rank_info.nodes - 1, ", found ",
         rank_info.node, "; it counts from 0 to nnodes - 1");
  if (rank_info.nodes > 1 && settings.node_rank < 0 && !guide)
    fail(ExitCode::kUsage, "launch", "nnodes ", rank_info.nodes, ": wanted node_rank, found none; ",
         "give every node its own, from 0 on");
  rank_info.ranks = rank_info.nodes * rank_info.local_ranks;
  rank_info.rank = rank_info.node * rank_info.local_ranks;
  if (!settings.master_address.empty()) rank_info.master_address = settings.master_address;
  if (settings.master_port > 0) rank_info.master_port = static_cast<int>(settings.master_port);
  if (rank_info.nodes > 1 && rank_info.master_address.empty())
    fail(ExitCode::kUsage, "launch", "nnodes ", rank_info.nodes,
         ": wanted master_address, found none; ",
         "give the first node's address or name on every node");
  if (rank_info.nodes == 1 && settings.master_address.empty()) {
    rank_info.master_address =
        "127.0.0.1";  // whatever MASTER_ADDR says: nobody else needs to come in
    if (settings.master_port == 0) rank_info.master_port = 0;
  } else if (rank_info.master_port == 0) {
    rank_info.master_port = kUsualPort;
  }
  return rank_info;
}

int run(const config::Settings& settings, const Work& work, const Variables& variables) {
  check_launcher(variables);
  chosen_interface("", variables);  // wrong names fail here, once, and not on every rank
  RankInfo rank_info = node_rank_info(settings, variables);
  if (rank_info.nodes == 1) have_secret();
  if (!settings.log_dir.empty()) fs::create_directories(settings.log_dir);
  SignalWatch signals;
  int stop_signal = 0;
  const auto interrupted = [&] {  // between two generations: the ranks take signals themselves
    while (const std::optional<int> number = signals.take())
      if (*number != SIGCHLD) stop_signal = *number;
    return stop_signal != 0;
  };
  if (rank_info.nodes > 1) have_node_secret(rank_info.node, kOtherNodes, interrupted);
  LaunchCoordinator coordinator(rank_info.node, rank_info.nodes, rank_info.master_address,
                                rank_info.master_port, interrupted);
  rank_info.master_port = coordinator.port();

  // Named by the launcher when it has no name: the ranks that are started again are to find it.
  const std::string name = name_of_run(work.train, settings.auto_resume);
  std::vector<std::string> command = work.command;
  if (work.train.run_name.empty()) command.push_back("--run_name=" + name);
  const fs::path root = checkpoint_root(work.train);
  const bool continues = !work.train.resume.empty() || settings.auto_resume;
  const Checkpoints before = continues ? Checkpoints{} : checkpoints_of(root, name);
  RestartPolicy policy(settings.max_restarts);
  Job job{.command = command, .first = rank_info, .log_dir = settings.log_dir};
  job.on_death = [&](int rank, const std::string& text) {
    coordinator.post_death(rank, text, job.first.generation);
  };
  if (settings.auto_resume) {
    job.variables[kBeginsAnewVariable] = "1";
    if (newest_step(checkpoints_of(root, name), {})) job.command = resuming(command);
  }
  for (;; ++job.first.generation) {
    Outcome own = supervise(job, signals, stop_signal);
    own.curable = own.curable && stop_signal == 0;
    const Verdict verdict =
        coordinator.agree(job.first.generation, own, [&](const Outcome& outcome) {
          return decided(policy, outcome, stop_signal == 0,
                         newest_step(checkpoints_of(root, name), before));
        });
    if (!verdict.restart || stop_signal != 0) {
      if (!verdict.outcome.what.empty()) log_error(verdict.outcome.what);
      return verdict.outcome.code;
    }
    if (verdict.resume) job.command = resuming(command);
    if (rank_info.node != 0) log_warn(str(verdict.outcome.what, "; the ranks are started again"));
  }
}

}  // namespace octavo::launch
