// Shards on an object store: the same tokens as from files, asked for once, within the limit.

#include "data/remote_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "data/block_stream.h"
#include "data/dataset_index.h"
#include "data/token_data.h"
#include "helpers.h"
#include "old_shard.h"

namespace octavo::data {
namespace {

// In memory; counts what it is asked.
class MemoryStore final : public object_store::ObjectStore {
 public:
  std::map<std::string, std::string> objects;
  std::atomic<int> opened = 0, large_reads = 0;
  std::chrono::milliseconds delay{0};  // of each request

  std::vector<object_store::Object> list(const std::string& address) override {
    if (!objects.contains(address)) return {};
    return {{.name = "", .bytes = objects[address].size()}};
  }
  std::unique_ptr<object_store::ObjectReader> open(const std::string& address) override {
    ++opened;
    const auto found = objects.find(address);
    if (found == objects.end()) fail(ExitCode::kEnvironment, "test", "cannot read ", address);
    return std::make_unique<Reader>(*this, found->second);
  }
  void put(const std::string&, const NextBytes&) override {}
  void remove(const std::string&) override {}
  void remove_below(const std::string&) override {}

 private:
  class Reader final : public object_store::ObjectReader {
   public:
    Reader(MemoryStore& store, const std::string& text) : store_(store), text_(text) {}
    uint64_t bytes() const override { return text_.size(); }
    std::string tag() const override { return ""; }
    std::string read(uint64_t offset, uint64_t bytes) const override {
      store_.large_reads += bytes > PartCache::kSmallPart ? 1 : 0;
      std::this_thread::sleep_for(store_.delay);
      return text_.substr(offset, bytes);
    }

