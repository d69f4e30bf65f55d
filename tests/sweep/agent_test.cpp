// An agent with a stand-in for octavo: a script that writes metrics.jsonl and ends as the trial's
// values say.

#include "sweep/agent.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "config/parse.h"
#include "expect_failure.h"
#include "sweep/run_agents.h"
#include "sweep/trial_command.h"

namespace octavo::sweep {
namespace {

constexpr const char* kStandIn = R"sh(#!/bin/bash
for word in "$@"; do
  case "$word" in
    --run_name=*) run="${word#*=}" ;;
    --seed=*) seed="${word#*=}" ;;
    latest) resumed=1 ;;
  esac
done
mkdir -p "runs/$run"
saved="checkpoints/$run"
trap 'mkdir -p "$saved/step-00000007"; touch "$saved/step-00000007/manifest.json"; exit 75' TERM
line() { echo "{\"step\": $1, \"val/loss\": $2}" >> "runs/$run/metrics.jsonl"; }
case "$BEHAVIOUR" in
  fail) [ "$seed" = 2 ] && { echo "octavo: [train] a guard stopped it" >&2; exit 4; } ;;
  usage) echo "octavo: [train] no such data" >&2; exit 2 ;;
  killed) [ -e "runs/$run/seen" ] || { touch "runs/$run/seen"; kill -9 $$; } ;;
  hang) [ -n "$resumed" ] || { line 1 5; for i in {1..200}; do sleep 0.05; done; } ;;
  diverge) line 9 "$seed.5"; [ "$seed" = 2 ] && { line 10 null; exit 0; } ;;
  early) for i in 1 2 3; do line $i "$seed"; done
         if [ "$seed" = 2 ]; then for i in {1..200}; do sleep 0.05; done; fi ;;
esac
line 9 "$seed.5"
)sh";

