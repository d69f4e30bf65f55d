// Uploads in the background: training never waits, and what fails is tried again.
#include "checkpoint/uploader.h"

#include "checkpoint/memory_store.h"
#include "checkpoint/sample_state.h"
#include "checkpoint/save_gate.h"
#include "checkpoint/saver.h"

namespace octavo::checkpoint {
namespace {

constexpr const char* kAddress = "s3://bucket/run";
constexpr int64_t kMany = 1'000'000;

State uploader_state(int64_t step) {
  State state = sample_state(step, static_cast<double>(step));
  state.extra["run_name"] = "run";
  return state;
}

bool has_manifest(const MemoryStore& store, int64_t step) {
  return store.objects().contains(str(kAddress, "/step-0000000", step, "/manifest.json"));
}

TEST(UploadWait, DoublesUpToAMinute) {
  EXPECT_EQ(upload_wait(1, 0.5), 1);
  EXPECT_EQ(upload_wait(2, 0.5), 2);
  EXPECT_EQ(upload_wait(5, 0.5), 16);
  EXPECT_EQ(upload_wait(7, 0.5), 60);
  EXPECT_EQ(upload_wait(1'000'000, 1), 75);
  EXPECT_EQ(upload_wait(1'000'000, 0), 45);
}

TEST(Uploader, TriesAgainUntilItIsThere) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  std::atomic<int> failures{4}, puts{0};
  store->before = [&](const std::string& kind, const std::string& address) {
    if (kind == "put" && address.ends_with("model.safetensors")) ++puts;
    if (kind == "put" && address.ends_with("optimizer.safetensors") && failures-- > 0)
      fail(ExitCode::kEnvironment, "test", "503");
  };
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  uploader.add(save(folder.path(), uploader_state(3), {}));
  EXPECT_TRUE(uploader.wait(kMany, {}));
  EXPECT_TRUE(has_manifest(*store, 3));
  EXPECT_EQ(puts, 1);  // what is there is not sent again
  const Uploader::Counts counts = uploader.counts();
  EXPECT_EQ(counts.uploads, 1);
  EXPECT_EQ(counts.failed, 4);
  EXPECT_EQ(counts.failed_in_a_row, 0);
  EXPECT_EQ(uploader.receipt().at("failed_attempts"), 4);
}

TEST(Uploader, GivesUpAfterSoManyAttempts) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  store->before = [](const std::string& kind, const std::string&) {
    if (kind == "put") fail(ExitCode::kEnvironment, "test", "403");
  };
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  uploader.add(save(folder.path(), uploader_state(3), {}));
  EXPECT_FALSE(uploader.wait(5, {}));
  EXPECT_GE(uploader.counts().failed_in_a_row, 5);
  EXPECT_FALSE(has_manifest(*store, 3));
  EXPECT_TRUE(verify(folder / "step-00000003").empty());
}

// Five checkpoints fail once each, and none of them five times.
TEST(Uploader, CountsAttemptsOfEachCheckpoint) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  Hold hold;
  std::atomic<int> failures{5};
  store->before = [&](const std::string& kind, const std::string& address) {
    if (kind != "put" || !address.ends_with("model.safetensors")) return;
    hold.pass();
    if (failures-- > 0) fail(ExitCode::kEnvironment, "test", "503");
  };
  // The first attempts are over before the second ones begin.
  Uploader uploader(kAddress, store, {.wait_scale = 0.5});
  for (int64_t step = 1; step <= 5; ++step)
    uploader.add(save(folder.path(), uploader_state(step), {}), /*permanent=*/true);
  hold.wait_until_reached();
  const auto opened = [&] {  // once wait() counts
    hold.open();
    return false;
  };
  EXPECT_TRUE(uploader.wait(5, opened));
  EXPECT_EQ(uploader.counts().failed, 5);
  for (int64_t step = 1; step <= 5; ++step) EXPECT_TRUE(has_manifest(*store, step));
}

