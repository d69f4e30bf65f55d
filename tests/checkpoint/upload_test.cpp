// Checkpoints to and from an object store: a half one is never taken for a whole one, whenever it
// ends.
#include "checkpoint/upload.h"

#include <sys/resource.h>

#include "checkpoint/download.h"
#include "checkpoint/manifest.h"
#include "checkpoint/memory_store.h"
#include "checkpoint/ranks.h"
#include "checkpoint/sample_state.h"

namespace octavo::checkpoint {
namespace {

const std::string kRun = "s3://bucket/some/run";

State run_state(int64_t step, double mark, const std::string& id = "id-1",
                const std::string& run = "run") {
  State state = sample_state(step, mark);
  state.extra["run_name"] = run;
  state.extra["run_id"] = id;
  return state;
}

fs::path saved(const fs::path& folder, int64_t step, double mark, bool best = false) {
  return save(folder, run_state(step, mark), {.best = best});
}

Uploaded upload(MemoryStore& store, const fs::path& checkpoint) {
  UploadJob job;
  job.address = kRun;
  job.folder = checkpoint;
  return upload_checkpoint(store, job);
}

// Every checkpoint that has a manifest there can be downloaded and loaded.
int whole_checkpoints(MemoryStore& store) {
  int whole = 0;
  for (const RemoteStep& step : remote_steps(store, kRun)) {
    if (!step.has_manifest) continue;
    Scratch here;
    EXPECT_EQ(mixture(load(download(store, step.address, here.path()))), "");
    ++whole;
  }
  return whole;
}

TEST(Upload, PutsTheManifestLast) {
  Scratch folder;
  MemoryStore store;
  EXPECT_EQ(upload(store, saved(folder.path(), 7, 1, true)), Uploaded::kNow);
  const std::string step = kRun + "/step-00000007/";
  EXPECT_EQ(store.take_changes(),
            (std::vector<std::string>{
                "put " + step + "model.safetensors", "put " + step + "optimizer.safetensors",
                "put " + step + "manifest.json", "put " + kRun + "/best_model"}));
  EXPECT_EQ(store.objects().at(kRun + "/best_model"), "step-00000007\n");
  EXPECT_EQ(whole_checkpoints(store), 1);
}

TEST(Upload, OfManyRanksHasTheirLists) {
  Scratch folder;
  MemoryStore store;
  UploadJob job;
  job.address = kRun;
  save_together(folder.path(), 5, 3, 3, 3, "token");
  job.folder = folder / "step-00000005";
  EXPECT_EQ(upload_checkpoint(store, job), Uploaded::kNow);
  const auto changes = store.take_changes();
  EXPECT_EQ(changes.back(), "put " + kRun + "/step-00000005/manifest.json");
  for (const auto& entry : fs::directory_iterator(job.folder))
    EXPECT_EQ(store.objects().at(kRun + "/step-00000005/" + entry.path().filename().string()),
              read_text(entry.path()));
}

TEST(Upload, IsNotRepeated) {
  Scratch folder;
  MemoryStore store;
  const fs::path checkpoint = saved(folder.path(), 7, 1);
  upload(store, checkpoint);
  store.take_changes();
  EXPECT_EQ(upload(store, checkpoint), Uploaded::kBefore);
  EXPECT_TRUE(store.take_changes().empty());
}

// The process may be killed, or the server fail, at every request.
TEST(Upload, EndedAnywhereLeavesNoMixture) {
  Scratch folder;
  const fs::path first = saved(folder.path() / "a", 7, 1),
                 second = saved(folder.path() / "b", 7, 2);
  int ends = 0;
  for (int end = 0;; ++end) {
    MemoryStore store;
    upload(store, first);
    int requests = 0;
    store.before = [&](const std::string&, const std::string&) {
      if (requests++ == end) fail(ExitCode::kEnvironment, "test", "the server is away");
    };
    UploadJob job;
    job.address = kRun;
    job.folder = second;
    bool ended = false;
    try {
      upload_checkpoint(store, job);
    } catch (const Error&) {
      ended = true;
    }
    store.before = nullptr;
    EXPECT_LE(whole_checkpoints(store), 1);
    if (!ended) break;
    ++ends;
    upload_checkpoint(store, job);  // the next attempt
    EXPECT_EQ(store.objects().at(kRun + "/step-00000007/manifest.json"),
              read_text(second / "manifest.json"));
    EXPECT_EQ(whole_checkpoints(store), 1);
  }
  EXPECT_GE(ends, 6);
}

TEST(Upload, OfADamagedFileIsRefused) {
  Scratch folder;
  MemoryStore store;
  const fs::path checkpoint = saved(folder.path(), 7, 1);
  std::string text = read_text(checkpoint / "model.safetensors");
  text[text.size() - 3] = static_cast<char>(text[text.size() - 3] ^ 1);
  write_text(checkpoint / "model.safetensors", text);
  EXPECT_TRUE(
      has(error_of(ExitCode::kDamaged, [&] { upload(store, checkpoint); }), "model.safetensors"));
  EXPECT_TRUE(store.objects().empty());
}

TEST(Upload, OfAStepThatIsSavedAgainBetweenTwoAttemptsIsNoMixture) {
  Scratch folder, here;
  MemoryStore store;
  UploadJob job;
  job.address = kRun;
  job.folder = saved(folder.path(), 7, 1);
  store.before = [](const std::string& kind, const std::string& address) {
    if (kind == "put" && address.ends_with("optimizer.safetensors"))
      fail(ExitCode::kEnvironment, "test", "503");
  };
  error_of(ExitCode::kEnvironment, [&] { upload_checkpoint(store, job); });
  store.before = {};
  saved(folder.path(), 7, 2);
  EXPECT_EQ(upload_checkpoint(store, job), Uploaded::kNow);
  EXPECT_EQ(load(download(store, kRun, here.path())).extra.at("mark"), 2);
}

// Somebody deleted what the first attempt had sent.
TEST(Upload, SendsAllThatIsMissingInOneMoreAttempt) {
  Scratch folder;
  MemoryStore store;
  UploadJob job;
  job.address = kRun;
  job.folder = saved(folder.path(), 7, 1);
  const std::string step = kRun + "/step-00000007";
  store.before = [&](const std::string& kind, const std::string& address) {
    if (kind == "put" && address == step + "/manifest.json")
      fail(ExitCode::kEnvironment, "test", "503");
  };
  error_of(ExitCode::kEnvironment, [&] { upload_checkpoint(store, job); });
  store.before = {};
  store.remove_below(step);
  const std::string said = error_of(ExitCode::kEnvironment, [&] { upload_checkpoint(store, job); });
  EXPECT_TRUE(has(said, "found none (2 of 2 files)")) << said;
  EXPECT_EQ(upload_checkpoint(store, job), Uploaded::kNow);
  EXPECT_EQ(whole_checkpoints(store), 1);
}

// Here no file descriptor is left; ESTALE and EIO are the same to it.
TEST(Upload, OfAFileThatCannotBeReadIsNoDamage) {
  Scratch folder;
  MemoryStore store;
  const fs::path checkpoint = saved(folder.path(), 7, 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  store.before = [&](const std::string&, const std::string&) {  // asked with the manifest read
    const rlimit none{0, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  };
  const std::string said = error_of(ExitCode::kEnvironment, [&] { upload(store, checkpoint); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(has(said, "model.safetensors")) << said;
  store.before = {};
  EXPECT_EQ(upload(store, checkpoint), Uploaded::kNow);
}

TEST(KeepUploaded, KeepsTheNewestAndTheBest) {
  Scratch folder;
  MemoryStore store;
  for (int64_t step = 1; step <= 5; ++step)
    upload(store, saved(folder.path(), step, static_cast<double>(step), step == 2));
  store.set(kRun + "/step-00000009/model.safetensors", "half");
  store.set(kRun + "/notes.txt", "a person's");
  store.take_changes();
  EXPECT_EQ(keep_uploaded(store, kRun, 2, 0, run_state(5, 1).extra), 2);
  std::vector<int64_t> left;
  for (const RemoteStep& step : remote_steps(store, kRun)) left.push_back(step.step);
  EXPECT_EQ(left, (std::vector<int64_t>{2, 4, 5}));
  EXPECT_TRUE(store.objects().contains(kRun + "/notes.txt"));
  const auto changes = store.take_changes();
  EXPECT_EQ(changes[1], "remove " + kRun + "/step-00000003/manifest.json");  // before its files
  EXPECT_EQ(keep_uploaded(store, kRun, 1, 4, run_state(5, 1).extra),
            0);  // the best, a permanent one
}

TEST(KeepUploaded, LeavesWhatIsTriedAgainAlone) {
  Scratch folder;
  MemoryStore store;
  upload(store, saved(folder.path(), 1, 1));
  store.set(kRun + "/step-00000008/model.safetensors", "half");
  store.set(kRun + "/step-00000009/model.safetensors", "half");
  const Json extra = run_state(1, 1).extra;
  EXPECT_EQ(keep_uploaded(store, kRun, 1, 0, extra, {"step-00000008"}), 0);
  std::vector<int64_t> left;
  for (const RemoteStep& step : remote_steps(store, kRun)) left.push_back(step.step);
  EXPECT_EQ(left, (std::vector<int64_t>{1, 8}));
}

TEST(KeepUploaded, AsksForNoManifestWhereNothingCanGo) {
  Scratch folder;
  MemoryStore store;
  upload(store, saved(folder.path(), 1, 1));
  upload(store, saved(folder.path(), 2, 2));
  store.before = [](const std::string& kind, const std::string& address) {
    if (kind == "get") fail(ExitCode::kEnvironment, "test", "asked for ", address);
  };
  for (const int keep : {0, 2})
    EXPECT_EQ(keep_uploaded(store, kRun, keep, 0, run_state(2, 1).extra), 0);
}

TEST(KeepUploaded, KeepsWhatIsMarkedPermanent) {
  Scratch folder;
  MemoryStore store;
  upload(store, save(folder.path(), run_state(1, 1), {.permanent = true}));
  upload(store, saved(folder.path(), 2, 2));
  upload(store, saved(folder.path(), 3, 3));
  EXPECT_EQ(keep_uploaded(store, kRun, 1, 0, run_state(3, 1).extra), 1);
  std::vector<int64_t> left;
  for (const RemoteStep& step : remote_steps(store, kRun)) left.push_back(step.step);
  EXPECT_EQ(left, (std::vector<int64_t>{1, 3}));
}

TEST(KeepUploaded, LeavesAnotherRunsAlone) {
  Scratch folder;
  MemoryStore store;
  upload(store, save(folder.path(), run_state(1, 1, "id-2"), {}));
  upload(store, saved(folder.path(), 2, 2));
  upload(store, saved(folder.path(), 3, 3));
  store.set(kRun + "/step-00000009/model.safetensors", "half");
  EXPECT_EQ(keep_uploaded(store, kRun, 1, 0, run_state(5, 1).extra), 1);
  std::vector<int64_t> left;
  for (const RemoteStep& step : remote_steps(store, kRun)) left.push_back(step.step);
  EXPECT_EQ(left, (std::vector<int64_t>{1, 3, 9}));
}

TEST(KeepUploaded, LooksBeyondADamagedManifest) {
  Scratch folder;
  MemoryStore store;
  for (int64_t step = 1; step <= 3; ++step) upload(store, saved(folder.path(), step, 1));
  store.set(kRun + "/step-00000001/manifest.json", "{}");
  store.set(kRun + "/step-00000009/model.safetensors", "half");
  EXPECT_EQ(keep_uploaded(store, kRun, 1, 0, run_state(5, 1).extra), 1);
  std::vector<int64_t> left;
  for (const RemoteStep& step : remote_steps(store, kRun)) left.push_back(step.step);
  EXPECT_EQ(left, (std::vector<int64_t>{1, 3, 9}));
}

TEST(Download, TakesTheOneSavedLast) {
  Scratch folder, here;
  MemoryStore store;
  upload(store, saved(folder.path(), 9, 1));
  upload(store, saved(folder.path(), 4, 2));  // after a return to an older one
  const fs::path path = download(store, kRun + "/", here.path());
  EXPECT_EQ(path, here.path() / "run" / "step-00000004");
  EXPECT_EQ(load(path).extra.at("mark"), 2);
  EXPECT_EQ(fs::read_symlink(here.path() / "run" / "latest"), "step-00000004");
  EXPECT_EQ(resolve(here.path(), "latest", "run"), fs::path(path));
  // Once.
  store.before = [](const std::string& kind, const std::string& address) {
    if (kind == "get" && !address.ends_with("manifest.json"))
      fail(ExitCode::kEnvironment, "test", "asked again");
  };
  EXPECT_EQ(download(store, kRun, here.path()), path);
}

TEST(Download, FallsBackFromADamagedOne) {
  Scratch folder, here;
  MemoryStore store;
  upload(store, saved(folder.path(), 1, 1));
  upload(store, saved(folder.path(), 2, 2));
  const std::string file = kRun + "/step-00000002/optimizer.safetensors";
  std::string content = store.objects().at(file);
  content.back() = static_cast<char>(content.back() ^ 4);
  store.set(file, content);
  EXPECT_EQ(download(store, kRun, here.path()).filename(), "step-00000001");
  EXPECT_TRUE(has(
      error_of(ExitCode::kDamaged, [&] { download(store, kRun + "/step-00000002", here.path()); }),
      "optimizer.safetensors"));
  for (const auto& entry : fs::directory_iterator(here.path() / "run"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
}

TEST(Download, NamesWhatHasNoManifest) {
  Scratch here;
  MemoryStore store;
  store.set(kRun + "/step-00000002/model.safetensors", "half");
  for (const std::string& address : {kRun, kRun + "/step-00000002"})
    EXPECT_TRUE(
        has(error_of(ExitCode::kDamaged, [&] { download(store, address, here.path()); }), address));
  error_of(ExitCode::kUsage, [&] { download(store, "s3://bucket/none", here.path()); });
}

TEST(Download, LeavesAnotherCheckpointOfTheName) {
  Scratch folder, here;
  MemoryStore store;
  upload(store, saved(folder.path(), 2, 2));
  saved(here.path() / "run", 2, 5);
  EXPECT_TRUE(has(error_of(ExitCode::kUsage, [&] { download(store, kRun, here.path()); }),
                  "another checkpoint"));
  EXPECT_EQ(load(here.path() / "run" / "step-00000002").extra.at("mark"), 5);
}

// A server may say anything.
TEST(Download, NeverLeavesItsFolder) {
  Scratch folder, here;
  for (const char* run : {"../out", "", "/etc", ".hidden", "a/b", "a\nb"}) {
    MemoryStore store;
    upload(store, save(folder.path() / "x", run_state(2, 2, "id", run), {}));
    error_of(ExitCode::kDamaged, [&] { download(store, kRun + "/step-00000002", here.path()); });
  }
  MemoryStore store;
  upload(store, saved(folder.path(), 2, 2));
  for (const char* name : {"/step-00000003/../../x", "/../manifest.json", "/step-3/manifest.json",
                           "/step-0000000a/manifest.json", "/..//manifest.json"})
    store.set(kRun + name, "x");
  store.set(kRun + "/step-00000005/manifest.json",
            store.objects().at(kRun + "/step-00000002/manifest.json"));  // another step's
  EXPECT_EQ(download(store, kRun, here.path()), here.path() / "run" / "step-00000002");
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(here.path())) ++entries;
  EXPECT_EQ(entries, 1);
}

}  // namespace
}  // namespace octavo::checkpoint