class AgentTest : public testing::Test {
 protected:
  AgentTest() : before_(fs::current_path()) {
    folder_ = fs::temp_directory_path() / str("octavo-sweep-agent-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::current_path(folder_);
    std::ofstream("stand-in") << kStandIn;
    fs::permissions("stand-in", fs::perms::owner_all);
    options_.program = (folder_ / "stand-in").string();
  }
  ~AgentTest() override {
    unsetenv("BEHAVIOUR");
    fs::current_path(before_);
    fs::remove_all(folder_);
  }

  std::vector<Trial> run(const char* behaviour, int wanted_code = 0, const std::string& more = "",
                         const std::string& seeds = "[1, 2, 3]") {
    setenv("BEHAVIOUR", behaviour, 1);
    std::ofstream("s.yaml") << "parameters: {seed: {values: " << seeds << "}}\n" << more;
    std::vector<std::string> notes;
    Store::create("s.db", make_plan({}, "s.yaml", "", {}, notes));
    EXPECT_EQ(run_agent("s.db", options_), wanted_code);
    return Store("s.db").trials();
  }

  fs::path before_, folder_;
  AgentOptions options_;
};

TEST_F(AgentTest, RunsEveryTrialAndReadsItsLastValue) {
  const std::vector<Trial> trials = run("plain");
  ASSERT_EQ(trials.size(), 3u);
  for (const Trial& trial : trials) {
    EXPECT_EQ(trial.state, TrialState::kFinished);
    EXPECT_EQ(trial.attempts, 1);
    EXPECT_EQ(trial.metric, std::stod(trial.values[0] + ".5"));
  }
  const Definition sweep = Store("s.db").definition();
  EXPECT_EQ(best_trial(sweep, trials)->number, 1);
}

TEST_F(AgentTest, AGuardsStopIsKeptWithItsReasonAndNotTriedAgain) {
  const std::vector<Trial> trials = run("fail");
  EXPECT_EQ(trials[0].state, TrialState::kFinished);
  EXPECT_EQ(trials[1].state, TrialState::kFailed);
  EXPECT_EQ(trials[1].attempts, 1);
  EXPECT_NE(trials[1].reason.find("exit code 4; octavo: [train] a guard stopped it"),
            std::string::npos);
  EXPECT_EQ(trials[2].state, TrialState::kFinished);
}

// What it had before it diverged is not its result.
TEST_F(AgentTest, ATrialWhoseLastValueIsNotFiniteHasFailed) {
  const std::vector<Trial> trials = run("diverge");
  EXPECT_EQ(trials[0].state, TrialState::kFinished);
  EXPECT_EQ(trials[1].state, TrialState::kFailed);
  EXPECT_FALSE(trials[1].metric);
  EXPECT_NE(trials[1].reason.find("diverged"), std::string::npos) << trials[1].reason;
}

TEST_F(AgentTest, GivesUpWhenNoTrialCanRun) {
  const std::vector<Trial> trials = run("usage", 2, "", "[1, 2, 3, 4, 5]");
  EXPECT_EQ(trials.size(), 3u);  // the other two are not begun
}

TEST_F(AgentTest, AKilledProcessIsTriedAgain) {
  const std::vector<Trial> trials = run("killed");
  for (const Trial& trial : trials) {
    EXPECT_EQ(trial.state, TrialState::kFinished);
    EXPECT_EQ(trial.attempts, 2);
  }
}

TEST_F(AgentTest, StopsATrialEarlyThatIsWorseThanTheOthers) {
  const std::vector<Trial> trials =
      run("early", 0, "early_terminate: {type: hyperband, min_iter: 3, eta: 3}\n", "[1, 2]");
  EXPECT_EQ(trials[1].state, TrialState::kStoppedEarly);
  EXPECT_EQ(trials[1].metric, 2);
  EXPECT_NE(trials[1].reason.find("at iteration 3"), std::string::npos);
}

TEST_F(AgentTest, PassesAStopOnAndTheTrialGoesOnFromItsCheckpoint) {
  const pid_t self = getpid();
  sigset_t all, old;  // the helper thread must not take the signal: the agent's descriptor does
  sigemptyset(&all);
  sigaddset(&all, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  std::thread killer([&] {
    for (int i = 0; i < 200; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (fs::exists("s.db") && fs::exists("runs") && !fs::is_empty("runs")) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(self, SIGTERM);
  });
  const std::vector<Trial> stopped = run("hang", 75, "", "[1]");
  killer.join();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_EQ(stopped[0].state, TrialState::kWaiting);
  EXPECT_EQ(run_agent("s.db", options_), 0);  // the stand-in hangs unless it is told to resume
  const std::vector<Trial> trials = Store("s.db").trials();
  EXPECT_EQ(trials[0].state, TrialState::kFinished);
  EXPECT_EQ(trials[0].attempts, 1);
}

TEST_F(AgentTest, RefusesASweepWithoutAnEndAndAChangedConfiguration) {
  std::vector<std::string> notes;
  std::ofstream("r.yaml") << "method: random\nparameters: {seed: {min: 1, max: 9}}\n";
  Store::create("r.db", make_plan({}, "r.yaml", "", {}, notes));
  EXPECT_THROW(run_agent("r.db", options_), Error);
  std::ofstream("c.yaml") << "batch_size: 4\n";
  std::ofstream("g.yaml") << "parameters: {seed: {values: [1]}}\n";
  Store::create("g.db", make_plan({}, "g.yaml", "c.yaml", {}, notes));
  std::ofstream("c.yaml") << "batch_size: 5\n";
  EXPECT_THROW(run_agent("g.db", options_), Error);
}

TEST_F(AgentTest, ChecksThePlanBeforeAnyTrialRuns) {
  std::vector<std::string> notes;
  std::ofstream("s.yaml") << "parameters: {seed: {values: [1]}}\n";
  EXPECT_THROW(make_plan({}, "s.yaml", "", {"--eval_freq", "0"}, notes), Error);  // val/loss
  EXPECT_THROW(make_plan({}, "s.yaml", "", {"--seed", "3"}, notes), Error);       // said twice
  EXPECT_THROW(make_plan({}, "s.yaml", "", {"--run_name", "x"}, notes), Error);
  EXPECT_THROW(make_plan({}, "s.yaml", "", {"--list_checkpoints"}, notes), Error);
  EXPECT_THROW(make_plan({}, "none.yaml", "", {}, notes), Error);
  const std::string too_many = std::to_string(kMostTrials + 1);
  expect_failure(ExitCode::kUsage, "from 0 to 100000", [&] {
    config::parse(std::vector<std::string>{"--run_cap", too_many},
                  {"sweep create", config::reader::kSweepCreate});
  });
}

TEST_F(AgentTest, TheGuidesShortNameIsAFolderOrADataSetOfTheHub) {
  std::ofstream("s.yaml") << "parameters: {dataset: {value: fineweb-edu}}\n";
  std::vector<std::string> notes;
  const SweepPlan plan = make_plan({}, "s.yaml", "", {}, notes);
  const Definition sweep = parse_definition(plan.yaml, plan.source);
  const auto dataset = [&] {
    return trial_command(plan, sweep, {"fineweb-edu"}, "x").settings.dataset.at(0);
  };
  EXPECT_EQ(dataset(), "HuggingFaceFW/fineweb-edu");
  fs::create_directory("fineweb-edu");
  EXPECT_EQ(dataset(), "fineweb-edu");
}

TEST_F(AgentTest, AgentsOfOneMachineShareIt) {
  const launch::Variables none;
  EXPECT_EQ(agent_variables(none, 1, 4, 8, 32),
            (launch::Variables{{"OMP_NUM_THREADS", "8"}, {"CUDA_VISIBLE_DEVICES", "2,3"}}));
  EXPECT_EQ(
      agent_variables({{"CUDA_VISIBLE_DEVICES", "4,6"}, {"OMP_NUM_THREADS", "3"}}, 1, 2, 2, 32),
      (launch::Variables{{"CUDA_VISIBLE_DEVICES", "6"}}));
  EXPECT_EQ(agent_variables(none, 2, 3, 2, 2),
            (launch::Variables{{"OMP_NUM_THREADS", "1"}, {"CUDA_VISIBLE_DEVICES", "0"}}));
}

TEST_F(AgentTest, ATrialIsNoRankOfWhatStartedItsAgent) {
  const launch::Variables here = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"},
                                  {"SLURM_NTASKS", "4"},  {"RANK", "3"},
                                  {"WORLD_SIZE", "4"},    {"HOME", "/root"}};
  launch::Variables seen = here;
  for (const auto& [name, value] : trial_variables(here)) seen[name] = value;
  std::erase_if(seen, [](const auto& entry) { return entry.second.empty(); });
  EXPECT_EQ(launch::rank_info_of(seen).ranks, 1);
  EXPECT_EQ(seen.at("HOME"), "/root");
}

}  // namespace
}  // namespace octavo::sweep
