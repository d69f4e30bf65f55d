#include "sweep/store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "base/error.h"
#include "sweep/agent_name.h"

namespace octavo::sweep {
namespace {

constexpr double kTimeout = 60;

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    folder_ = fs::temp_directory_path() / str("octavo-sweep-store-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    plan_.source = "s.yaml";
    plan_.yaml = "method: grid\nparameters: {seed: {min: 1, max: 40}}";
    plan_.folder = folder_.string();
    plan_.runs_dir = "runs";
    plan_.id = "abcdef";
  }
  ~StoreTest() override { fs::remove_all(folder_); }

  fs::path path() const { return folder_ / "s.db"; }
  Store made() {
    Store::create(path(), plan_);
    return Store(path());
  }
  // A process that is gone: its number and start belong to nobody.
  static std::string dead_agent() {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, nullptr, 0);
    std::string name = own_agent_name();
    name.resize(name.rfind('/', name.rfind('/') - 1));
    return str(name, "/", pid, "/1");
  }

  fs::path folder_;
  SweepPlan plan_;
};

TEST_F(StoreTest, ATrialIsClaimedOnceAndEndsOnce) {
  Store store = made();
  const TrialOffer first = store.claim(own_agent_name(), kTimeout);
  ASSERT_TRUE(first.trial);
  EXPECT_EQ(first.trial->number, 1);
  EXPECT_EQ(first.trial->values, std::vector<std::string>{"1"});
  EXPECT_EQ(first.trial->run_name, "s-abcdef-0001");
  const TrialOffer second = store.claim(own_agent_name(), kTimeout);
  EXPECT_EQ(second.trial->number, 2);
  EXPECT_TRUE(store.renew(*first.trial));
  EXPECT_TRUE(store.finish(*first.trial, {.state = TrialState::kFinished, .metric = 2.5}));
  EXPECT_FALSE(store.finish(*first.trial, {.state = TrialState::kFailed}));
  EXPECT_FALSE(store.renew(*first.trial));
  EXPECT_EQ(store.trials()[0].metric, 2.5);
  EXPECT_EQ(store.counts().finished, 1);
  EXPECT_EQ(store.counts().running, 1);
}

TEST_F(StoreTest, ADeadAgentsTrialIsTakenUpAgainUntilItsAttemptsAreUsed) {
  plan_.attempts = 2;
  Store store = made();
  const Trial lost = *store.claim(dead_agent(), kTimeout).trial;
  const TrialOffer again = store.claim(dead_agent(), kTimeout);
  ASSERT_TRUE(again.trial);
  EXPECT_EQ(again.trial->number, 1);
  EXPECT_EQ(again.trial->attempts, 2);
  EXPECT_EQ(again.news.size(), 1u);
  // The first agent was only thought dead: what it brings is refused.
  EXPECT_FALSE(store.finish(lost, {.state = TrialState::kFinished, .metric = 1.0}));
  const TrialOffer next = store.claim(own_agent_name(), kTimeout);
  EXPECT_EQ(next.trial->number, 2);
  EXPECT_EQ(store.trials()[0].state, TrialState::kFailed);
  EXPECT_NE(store.trials()[0].reason.find("is gone"), std::string::npos);
}

TEST_F(StoreTest, AnAgentOfAnotherMachineIsGivenItsTime) {
  Store store = made();
  store.claim("elsewhere/boot/1/2/3", kTimeout);
  EXPECT_EQ(store.claim(own_agent_name(), kTimeout).trial->number, 2);
  EXPECT_EQ(store.claim(own_agent_name(), -1).trial->number, 1);  // silent for too long
}

TEST_F(StoreTest, AStopOnRequestIsNotCountedAsAnAttempt) {
  Store store = made();
  const Trial trial = *store.claim(own_agent_name(), kTimeout).trial;
  EXPECT_TRUE(store.finish(trial, {.state = TrialState::kWaiting, .forgiven = true}));
  const Trial again = *store.claim(own_agent_name(), kTimeout).trial;
  EXPECT_EQ(again.number, 1);
  EXPECT_EQ(again.attempts, 1);
}

