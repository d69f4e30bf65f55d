#include "monitor/async_sink.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "monitor/tensorboard.h"
#include "scratch.h"

namespace octavo::monitor {
namespace {

using Clock = std::chrono::steady_clock;

// What a sink was told, kept beyond its life; and a gate that holds it up.
struct Notes {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  std::vector<int64_t> steps;
  std::vector<std::string> samples;
  std::vector<int> ends;
  int alive = 0;
  std::optional<double> goodput;
  void wait_for_gate() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open; });
  }
  void set_open(bool value) {
    const std::lock_guard lock(mutex);
    open = value;
    changed.notify_all();
  }
};

class NotingSink final : public Sink {
 public:
  explicit NotingSink(std::shared_ptr<Notes> notes, bool throws = false)
      : notes_(std::move(notes)), throws_(throws) {}
  void on_step(const StepRecord& r) override {
    if (throws_) throw std::runtime_error("no");
    notes_->wait_for_gate();
    const std::lock_guard lock(notes_->mutex);
    notes_->steps.push_back(r.step);
    notes_->goodput = r.goodput;
  }
  void on_eval(const EvalRecord&) override {}
  void on_sample(const SampleRecord& r) override { notes_->samples.push_back(r.text); }
  void on_alive() override { ++notes_->alive; }
  void on_end(int code) override { notes_->ends.push_back(code); }
  std::string_view name() const override { return throws_ ? "thrower" : "notes"; }

 private:
  std::shared_ptr<Notes> notes_;
  bool throws_;
};

std::vector<std::unique_ptr<Sink>> sinks_of(std::unique_ptr<Sink> a,
                                            std::unique_ptr<Sink> b = nullptr) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::move(a));
  if (b != nullptr) sinks.push_back(std::move(b));
  return sinks;
}

StepRecord step(int64_t number) {
  StepRecord r;
  r.step = number;
  return r;
}

TEST(AsyncSink, EverythingArrivesInOrderAndThenTheEnd) {
  const auto notes = std::make_shared<Notes>();
  AsyncSink sink(sinks_of(std::make_unique<NotingSink>(notes)), {}, {});
  for (int i = 1; i <= 5000; ++i) sink.on_step(step(i));
  sink.on_sample({5000, "text"});
  sink.on_alive();
  sink.on_end(75);
  ASSERT_EQ(notes->steps.size(), 5000u);
  for (int i = 1; i <= 5000; ++i) ASSERT_EQ(notes->steps[static_cast<size_t>(i - 1)], i);
  EXPECT_EQ(notes->samples, std::vector<std::string>{"text"});
  EXPECT_EQ(notes->ends, std::vector<int>{75});
  EXPECT_EQ(sink.failures(), 0);
  EXPECT_EQ(notes->alive, 1);
  EXPECT_EQ(sink.receipt()["records"], 5003);
}

TEST(AsyncSink, ARunThatBreaksOffEndsWithOne) {
  const auto notes = std::make_shared<Notes>();
  { const AsyncSink sink(sinks_of(std::make_unique<NotingSink>(notes)), {}, {}); }
  EXPECT_EQ(notes->ends, std::vector<int>{1});
}

TEST(AsyncSink, AFullQueueDropsAndCountsAndNeverWaits) {
  const auto notes = std::make_shared<Notes>();
  notes->open = false;
  AsyncSink sink(sinks_of(std::make_unique<NotingSink>(notes)), {}, {.waiting = 10});
  const auto start = Clock::now();
  for (int i = 1; i <= 10'000; ++i) sink.on_step(step(i));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(sink.receipt()["most_waiting"], 10);
  notes->set_open(true);
  sink.on_end(0);
  EXPECT_EQ(notes->steps.size(), 10u);  // the one that was being written counts until it is
  EXPECT_EQ(sink.receipt()["dropped"], 9990);
  EXPECT_EQ(sink.failures(), 9990);
  EXPECT_EQ(notes->ends, std::vector<int>{0});
}

TEST(AsyncSink, BigRecordsFillTheQueueSooner) {
  const auto notes = std::make_shared<Notes>();
  notes->open = false;
  AsyncSink sink(sinks_of(std::make_unique<NotingSink>(notes)), {}, {.waiting = 100});
  StepRecord big = step(1);
  big.fp8_tensors.resize(16 * 49);
  for (int i = 0; i < 3; ++i) sink.on_step(big);  // 50 each
  EXPECT_EQ(sink.receipt()["dropped"], 1);
  notes->set_open(true);
  sink.on_end(0);
}

TEST(AsyncSink, ASinkThatHangsIsLeftBehind) {
  const auto notes = std::make_shared<Notes>();
  notes->open = false;
  const auto start = Clock::now();
  {
    AsyncSink sink(sinks_of(std::make_unique<NotingSink>(notes)), {}, {.seconds_to_end = 0.2});
    for (int i = 1; i <= 4; ++i) sink.on_step(step(i));
    sink.on_end(0);
    EXPECT_GE(sink.failures(), 3);
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(3));
  notes->set_open(true);  // its thread continues alone and ends
  for (int i = 0; i < 500 && notes.use_count() > 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(notes.use_count(), 1);
}

TEST(AsyncSink, ASinkThatThrowsIsCountedAndTheOthersGoOn) {
  const auto notes = std::make_shared<Notes>();
  AsyncSink sink(
      sinks_of(std::make_unique<NotingSink>(notes, true), std::make_unique<NotingSink>(notes)), {},
      {});
  for (int i = 1; i <= 7; ++i) sink.on_step(step(i));
  sink.on_end(0);
  EXPECT_EQ(notes->steps.size(), 7u);
  EXPECT_EQ(sink.receipt()["sinks"]["thrower"]["failures"], 7);
  EXPECT_EQ(sink.receipt()["sinks"]["notes"]["failures"], 0);
}

TEST(AsyncSink, GoodputIsTheShareOfUsefulTime) {
  const auto notes = std::make_shared<Notes>();
  AsyncSink sink(sinks_of(std::make_unique<NotingSink>(notes)), {}, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  StepRecord r = step(1);
  r.seconds = 0.1;
  r.data_wait_seconds = 0.05;
  sink.on_step(r);
  r.skipped = true;  // time that came to nothing
  sink.on_step(r);
  sink.on_end(0);
  ASSERT_TRUE(notes->goodput.has_value());
  EXPECT_LE(*notes->goodput, 0.05 / 0.2);
  EXPECT_GT(*notes->goodput, 0.05 / 2);
}

// A limit of file sizes is the disk that any test can fill. The signal it sends would end us.
TEST(AsyncSink, AFullDiskIsCountedAndTheFileStaysWhole) {
  const Scratch scratch;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  AsyncSink sink(sinks_of(make_jsonl_sink(scratch / "metrics.jsonl", 0),
                          make_tensorboard_sink(scratch / "tensorboard", 0)),
                 {}, {});
  rlimit small = before;
  small.rlim_cur = 10'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 1; i <= 500; ++i) sink.on_step(step(i));
  sink.on_end(0);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  int64_t lines = 0;
  std::ifstream in(scratch / "metrics.jsonl");
  for (std::string line; std::getline(in, line); ++lines)
    ASSERT_EQ(Json::parse(line)["step"], lines + 1);
  EXPECT_GT(lines, 10);
  EXPECT_EQ(sink.receipt()["sinks"]["jsonl"]["failures"], 500 - lines);
  EXPECT_GT(sink.receipt()["sinks"]["tensorboard"]["failures"], 400);
}

}  // namespace
}  // namespace octavo::monitor