TEST(Uploader, WhatIsGoneFromTheDiskIsNotTriedAgain) {
  Scratch folder;
  Uploader uploader(kAddress, std::make_shared<MemoryStore>(), {.wait_scale = 0.001});
  const fs::path checkpoint = save(folder.path(), uploader_state(3), {});
  fs::remove(checkpoint / "model.safetensors");
  uploader.add(checkpoint);
  EXPECT_FALSE(uploader.wait(kMany, {}));
  EXPECT_EQ(uploader.counts().failed, 1);
}

// /healthz lives of it while the last upload takes its hours.
TEST(Uploader, WaitSaysThatBytesMove) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  Hold hold;
  store->before = [&](const std::string& kind, const std::string& address) {
    if (kind == "put" && address.ends_with("manifest.json")) hold.pass();
  };
  Uploader uploader(kAddress, store, {});
  uploader.add(save(folder.path(), uploader_state(3), {}));
  hold.wait_until_reached();
  int moved = 0, looks = 0;
  EXPECT_FALSE(uploader.wait(
      kMany, [&] { return ++looks == 3; }, [&] { ++moved; }));
  EXPECT_EQ(moved, 1);  // of three looks: all was sent before the first
  hold.open();
  EXPECT_TRUE(uploader.wait(kMany, {}));
}

// Uploads that wait, each at its first file, until the test lets them pass.
class HeldUploads : public testing::Test {
 protected:
  HeldUploads() {
    store->before = [this](const std::string& kind, const std::string&) {
      if (kind == "put") hold.pass();
    };
  }
  const Scratch folder;
  const std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  Hold hold;
};

TEST_F(HeldUploads, TakesTheNewestAndPassesOverTheRest) {
  Uploader uploader(kAddress, store, {});
  uploader.add(save(folder.path(), uploader_state(1), {}));
  hold.wait_until_reached();
  for (int64_t step = 2; step <= 4; ++step)
    uploader.add(save(folder.path(), uploader_state(step), {}));  // returns though nothing moves
  hold.open();
  EXPECT_TRUE(uploader.wait(kMany, {}));
  EXPECT_TRUE(has_manifest(*store, 1));
  EXPECT_FALSE(has_manifest(*store, 2));
  EXPECT_FALSE(has_manifest(*store, 3));
  EXPECT_TRUE(has_manifest(*store, 4));
  EXPECT_EQ(uploader.counts().passed_over, 2);
}

// One that fails and fails does not keep the newer ones from the server.
TEST(Uploader, GivesWayToANewerOneWhenItFails) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  store->before = [](const std::string& kind, const std::string& address) {
    if (kind == "put" && has(address, "step-00000001")) fail(ExitCode::kEnvironment, "test", "500");
  };
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  uploader.add(save(folder.path(), uploader_state(1), {}));
  while (uploader.counts().failed < 3) std::this_thread::yield();
  uploader.add(save(folder.path(), uploader_state(2), {}));
  EXPECT_TRUE(uploader.wait(kMany, {}));
  EXPECT_TRUE(has_manifest(*store, 2));
  EXPECT_EQ(uploader.counts().passed_over, 1);
}

TEST_F(HeldUploads, PassesOverNoPermanentOne) {
  Uploader uploader(kAddress, store, {});
  uploader.add(save(folder.path(), uploader_state(1), {}));
  hold.wait_until_reached();
  for (int64_t step = 2; step <= 5; ++step)
    uploader.add(save(folder.path(), uploader_state(step), {}), /*permanent=*/step % 2 == 0);
  EXPECT_TRUE(uploader.in_use(folder / "step-00000002"));
  hold.open();
  EXPECT_TRUE(uploader.wait(kMany, {}));
  for (int64_t step = 1; step <= 5; ++step) EXPECT_EQ(has_manifest(*store, step), step != 3);
  EXPECT_EQ(uploader.counts().passed_over, 1);
}