// The journals of local and of network file systems.
class StoreRaceTest : public StoreTest, public testing::WithParamInterface<const char*> {};

TEST_P(StoreRaceTest, ProcessesThatClaimAtTheSameTimeNeverGetTheSameTrial) {
  Store::create(path(), plan_);
  Database(path(), false, 1000).run(str("PRAGMA journal_mode = ", GetParam()));
  constexpr int kProcesses = 4;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      int code = 1;
      try {
        Store store(path());
        std::ofstream out(folder_ / str("claimed-", i));
        while (const auto trial = store.claim(own_agent_name(), kTimeout).trial) {
          out << trial->number << "\n";
          if (!store.finish(*trial, {.state = TrialState::kFinished, .metric = 1.0})) _exit(2);
        }
        out.close();
        code = 0;
      } catch (const Error&) {
      }
      _exit(code);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::map<int, int> seen;
  for (int i = 0; i < kProcesses; ++i) {
    std::ifstream in(folder_ / str("claimed-", i));
    for (int number = 0; in >> number;) ++seen[number];
  }
  EXPECT_EQ(seen.size(), 40u);
  for (const auto& [number, times] : seen) EXPECT_EQ(times, 1) << number;
}

INSTANTIATE_TEST_SUITE_P(Journals, StoreRaceTest, testing::Values("WAL", "DELETE"));

TEST_F(StoreTest, TheSameSweepGoesOnAndAnotherIsRefused) {
  EXPECT_TRUE(Store::create(path(), plan_));
  SweepPlan same = plan_;
  same.id = "fedcba";  // is drawn anew each time
  same.attempts = 7;
  EXPECT_FALSE(Store::create(path(), same));
  EXPECT_EQ(Store(path()).plan().id, "abcdef");
  EXPECT_EQ(Store(path()).plan().attempts, 7);
  plan_.seed = 5;
  EXPECT_THROW(Store::create(path(), plan_), Error);
}

TEST_F(StoreTest, RefusesFilesThatAreNoSweep) {
  std::ofstream(folder_ / "text.db") << std::string(5000, 'x');
  try {
    Store store(folder_ / "text.db");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDamaged);
  }
  {
    Database other(folder_ / "other.db", true, 1000);
    other.run("CREATE TABLE x (y)");
  }
  EXPECT_THROW(Store(folder_ / "other.db"), Error);
  EXPECT_THROW(Store(folder_ / "none.db"), Error);
  // A run's name that leaves the folder of runs.
  Store store = made();
  store.claim(own_agent_name(), kTimeout);
  Database(path(), false, 1000).run("UPDATE trials SET run_name = '../../etc'");
  EXPECT_THROW(store.trials(), Error);
}

TEST_F(StoreTest, ALockThatIsNeverReleasedIsAnErrorAndNotAWait) {
  Store::create(path(), plan_);
  Database first(path(), false, 1000), second(path(), false, 100);
  const Transaction held(first);
  try {
    second.run("BEGIN IMMEDIATE");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
  }
}

TEST_F(StoreTest, TheTargetEndsTheSweep) {
  plan_.yaml += "\nmetric: {name: val/loss, target: 2}";
  Store store = made();
  const Trial trial = *store.claim(own_agent_name(), kTimeout).trial;
  store.finish(trial, {.state = TrialState::kFinished, .metric = 2.5});
  const Trial next = *store.claim(own_agent_name(), kTimeout).trial;
  store.finish(next, {.state = TrialState::kFinished, .metric = 1.9});
  EXPECT_FALSE(store.claim(own_agent_name(), kTimeout).trial);
}

TEST_F(StoreTest, AFullSweepSaysSo) {
  plan_.yaml = "method: random\nparameters: {weight_decay: {min: 0.0, max: 1.0}}";
  Store store = made();
  const TrialOffer first = store.claim(own_agent_name(), kTimeout);
  ASSERT_TRUE(first.trial);
  EXPECT_TRUE(store.finish(*first.trial, {.state = TrialState::kFinished, .metric = 1}));
  Database(path(), false, 1000).run(str("UPDATE trials SET number = ", kMostTrials));
  const TrialOffer none = store.claim(own_agent_name(), kTimeout);
  EXPECT_FALSE(none.trial);
  ASSERT_EQ(none.news.size(), 1u);
  EXPECT_NE(none.news[0].find("at most 100000"), std::string::npos);
}

