#include "launch/run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/log_merge.h"
#include "base/secrets.h"
#include "base/text.h"
#include "launch/coordinator.h"
#include "launch/failed_start.h"
#include "launch/interfaces.h"
#include "launch/node_secret.h"
#include "launch/resizing.h"
#include "launch/restart.h"
#include "launch/supervise.h"
#include "launch/variables.h"
#include "rendezvous/auth.h"

namespace octavo::launch {
namespace {

constexpr std::chrono::milliseconds kOtherNodes{120'000};   // nodes of a job do not start together
constexpr std::chrono::milliseconds kNodeReturns{600'000};  // that was lost: booted, scheduled anew
constexpr std::chrono::milliseconds kTypedName{30'000};     // to resolve: a wrong one never does
constexpr std::chrono::hours kSparesWait{24 * 365};         // as long as node 0 is there
constexpr std::chrono::milliseconds kReadStop{2'000}, kLook{50};

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

class Launch {
 public:
  Launch(const config::Settings& settings, const Work& work, const Variables& variables)
      : settings_(settings),
        work_(work),
        rank_info_(node_rank_info(settings, variables)),
        elastic_(elastic_of(settings, work.train, rank_info_.local_ranks)),
        root_(checkpoint_root(work.train)),
        names_lag_(settings.auto_resume || is_set(variables, "KUBERNETES_SERVICE_HOST")),
        policy_(settings.max_restarts, std::chrono::duration<double>(60 * settings.restart_window),
                std::random_device{}()) {
    rank_info_.elastic = elastic_.on();
    if (settings.auto_resume) want_run_name(work.train);
    set_log_launcher(rank_info_.node);
    chosen_interface("", variables);  // wrong names fail here, once, and not on every rank
    if (rank_info_.nodes == 1) have_secret();
    if (!settings.log_dir.empty()) fs::create_directories(settings.log_dir);
    if (elastic_.on()) policy_.add_no_wait_for_nodes();
    if (!elastic_.on() || rank_info_.node != 0) return;
    resizing_ = std::make_unique<Resizing>(
        elastic_, std::chrono::milliseconds(static_cast<int64_t>(1000 * settings.node_wait)),
        std::chrono::duration<double>(60 * settings.restart_window));
    log_info(str("a step has ", elastic_.samples, " samples in ", elastic_.passes,
                 " passes, which ", numbers_taken(elastic_), " nodes of ", elastic_.local_ranks,
                 " ranks can share"));
  }

  int run() {
    try {
      const int code = run_generations();
      save_log();
      return code;
    } catch (const Error& error) {
      keep_in_log_file(LogLevel::kError, error.what());  // the command itself prints it
      save_log();
      throw;
    }
  }

 private:
  int run_generations() {
    const auto interrupted = [this] { return was_interrupted(); };
    if (rank_info_.nodes > 1) have_node_secret(rank_info_.node, kOtherNodes, interrupted);
    connect(kOtherNodes);
    StartPlan plan = first_plan();
    job_ = {.first = rank_info_, .log_dir = settings_.log_dir};
    if (settings_.auto_resume) job_.variables[kBeginsAnewVariable] = "1";
    job_.on_death = [this](int rank, const std::string& text) {
      coordinator_->post_death(rank, text, job_.first.generation);
    };
    if (resizing_ != nullptr)
      job_.wants_stop = [this](bool has_made_a_step) {
        return resizing_->wants_stop(*coordinator_, job_.first.generation, has_made_a_step);
      };
    if (rank_info_.node == 0 && rank_info_.nodes > 1 && resizing_ == nullptr)
      job_.waits_for_nodes = [this] { return waits_for_nodes(); };
    for (;;) {
      if (const std::optional<int> code = end_of_gathering(plan)) return *code;
      std::optional<Verdict> verdict = one_generation(plan);
      if (!verdict) return plan.code;
      const bool lost_first = verdict->rejoin;
      if (lost_first && stop_signal_ == 0) verdict = decided(verdict->outcome);
      if (!verdict->restart) {
        if (resizing_ != nullptr) coordinator_->dismiss(plan, verdict->outcome.code);
        if (!verdict->outcome.what.empty()) log_error(verdict->outcome.what);
        return verdict->outcome.code;
      }
      if (rank_info_.node != 0 && !lost_first)
        log_warn(str(verdict->outcome.what, "; the ranks are started again"));
      ++plan.generation;
      save_log();
      if (!waited(verdict->wait)) return stop_between(plan);
      plan.resume = resumes_;
      if (lost_first) {
        connect(kNodeReturns);
        plan.generation = 0;  // its store is new, and counts anew
      }
    }
  }

  bool was_interrupted() {  // between two generations: the ranks take signals themselves
    while (const std::optional<int> number = signals_.take())
      if (*number != SIGCHLD) stop_signal_ = *number;
    return stop_signal_ != 0;
  }

  void connect(std::chrono::milliseconds patience) {
    coordinator_.reset();
    coordinator_ = std::make_unique<LaunchCoordinator>(
        rank_info_.node, rank_info_.nodes, rank_info_.master_address, rank_info_.master_port,
        LaunchCoordinator::Options{
            .interrupted = [this] { return was_interrupted(); },
            .connect = patience,
            .resolve = names_lag_ || patience == kNodeReturns ? patience : kTypedName,
            .elastic = elastic_.on(),
            .terms = terms_of(settings_, rank_info_)});
    rank_info_.master_port = coordinator_->port();
  }

  // Named by the launcher when it has no name: the ranks that are started again are to find it.
  StartPlan first_plan() {
    name_ = name_of_run(work_.train);
    const bool continues = !work_.train.resume.empty() || settings_.auto_resume;
    before_ = continues ? Checkpoints{} : checkpoints_of(root_, name_);
    StartPlan plan;
    if (work_.train.run_name.empty()) plan.run_name = name_;
    plan.resume = settings_.auto_resume && newest_step(checkpoints_of(root_, name_), {});
    return plan;
  }

  // Node 0 of an elastic run chooses the nodes of the next generation; a code when there is none.
  std::optional<int> end_of_gathering(StartPlan& plan) {
    if (resizing_ == nullptr) return std::nullopt;
    try {
      plan.nodes = resizing_->next(*coordinator_);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kStopped) throw;
      return stop_between(plan);
    }
    if (!plan.nodes.empty()) return std::nullopt;
    constexpr int kCode = static_cast<int>(ExitCode::kEnvironment);
    coordinator_->dismiss(plan, kCode, true);
    return kCode;
  }

  // Nothing: it was asked to stop before any rank ran.
  std::optional<Verdict> one_generation(StartPlan& plan) {
    try {
      plan = coordinator_->start(plan, elastic_.on() ? kSparesWait : kNodeReturns);
    } catch (const rendezvous::Unreachable& error) {
      return Verdict{.rejoin = true, .outcome = lost_first_node(error)};
    } catch (const rendezvous::TimedOut& error) {
      return Verdict{.rejoin = true, .outcome = lost_first_node(error)};
    } catch (const Error& error) {
      if (error.code() == ExitCode::kStopped) coordinator_->decline(plan.generation);
      throw;
    }
    if (plan.stop) {
      log_info(plan.code == static_cast<int>(ExitCode::kStopped)
                   ? "node 0 was asked to stop; the ranks are not started again"
                   : "the run has ended; no more ranks are started");
      return std::nullopt;
    }
    if (!plan.run_name.empty()) name_ = plan.run_name;
    if (!plan.nodes.empty()) job_.first = place_among(rank_info_, plan.nodes);
    job_.first.generation = plan.generation;
    job_.first.master_port = rank_info_.master_port;
    job_.command = work_.command;
    if (!plan.run_name.empty()) job_.command.push_back("--run_name=" + plan.run_name);
    if (elastic_.on() && work_.train.target_effective_batch_size == 0)
      job_.command.push_back(str("--target_effective_batch_size=", elastic_.samples));
    if (plan.resume) job_.command = resuming(job_.command);
    Outcome own = supervise(job_, signals_, stop_signal_);
    own.curable = own.curable && stop_signal_ == 0;
    has_run_folder_ = has_run_folder_ || own.has_run_folder;
    return coordinator_->agree(plan.generation, own,
                               [this](const Outcome& outcome) { return decided(outcome); });
  }

  bool waits_for_nodes() {
    try {
      return coordinator_->say_missing_nodes(job_.first.generation);
    } catch (const Error& error) {
      log_warn(str("this node's own store does not answer: ", error.what()));
      return false;
    }
  }

  static Outcome lost_first_node(const Error& error) {
    Outcome outcome{.code = static_cast<int>(ExitCode::kEnvironment), .cause = Cause::kSilent};
    outcome.kind = EndKind::kLostFirstNode;
    outcome.curable = row_of(outcome.kind).curable;
    outcome.what = str("node 0 is lost (", error.what(), ")");
    return outcome;
  }

  // A file system that does not answer now is no reason to give up: the ranks look again.
  std::optional<int64_t> newest_checkpoint() {
    try {
      newest_ = newest_step(checkpoints_of(root_, name_), before_);
    } catch (const Error& error) {
      log_warn(error.what());
    }
    return newest_;
  }

  Verdict decided(const Outcome& outcome) {
    Verdict verdict{.outcome = outcome};
    const bool resizes = resizing_ != nullptr && resizing_->asked() && outcome.stopped &&
                         outcome.cause == Cause::kNone && stop_signal_ == 0;
    if (resizes) {
      verdict.restart = true;
      verdict.outcome.what = "nodes have come";
      job_.variables.erase(kRestartCauseVariable);
      resumes_ = newest_checkpoint().has_value();
      return verdict;
    }
    if (outcome.cause == Cause::kNone || stop_signal_ != 0) return verdict;
    if (resizing_ != nullptr) resizing_->take_note(outcome);
    const std::optional<int64_t> step = newest_checkpoint();
    const RestartPolicy::Decision decision = policy_.decide(outcome, step);
    verdict.restart = decision.restart;
    verdict.wait = decision.wait;
    resumes_ = step.has_value();
    job_.variables[kRestartCauseVariable] = restart_cause(outcome);
    if (decision.restart)
      log_warn(str(outcome.what, "; ", decision.reason));
    else
      log_info(str("no restart: ", decision.reason));
    return verdict;
  }

  // What was said so far, beside the ranks' files. Between two generations alone: while ranks run a
  // file system that does not answer must not keep this process from watching them. And not before
  // a rank has found that the folder is the run's.
  void save_log() {
    const fs::path folder = fs::path(work_.train.runs_dir) / name_ / "logs";
    std::error_code none;
    if (!has_run_folder_ || !fs::is_directory(folder, none)) return;
    open_log_file(folder / launcher_log_file_name(rank_info_.node));
    close_log_file();
  }

  // False when it was asked to stop meanwhile.
  bool waited(std::chrono::milliseconds wait) {
    const auto end = std::chrono::steady_clock::now() + wait;
    while (!was_interrupted()) {
      if (std::chrono::steady_clock::now() >= end) return true;
      std::this_thread::sleep_for(std::min(wait, kLook));
    }
    return false;
  }

  int stop_between(StartPlan& plan) {
    log_info("asked to stop before the ranks were started again; --resume latest continues");
    if (rank_info_.node == 0) {
      plan.stop = true;
      coordinator_->start(plan, kOtherNodes);
      if (rank_info_.nodes > 1) std::this_thread::sleep_for(kReadStop);  // the store ends with us
    } else {
      coordinator_->decline(plan.generation);
    }
    return static_cast<int>(ExitCode::kStopped);
  }

  const config::Settings& settings_;
  const Work& work_;
  RankInfo rank_info_;
  Elastic elastic_;
  std::unique_ptr<Resizing> resizing_;  // of node 0, when the run is elastic
  SignalWatch signals_;
  int stop_signal_ = 0;
  std::unique_ptr<LaunchCoordinator> coordinator_;
  const fs::path root_;
  const bool names_lag_;  // behind the nodes: a scheduler makes both
  std::string name_;
  Checkpoints before_;
  std::optional<int64_t> newest_;
  bool resumes_ = false, has_run_folder_ = false;
  RestartPolicy policy_;
  Job job_;
};

}  // namespace

int run(const config::Settings& settings, const Work& work, const Variables& variables) {
  check_launcher(variables);
  std::unique_ptr<Launch> launch;
  try {
    launch = std::make_unique<Launch>(settings, work, variables);
  } catch (const Error& error) {
    tell_failed_start(settings, variables, error);
    throw;
  }
  return launch->run();
}

}  // namespace octavo::launch