TEST(Uploader, APermanentOneThatFailsComesAgainAfterTheOthers) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  std::atomic<bool> works{false};
  store->before = [&](const std::string& kind, const std::string& address) {
    if (kind == "put" && has(address, "step-00000001") && !works)
      fail(ExitCode::kEnvironment, "test", "500");
    if (kind == "put" && has(address, "step-00000002")) works = true;
  };
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  uploader.add(save(folder.path(), uploader_state(1), {}), /*permanent=*/true);
  while (uploader.counts().failed < 3) std::this_thread::yield();
  uploader.add(save(folder.path(), uploader_state(2), {}));
  EXPECT_TRUE(uploader.wait(kMany, {}));
  EXPECT_TRUE(has_manifest(*store, 1) && has_manifest(*store, 2));
  EXPECT_EQ(uploader.counts().passed_over, 0);
}

// Its first file is in the bucket when another upload ends, and looks for what was not finished.
TEST(Uploader, AHalfUploadedOneThatWaitsKeepsItsFiles) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  std::atomic<bool> works{false};
  std::atomic<int> sent{0};
  store->before = [&](const std::string& kind, const std::string& address) {
    if (kind != "put") return;
    if (address.ends_with("step-00000001/model.safetensors")) ++sent;
    if (address.ends_with("step-00000001/optimizer.safetensors") && !works)
      fail(ExitCode::kEnvironment, "test", "500");
    if (address.ends_with("step-00000002/manifest.json")) works = true;
  };
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  uploader.add(save(folder.path(), uploader_state(1), {}), /*permanent=*/true);
  while (uploader.counts().failed < 1) std::this_thread::yield();
  uploader.add(save(folder.path(), uploader_state(2), {}));
  EXPECT_TRUE(uploader.wait(kMany, {}));
  EXPECT_TRUE(has_manifest(*store, 1) && has_manifest(*store, 2));
  EXPECT_EQ(sent, 1);
}

// For wait(): as long as a test may take, or until the step is there.
std::function<bool()> until_there(const MemoryStore& store, int64_t step) {
  return [&store, step, begin = std::chrono::steady_clock::now()] {
    return has_manifest(store, step) ||
           std::chrono::steady_clock::now() - begin > std::chrono::seconds(20);
  };
}

TEST(Uploader, AnOrdinaryOneThatFailsKeepsNoPermanentOneWaiting) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  Hold hold;
  store->before = [&](const std::string& kind, const std::string& address) {
    if (kind == "put" && has(address, "step-00000001")) hold.pass();
    if (kind == "put" && has(address, "step-00000003")) fail(ExitCode::kEnvironment, "test", "500");
  };
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  uploader.add(save(folder.path(), uploader_state(1), {}), /*permanent=*/true);
  hold.wait_until_reached();
  uploader.add(save(folder.path(), uploader_state(2), {}), /*permanent=*/true);
  uploader.add(save(folder.path(), uploader_state(3), {}));
  hold.open();
  EXPECT_FALSE(uploader.wait(kMany, until_there(*store, 2)));  // 3 is left
  EXPECT_TRUE(has_manifest(*store, 2));
}