TEST_F(StoreTest, BayesLearnsFromTheTrialsInTheFile) {
  plan_.yaml = "method: bayes\nrun_cap: 40\nparameters: {weight_decay: {min: 0.0, max: 1.0}}";
  Store store = made();
  double late = 0;
  for (int i = 1; i <= 40; ++i) {
    const Trial trial = *store.claim(own_agent_name(), kTimeout).trial;
    const double x = std::stod(trial.values[0]) - 0.3;
    if (i > 20) late += std::abs(x) / 20;
    store.finish(trial, {.state = TrialState::kFinished, .metric = x * x});
  }
  EXPECT_LT(late, 0.15);  // drawn evenly it would be 0.29
  EXPECT_FALSE(store.claim(own_agent_name(), kTimeout).trial);
}

// Failed trials and an interrupted attempt keep their last metric, and it is the best of all: a
// search that took them for results would crowd around 0.9.
TEST_F(StoreTest, BayesLearnsFromFinishedTrialsAlone) {
  plan_.yaml = "method: bayes\nrun_cap: 40\nparameters: {weight_decay: {min: 0.0, max: 1.0}}";
  plan_.attempts = 100;
  Store store = made();
  int near_results = 0, near_failures = 0;
  for (int i = 1; i <= 40; ++i) {
    Trial trial = *store.claim(own_agent_name(), kTimeout).trial;
    const double x = std::stod(trial.values[0]);
    if (i > 20) near_results += std::abs(x - 0.3)<0.15, near_failures += x> 0.75;
    if (x > 0.75) {
      // A first attempt that reached -5 and waits; the trial runs again, and fails.
      store.finish(trial, {.state = TrialState::kWaiting, .metric = -5.0});
      trial = *store.claim(own_agent_name(), kTimeout).trial;
      EXPECT_EQ(trial.number, i);
      store.finish(trial, {.state = TrialState::kFailed, .metric = -5.0});
    } else {
      store.finish(trial, {.state = TrialState::kFinished, .metric = (x - 0.3) * (x - 0.3)});
    }
  }
  EXPECT_GT(near_results, 10);
  EXPECT_LT(near_failures, 4);
}

TEST_F(StoreTest, ARunningTrialIsNotKnownByItsLastAttempt) {
  plan_.yaml = "method: bayes\nrun_cap: 90\nparameters: {weight_decay: {min: 0.0, max: 1.0}}";
  plan_.attempts = 100;
  Store store = made();
  std::vector<Trial> running;
  int high = 0;
  for (int i = 1; i <= 60; ++i) {
    const Trial trial = *store.claim(own_agent_name(), kTimeout).trial;
    const double x = std::stod(trial.values[0]);
    if (i > 30) high += x > 0.75;
    if (x > 0.75) {  // wrote a fine value, was stopped, and runs again
      store.finish(trial, {.state = TrialState::kWaiting, .metric = -5.0, .forgiven = true});
      running.push_back(*store.claim(own_agent_name(), kTimeout).trial);
    } else {
      store.finish(trial, {.state = TrialState::kFinished, .metric = (x - 0.3) * (x - 0.3)});
    }
  }
  EXPECT_FALSE(running.empty());
  EXPECT_LT(high, 6);
}

TEST_F(StoreTest, MarksAreKeptOncePerTrialAndBand) {
  Store store = made();
  const Trial a = *store.claim(own_agent_name(), kTimeout).trial;
  const Trial b = *store.claim(own_agent_name(), kTimeout).trial;
  EXPECT_EQ(store.mark(a, 3, 1.5), (std::vector<double>{1.5}));
  EXPECT_EQ(store.mark(b, 3, 2.5), (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(store.mark(a, 3, 1.25).size(), 2u);
  EXPECT_EQ(store.mark(b, 9, 7).size(), 1u);
}

}  // namespace
}  // namespace octavo::sweep
