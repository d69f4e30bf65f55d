#include "base/heartbeat.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>

#include "base/thread_stack.h"

namespace octavo {
namespace {

using heartbeat::beats;
using heartbeat::Wait;

TEST(Heartbeat, TextsAreCutAndRead) {
  heartbeat::Text<2> text;
  EXPECT_EQ(text.get(), "");
  text.set("forward");
  EXPECT_EQ(text.get(), "forward");
  text.set("a text of more than sixteen bytes");
  EXPECT_EQ(text.get(), "a text of more t");
  text.set("");
  EXPECT_EQ(text.get(), "");
}

TEST(Heartbeat, EverySignCounts) {
  uint64_t last = beats().main;
  const auto moved = [&] { return beats().main != std::exchange(last, beats().main); };
  heartbeat::begin("block", 12);
  EXPECT_TRUE(moved());
  EXPECT_EQ(beats().stretch.get(), "block 12");
  EXPECT_TRUE(beats().inside);
  EXPECT_EQ(beats().worker, heartbeat::own_thread());
  heartbeat::end();
  EXPECT_TRUE(moved());
  EXPECT_FALSE(beats().inside);
  heartbeat::begin(std::string(200, 'x'), INT64_MAX);  // cut, and not written beyond
  heartbeat::end();
  EXPECT_TRUE(moved());
}

TEST(Heartbeat, WaitsAndExemptionsNest) {
  {
    const heartbeat::Exempt outer("a disk");
    {
      const heartbeat::Exempt inner("a longer one");
      const heartbeat::Waiting waiting(Wait::kLoader);
      EXPECT_STREQ(beats().exempt, "a longer one");
      EXPECT_EQ(beats().wait, Wait::kLoader);
    }
    EXPECT_STREQ(beats().exempt, "a disk");
    EXPECT_EQ(beats().wait, Wait::kNothing);
  }
  EXPECT_EQ(beats().exempt, nullptr);
}

TEST(ThreadStack, OfAThreadThatWaits) {
  prepare_thread_stacks();
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int32_t> number{0};
  bool stop = false;
  std::thread waits([&] {
    std::unique_lock lock(mutex);
    number = heartbeat::own_thread();
    changed.wait(lock, [&] { return stop; });
  });
  while (number == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string stack = stack_of_thread(number);
  EXPECT_NE(stack.find("pthread_cond_wait"), std::string::npos) << stack;
  EXPECT_NE(stack.find("state S"), std::string::npos) << stack;
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  waits.join();
  EXPECT_NE(stack_of_thread(number).find("no stack"), std::string::npos);
}

// One that does not take signals, as in the kernel's hands.
TEST(ThreadStack, OfAThreadThatDoesNotAnswer) {
  prepare_thread_stacks();
  std::atomic<int32_t> number{0};
  std::atomic<bool> stop{false};
  std::thread deaf([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    number = heartbeat::own_thread();
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (number == 0) std::this_thread::yield();
  const std::string stack = stack_of_thread(number, std::chrono::milliseconds(50));
  EXPECT_NE(stack.find("does not answer"), std::string::npos) << stack;
  stop = true;
  deaf.join();
}

}  // namespace
}  // namespace octavo