   private:
    MemoryStore& store_;
    const std::string& text_;
  };
};

uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

class RemoteShards : public testing::Test {
 protected:
  RemoteShards() {
    put_file(scratch_ / "in.txt", make_text(600'000, 11));
    PrepareOptions options = quiet_options({scratch_ / "in.txt"}, folder_);
    options.shard_tokens = 100'000;
    options.val_fraction = 0;
    prepare(options);
    take(folder_);
  }

  // What a folder has is at s3://bucket/set from now on.
  void take(const fs::path& folder) {
    const DatasetIndex index = read_index(folder);
    split_ = {.folder = "s3://bucket/set", .kind = index.kind};
    split_.shards = index.splits.at("train").shards;
    for (const ShardInfo& shard : split_.shards) {
      split_.begins.push_back(split_.tokens);
      split_.tokens += shard.tokens;
      store_->objects["s3://bucket/set/" + shard.name] = get_file(folder / shard.name);
    }
    tokens_.resize(split_.tokens);
    TokenData::open(folder, "train")->read(0, tokens_);
  }

  // All tokens once, in blocks; nothing in memory from before.
  RemoteFiles::Counts read_all(uint64_t cache_bytes,
                               const StreamOptions& options = {30'000, 1, 4, 2, 3}) {
    split_.remote = std::make_shared<RemoteFiles>(store_, LocalCache{cache_, cache_bytes});
    BlockStream stream(
        split_, options, [this](size_t, const DamagedShard&) { ++damaged_; }, [](uint64_t) {});
    std::vector<int32_t> out(10'000);
    for (uint64_t begin = 0; begin < split_.tokens; begin += out.size()) {
      out.resize(std::min<uint64_t>(10'000, split_.tokens - begin));
      stream.expect(begin + 30'000 < split_.tokens ? begin + 30'000 : 0);
      stream.read(begin, out);
      for (size_t i = 0; i < out.size(); ++i)
        if (out[i] != tokens_[begin + i]) {
          ADD_FAILURE() << "token " << begin + i;
          return {};
        }
    }
    return split_.remote->counts();
  }

  Scratch scratch_;
  fs::path folder_ = scratch_ / "out", cache_ = scratch_ / "cache";
  std::vector<int32_t> tokens_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  SplitShards split_;
  std::atomic<int> damaged_{0};
};

constexpr uint64_t kPlenty = uint64_t{1} << 30;

TEST_F(RemoteShards, GiveTheirTokensWithoutACache) {
  const auto first = read_all(0), again = read_all(0, {30'000, 1, 4, 2, 0});
  EXPECT_GT(first.requests, 0U);
  // Two threads may ask for one shard's hashes at the same time.
  EXPECT_GE(first.requests, again.requests);
  EXPECT_LE(first.requests, again.requests + 2 * split_.shards.size());
  EXPECT_EQ(first.cached_bytes, 0U);
  EXPECT_FALSE(fs::exists(cache_));
  EXPECT_LE(store_->opened, 2 * static_cast<int>(split_.shards.size()) + 2);
}

TEST_F(RemoteShards, AreAskedForOnceWithACache) {
  EXPECT_GT(read_all(kPlenty).requests, 0U);
  store_->opened = 0;
  const auto again = read_all(kPlenty);  // as another process would
  EXPECT_EQ(again.requests, 0U);
  EXPECT_GT(again.cached_bytes, 2 * split_.tokens);
  EXPECT_EQ(store_->opened, 0);
}

// Its tables, and blocks of 1 MiB that tokens of two lie in, are more than one place has.
TEST_F(RemoteShards, OfVersionOneAreAskedForOnceWithACache) {
  std::string lines;
  for (int i = 0; i < 180'000; ++i) lines += "{\"text\": \"abcdefg\"}\n";
  put_file(scratch_ / "lines.jsonl", lines);
  const fs::path old = scratch_ / "old";
  PrepareOptions options = quiet_options({scratch_ / "lines.jsonl"}, old);
  options.val_fraction = 0;
  prepare(options);
  make_old(old);
  take(old);
  ASSERT_GT(split_.shards[0].bytes - 2 * split_.tokens, PartCache::kLargePart);
  const StreamOptions whole_blocks{600'000, 1, 4, 2, 0};
  EXPECT_GT(read_all(kPlenty, whole_blocks).requests, 0U);
  EXPECT_EQ(read_all(kPlenty, whole_blocks).requests, 0U);
}

TEST_F(RemoteShards, AreAskedForOnceByManyAtOnce) {
  store_->delay = std::chrono::milliseconds(30);
  std::vector<std::thread> processes;
  for (int i = 0; i < 4; ++i)
    processes.emplace_back([this] {
      SplitShards split = split_;
      split.remote = std::make_shared<RemoteFiles>(store_, LocalCache{cache_, kPlenty});
      BlockStream stream(
          split, {30'000, 0, 4, 2, 0}, [](size_t, const DamagedShard&) {}, [](uint64_t) {});
      std::vector<int32_t> out(10'000);
      stream.read(0, out);
      EXPECT_TRUE(std::ranges::equal(out, std::span(tokens_).first(out.size())));
    });
  for (std::thread& process : processes) process.join();
  EXPECT_EQ(store_->large_reads, 1);
}

TEST(PartCache, AClaimIsWaitedForAWhile) {
  Scratch scratch;
  const PartCache cache(scratch / "cache", kPlenty);
  Fd first = cache.claim("key");
  EXPECT_TRUE(first.open());
  EXPECT_FALSE(cache.claim("key").open());
  first.reset();
  EXPECT_TRUE(cache.claim("key").open());
  EXPECT_FALSE(PartCache(scratch / "none", 0).claim("key").open());
}

TEST(PartCache, KeepsLargePartsInPieces) {
  Scratch scratch;
  std::mt19937_64 random(3);
  std::vector<std::byte> part(3 * PartCache::kLargePart + 5);
  for (std::byte& byte : part) byte = static_cast<std::byte>(random());
  const PartCache cache(scratch / "cache", kPlenty);
  EXPECT_FALSE(cache.find("key", part.size()));
  cache.keep("key", part);
  const auto found = cache.find("key", part.size());
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::ranges::equal(found->all(), part));
  EXPECT_FALSE(cache.find("key", part.size() - 1));
  for (const auto& entry : fs::recursive_directory_iterator(scratch / "cache"))
    if (entry.path().extension() == ".small") fs::remove(entry.path());  // its last piece
  EXPECT_FALSE(cache.find("key", part.size()));
  const PartCache little(scratch / "little", uint64_t{4} << 20);
  little.keep("key", part);
  EXPECT_LE(bytes_below(scratch / "little"), uint64_t{4} << 20);
}

TEST(PartCache, IsCleanedOnceByAProcess) {
  Scratch scratch;
  const fs::path left = scratch / "cache" / "writing-1-1";
  const auto is_removed = [&](uint64_t limit) {
    put_file(left, "left by a process that was killed");
    fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));
    const PartCache cache(scratch / "cache", limit);
    return !fs::exists(left);
  };
  EXPECT_TRUE(is_removed(kPlenty));
  EXPECT_FALSE(is_removed(kPlenty));
  EXPECT_TRUE(is_removed(kPlenty / 2)) << "places that it no longer has go";
}

TEST_F(RemoteShards, StayWithinTheLimit) {
  constexpr uint64_t kLimit = uint64_t{4} << 20;  // three large parts; the data are more
  for (int epoch = 0; epoch < 3; ++epoch) {
    read_all(kLimit);
    EXPECT_LE(bytes_below(cache_), kLimit);
  }
  EXPECT_GT(bytes_below(cache_), 0U);
  put_file(cache_ / "writing-1-1", "left by a process that was killed");
  fs::last_write_time(cache_ / "writing-1-1",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  read_all(kLimit / 2);  // a smaller limit takes places away
  EXPECT_LE(bytes_below(cache_), kLimit / 2);
  EXPECT_FALSE(fs::exists(cache_ / "writing-1-1"));
}

TEST_F(RemoteShards, AreReadAgainWhenTheDiskLies) {
  read_all(kPlenty);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cache_)) {
    if (!entry.is_regular_file() || entry.file_size() == 0) continue;  // or a claim
    std::string bytes = get_file(entry.path());
    if (++files % 2 == 0)
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
    else
      bytes.resize(bytes.size() / 2);
    put_file(entry.path(), bytes);
  }
  EXPECT_GT(files, 4);
  EXPECT_GT(read_all(kPlenty).requests, 0U);  // and the right tokens
  EXPECT_EQ(read_all(kPlenty).requests, 0U);
  EXPECT_EQ(damaged_, 0);
}

TEST_F(RemoteShards, ThatAreDamagedAreNotKept) {
  std::string& object = store_->objects["s3://bucket/set/" + split_.shards[1].name];
  const std::string good = object;
  object[kShardHeaderBytes + 1000] = static_cast<char>(object[kShardHeaderBytes + 1000] ^ 8);
  EXPECT_THROW(read_all(kPlenty), DamagedShard);
  EXPECT_GE(damaged_, 1);
  object = good;
  damaged_ = 0;
  read_all(kPlenty);
  EXPECT_EQ(damaged_, 0);
}

TEST_F(RemoteShards, ThatAreGoneAreNoDamage) {
  store_->objects.erase("s3://bucket/set/" + split_.shards[2].name);
  try {
    read_all(0);
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
    EXPECT_NE(std::string(error.what()).find(split_.shards[2].name), std::string::npos);
  }
  EXPECT_EQ(damaged_, 0);
}

}  // namespace
}  // namespace octavo::data