TEST(Uploader, ANewOneDoesNotWaitUntilAnotherIsTriedAgain) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  store->before = [](const std::string& kind, const std::string& address) {
    if (kind == "put" && has(address, "step-00000001")) fail(ExitCode::kEnvironment, "test", "500");
  };
  Uploader uploader(kAddress, store, {.wait_scale = 10'000});
  uploader.add(save(folder.path(), uploader_state(1), {}), /*permanent=*/true);
  while (uploader.counts().failed < 1) std::this_thread::yield();
  uploader.add(save(folder.path(), uploader_state(2), {}));
  EXPECT_FALSE(uploader.wait(kMany, until_there(*store, 2)));  // 1 is left
  EXPECT_TRUE(has_manifest(*store, 2));
  EXPECT_TRUE(uploader.in_use(folder / "step-00000001"));
}

// The end of a run is an error then, also when a later one was uploaded.
// The last one comes first, and is gone; an older permanent one succeeds behind it.
TEST_F(HeldUploads, TheLastOneThatIsGoneIsNotForgotten) {
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  for (int64_t step = 1; step <= 2; ++step)
    uploader.add(save(folder.path(), uploader_state(step), {}), /*permanent=*/true);
  hold.wait_until_reached();
  const fs::path last = save(folder.path(), uploader_state(3), {});
  fs::remove(last / "model.safetensors");
  uploader.add(last);
  hold.open();
  EXPECT_FALSE(uploader.wait(kMany, {}));
  EXPECT_TRUE(has_manifest(*store, 1) && has_manifest(*store, 2));
  EXPECT_EQ(uploader.counts().failed_in_a_row, 0);
  EXPECT_FALSE(uploader.only_given_up_is_missing());
  uploader.add(save(folder.path(), uploader_state(3), {}));  // saved again
  EXPECT_TRUE(uploader.wait(kMany, {}));
}

TEST(Uploader, APermanentOneThatIsGivenUpIsNotForgotten) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  const fs::path checkpoint = save(folder.path(), uploader_state(1), {});
  fs::remove(checkpoint / "model.safetensors");
  uploader.add(checkpoint, /*permanent=*/true);
  while (uploader.counts().failed < 1) std::this_thread::yield();
  uploader.add(save(folder.path(), uploader_state(2), {}));
  EXPECT_FALSE(uploader.wait(kMany, {}));
  EXPECT_TRUE(has_manifest(*store, 2));
  EXPECT_EQ(uploader.counts().given_up, 1);
  EXPECT_TRUE(uploader.only_given_up_is_missing());
  uploader.add(save(folder.path(), uploader_state(1), {}), /*permanent=*/true);  // saved again
  EXPECT_TRUE(uploader.wait(kMany, {}));
  EXPECT_EQ(uploader.counts().given_up, 0);
  EXPECT_FALSE(uploader.only_given_up_is_missing());
}

// Another start of the run uploads what is left.
TEST(Uploader, WhatIsLeftIsNotGivenUp) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  store->before = [](const std::string& kind, const std::string& address) {
    if (kind == "put" && has(address, "step-00000002")) fail(ExitCode::kEnvironment, "test", "500");
  };
  Uploader uploader(kAddress, store, {.wait_scale = 0.001});
  const fs::path checkpoint = save(folder.path(), uploader_state(1), {});
  fs::remove(checkpoint / "model.safetensors");
  uploader.add(checkpoint, /*permanent=*/true);
  uploader.add(save(folder.path(), uploader_state(2), {}));
  EXPECT_FALSE(uploader.wait(5, {}));
  EXPECT_EQ(uploader.counts().given_up, 1);
  EXPECT_FALSE(uploader.only_given_up_is_missing());
}

// keep 1 removes older checkpoints at each save, but not the one that is on its way.
TEST_F(HeldUploads, RetentionWaitsForTheUpload) {
  Uploader uploader(kAddress, store, {.keep = 1});
  Saver saver(folder.path(), {.on_saved = [&](const fs::path& path, bool) { uploader.add(path); }});
  const SaveOptions options{.keep = 1,
                            .in_use = [&](const fs::path& path) { return uploader.in_use(path); }};
  saver.start(uploader_state(1), options);
  hold.wait_until_reached();
  saver.save(uploader_state(2), options);
  saver.save(uploader_state(3), options);
  EXPECT_TRUE(fs::exists(folder / "step-00000001"));
  hold.open();
  EXPECT_TRUE(uploader.wait(kMany, {}));
  saver.save(uploader_state(4), options);
  EXPECT_FALSE(fs::exists(folder / "step-00000001"));
  EXPECT_TRUE(uploader.wait(kMany, {}));
  EXPECT_TRUE(has_manifest(*store, 4));
  EXPECT_FALSE(has_manifest(*store, 3));  // keep holds there too
}

TEST(Uploader, EndsInTheMiddle) {
  Scratch folder;
  auto store = std::make_shared<MemoryStore>();
  store->before = [](const std::string& kind, const std::string&) {
    if (kind == "put") fail(ExitCode::kEnvironment, "test", "500");
  };
  const auto begin = std::chrono::steady_clock::now();
  {
    Uploader uploader(kAddress, store, {.wait_scale = 100});
    uploader.add(save(folder.path(), uploader_state(1), {}));
    while (uploader.counts().failed < 1) std::this_thread::yield();
    EXPECT_FALSE(uploader.wait(kMany, [] { return true; }));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace octavo::checkpoint
