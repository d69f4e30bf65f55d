#include "hub/cache.h"

#include <sys/file.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "fixtures.h"
#include "hub/digest.h"
#include "hub/download.h"
#include "hub/environment.h"
#include "hub/http.h"

namespace octavo::hub {
namespace {

TEST(Names, OfTheHub) {
  for (const char* good : {"gpt2", "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-0.5B", "a_b/c.d-e"})
    EXPECT_TRUE(parse_repo(good, Kind::kModel, "main")) << good;
  for (const char* bad :
       {"",           "/",      "a/",          "/a",    "a/b/c",     "..",   "../a",
        "a/..",       "a..b/c", "./a",         "a/.b",  "-a/b",      "a/b-", "a--b/c",
        "a/b.git",    "a b/c",  "a/b\n",       "a\\b",  "~/x",       "a/b@", "a/b@..",
        "a/b@x/../y", "a/b@/x", "https://x/y", "a%2fb", "\xc3\xa9/x"})
    EXPECT_FALSE(parse_repo(bad, Kind::kModel, "main")) << bad;
  EXPECT_FALSE(parse_repo(std::string(97, 'a'), Kind::kModel, "main"));
  EXPECT_EQ(parse_repo("a/b@refs/pr/1", Kind::kModel, "main")->revision, "refs/pr/1");
  EXPECT_EQ(parse_repo("a/b", Kind::kModel, "v1.0")->revision, "v1.0");
}

TEST(Names, OfFiles) {
  for (const char* good : {"a.json", "data/train-0.parquet", "..a", "a..b", "\xc3\xa9.txt", "a b"})
    EXPECT_EQ(unsafe_name(good), "") << good;
  for (const char* bad :
       {"", "/a", "a/", "a//b", "..", "../a", "a/..", "a/../b", ".", "a/./b", "a\nb", "\x7f"})
    EXPECT_NE(unsafe_name(bad), "") << bad;
  EXPECT_NE(unsafe_name(std::string_view("a\0b", 3)), "");
  EXPECT_NE(unsafe_name(std::string(256, 'a')), "");
  EXPECT_NE(unsafe_name(std::string(1025, '/')), "");
}

TEST_F(HubTest, LayoutIsTheToolsOwn) {
  const RepoCache model(cache(), *parse_repo("org/name", Kind::kModel, "main"));
  EXPECT_EQ(model.folder(), cache() / "models--org--name");
  EXPECT_EQ(RepoCache(cache(), *parse_repo("gpt2", Kind::kModel, "main")).folder(),
            cache() / "models--gpt2");
  EXPECT_EQ(RepoCache(cache(), *parse_repo("o/d", Kind::kDataset, "main")).folder(),
            cache() / "datasets--o--d");
  EXPECT_EQ(model.lock("ab"), cache() / ".locks/models--org--name/ab.lock");
  write(model.blob("beef"), "text");
  model.link("beef", kCommit, "sub/x.json");
  EXPECT_EQ(fs::read_symlink(model.snapshot(kCommit) / "sub/x.json"), "../../../blobs/beef");
  EXPECT_TRUE(model.has(kCommit, "sub/x.json"));
  EXPECT_FALSE(model.has(kCommit, "x.json"));
  EXPECT_FALSE(model.commit());
  model.write_ref(kCommit);
  EXPECT_EQ(read_file(model.folder() / "refs/main", 100), kCommit);  // no line end: tools want none
  EXPECT_EQ(model.commit(), kCommit);
  EXPECT_EQ(model.names(kCommit), std::vector<std::string>{"sub/x.json"});
  EXPECT_EQ(cached_ids(cache(), Kind::kModel), std::vector<std::string>{"org/name"});
  model.link("beef", kCommit, "sub/x.json");  // again: replaced
  EXPECT_TRUE(model.has(kCommit, "sub/x.json"));
}

TEST_F(HubTest, LinksStayInside) {
  const RepoCache model(cache(), *parse_repo("org/name", Kind::kModel, "main"));
  const fs::path snapshot = model.snapshot(kCommit);
  fs::create_directories(snapshot);
  write(home_ / "secret.json", "{}");
  fs::create_symlink(home_ / "secret.json", snapshot / "config.json");
  fs::create_symlink(home_, snapshot / "folder");
  fs::create_symlink("loop", snapshot / "loop");
  fs::create_symlink("gone", snapshot / "dangling");
  EXPECT_FALSE(model.has(kCommit, "config.json"));
  EXPECT_FALSE(model.has(kCommit, "folder/secret.json"));
  EXPECT_FALSE(model.has(kCommit, "loop"));
  EXPECT_FALSE(model.has(kCommit, "dangling"));
  EXPECT_TRUE(model.names(kCommit).empty());
  // The cache itself may be reached through a link, and blobs may be links inside (shared store).
  fs::create_symlink(cache(), home_ / "other-name");
  const RepoCache linked(home_ / "other-name", model.repo());
  write(cache() / "blobs/ab/xet", "shared");
  fs::create_directories(linked.folder() / "blobs");
  fs::create_symlink("../../blobs/ab/xet", linked.blob("beef"));
  linked.link("beef", kCommit, "good.json");
  EXPECT_TRUE(linked.has(kCommit, "good.json"));
  for (const char* text : {"../../x", "", "0123", "0123456789ABCDEF0123456789abcdef01234567"}) {
    write(model.folder() / "refs/main", text);
    EXPECT_FALSE(model.commit()) << text;
  }
}

TEST_F(HubTest, Digests) {
  write(home_ / "empty", "");
  write(home_ / "hello", "hello world\n");
  // git hash-object and sha256sum say so.
  EXPECT_EQ(git_blob_of_file(home_ / "empty"), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(git_blob_of_file(home_ / "hello"), "3b18e512dba79e4c8300dd08aeb37f8e728b8dad");
  EXPECT_EQ(sha256_of_file(home_ / "hello"),
            "a948904f2f0f479b8f8197694b30184b0d2ed1c1cd2a1ec0fb85d299a192a447");
}

TEST_F(HubTest, EnvironmentAndToken) {
  EXPECT_EQ(read_environment().cache, home_ / "hub");
  EXPECT_TRUE(read_environment().offline);
  ::setenv("HF_HUB_OFFLINE", "0", 1);
  ::setenv("HF_HUB_CACHE", "~/x", 1);
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:9//", 1);
  EXPECT_FALSE(read_environment().offline);
  EXPECT_EQ(read_environment().cache, fs::path(std::getenv("HOME")) / "x");
  EXPECT_EQ(read_environment().endpoint, "http://127.0.0.1:9");
  ::unsetenv("HF_HUB_CACHE");
  EXPECT_EQ(read_token(), "");
  write(home_ / "token", "hf_abc\n");
  EXPECT_EQ(read_token(), "hf_abc");
  ::setenv("HF_TOKEN", "hf_def", 1);
  EXPECT_EQ(read_token(), "hf_def");
  ::setenv("HF_TOKEN", "hf_secret\r\nHost: x", 1);
  try {
    read_token();
    FAIL() << "a token with a line break was taken";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
  }
  ::unsetenv("HF_TOKEN");
}

TEST_F(HubTest, OneLockAtATime) {
  const fs::path path = home_ / "locks/x.lock";
  std::atomic<int> inside = 0, most = 0, rounds = 0;
  const auto work = [&] {
    for (int i = 0; i < 3; ++i) {
      const BlobLock lock(path);
      most = std::max(most.load(), ++inside);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      --inside;
      ++rounds;
    }
  };
  std::thread a(work), b(work);
  a.join();
  b.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(rounds, 6);
}

TEST(Addresses, Origins) {
  EXPECT_EQ(origin_of("https://Hub.co/a?b"), (Origin{"https", "hub.co", "443"}));
  EXPECT_NE(origin_of("http://hub.co"), origin_of("https://hub.co"));
  EXPECT_NE(origin_of("https://hub.co:444"), origin_of("https://hub.co"));
  EXPECT_EQ(origin_of("https://hub.co:443/x"), origin_of("https://hub.co"));
  for (const char* here :
       {"http://127.0.0.1:5/", "http://localhost/", "http://[::1]:8/", "http://127.9.9.9"})
    EXPECT_TRUE(origin_of(here).loopback()) << here;
  for (const char* away : {"http://127.0.0.1.evil.example/", "http://localhost.evil.example/",
                           "http://10.0.0.1/", "http://[::2]/"})
    EXPECT_FALSE(origin_of(away).loopback()) << away;
  for (const char* bad : {"", "hub.co", "file:///x", "ftp://a/", "http://user:pw@a/", "http://"})
    expect_failure(ExitCode::kUsage, "http or https", [&] { origin_of(bad); });
  EXPECT_EQ(percent_encode("a b/\xc3\xa9%?#~", true), "a%20b/%C3%A9%25%3F%23~");
  EXPECT_EQ(percent_encode("refs/pr/1", false), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace octavo::hub
