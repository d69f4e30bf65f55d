#include "sweep/run_agents.h"

#include <stdlib.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "base/cpu_share.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "chart/ticks.h"
#include "launch/run.h"
#include "launch/variables.h"
#include "sweep/agent.h"

namespace octavo::sweep {
namespace {

constexpr auto kAgentTick = std::chrono::milliseconds(1000);

class AgentGroup {
 public:
  AgentGroup(const fs::path& database, int64_t agents, const AgentOptions& options)
      : database_(database), options_(options), store_(database), children_(agents) {}

  int run() {
    for (size_t i = 0; i < children_.size(); ++i) start(i);
    Progress progress("trials", static_cast<double>(store_.total()), "trials");
    int64_t shown = -1;
    std::string note;
    while (any_running()) {
      std::vector<WatchedChild*> running;
      for (const auto& child : children_)
        if (child->running()) running.push_back(child.get());
      wait_for_news(signals_, running, kAgentTick);
      progress.clear();  // agents print lines
      handle_signals();
      update_all();
      const int64_t ended = store_.counts().ended();
      if (ended != shown) note = best_note();
      shown = ended;
      progress.set(static_cast<double>(ended), note);
    }
    progress.finish();
    return exit_code();
  }

 private:
  void start(size_t index) {
    const Variables here = launch::environment();
    std::vector<std::string> command = {options_.program,  "sweep",
                                        "agent",           database_.string(),
                                        "--agent_timeout", str(options_.timeout)};
    if (options_.nproc > 0)
      command.insert(command.end(), {"--nproc", std::to_string(options_.nproc)});
    const auto count = static_cast<int64_t>(children_.size());
    children_[index] =
        std::make_unique<WatchedChild>(command,
                                       agent_variables(here, static_cast<int64_t>(index), count,
                                                       launch::gpus_here(here), threads_of_rank()),
                                       str("[agent ", index + 1, "] "), nullptr);
  }

  // Each trial has ranks of its own.
  int threads_of_rank() const {
    return own_cpu_share().threads() / static_cast<int>(std::max<int64_t>(1, options_.nproc));
  }

  bool any_running() const {
    return std::ranges::any_of(children_, [](const auto& child) { return child->running(); });
  }

  void handle_signals() {
    while (const std::optional<int> number = signals_.take()) {
      if (*number == SIGCHLD) continue;
      const bool again = stop_signal_ != 0;
      stop_signal_ = *number;
      log_info(str(strsignal(*number), ": passed on to the agents"));
      for (const auto& child : children_) {
        if (again && *number == SIGINT)
          child->end_now();
        else
          child->signal(*number);
      }
    }
  }

  void update_all() {
    for (size_t i = 0; i < children_.size(); ++i) {
      WatchedChild& child = *children_[i];
      if (!child.running() || child.update()) continue;
      const bool lost = child.by_signal() != 0;
      if (child.by_signal() == 0 && child.code() != 0) last_code_ = child.code();
      if (stop_signal_ != 0) continue;
      // One that was killed is replaced. One that found nothing left may be needed again, when
      // another was killed after it.
      if (lost && restarts_ < most_restarts()) {
        ++restarts_;
        log_warn(str("agent ", i + 1, " was ended by ", child.end_text(),
                     "; another takes its place (", restarts_, " of ", most_restarts(), ")"));
        start(i);
      } else if (lost) {
        log_error(str("agent ", i + 1, " was ended by ", child.end_text(),
                      "; agents were replaced ", restarts_, " times already"));
        last_code_ = static_cast<int>(ExitCode::kEnvironment);
      }
    }
  }

  int64_t most_restarts() const {
    return static_cast<int64_t>(children_.size()) * store_.plan().attempts;
  }

  std::string best_note() {
    const std::vector<Trial> trials = store_.trials();
    const Trial* best = best_trial(store_.definition(), trials);
    if (best == nullptr) return "";
    return str("best: trial ", best->number, ", ", store_.definition().metric, " ",
               chart::short_number(best->metric.value_or(0)));
  }

  int exit_code() {
    if (stop_signal_ != 0) return static_cast<int>(ExitCode::kStopped);
    const Counts counts = store_.counts();
    const int64_t open = counts.waiting + counts.running;
    if (open > 0 || last_code_ != 0) {
      log_error(str("agents ended with exit code ", last_code_, "; ", open,
                    " trials that began have no end; run the command again to continue"));
      return last_code_ != 0 ? last_code_ : static_cast<int>(ExitCode::kEnvironment);
    }
    if (counts.failed > 0) log_warn(str(counts.failed, " of ", counts.ended(), " trials failed"));
    return counts.finished > 0 ? 0 : static_cast<int>(ExitCode::kGuard);
  }

  const fs::path& database_;
  const AgentOptions& options_;
  Store store_;
  SignalWatch signals_;
  std::vector<std::unique_ptr<WatchedChild>> children_;
  int stop_signal_ = 0, last_code_ = 0;
  int64_t restarts_ = 0;
};

}  // namespace

Variables agent_variables(const Variables& here, int64_t index, int64_t agents, int gpus,
                          int cores) {
  Variables added;
  if (!launch::is_set(here, "OMP_NUM_THREADS"))
    added["OMP_NUM_THREADS"] = std::to_string(std::max<int64_t>(1, cores / agents));
  if (gpus == 0 || agents == 1) return added;
  std::vector<std::string> names;
  if (const auto visible = launch::variable(here, "CUDA_VISIBLE_DEVICES"))
    names = split(*visible, ',');
  else
    for (int i = 0; i < gpus; ++i) names.push_back(std::to_string(i));
  // Neighbouring GPUs for each agent; with more agents than GPUs some share one.
  const auto count = static_cast<int64_t>(names.size());
  const int64_t each = std::max<int64_t>(1, count / agents);
  std::vector<std::string> own;
  for (int64_t i = 0; i < each; ++i)
    own.push_back(names[static_cast<size_t>((index * each + i) % count)]);
  added["CUDA_VISIBLE_DEVICES"] = join(own, ",");
  return added;
}

int run_agents(const fs::path& database, int64_t agents, const AgentOptions& options) {
  check_end(Store(database), 0);
  return AgentGroup(database, agents, options).run();
}

}  // namespace octavo::sweep
