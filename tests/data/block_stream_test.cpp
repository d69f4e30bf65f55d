// Blocks of shards read as the loader reads large data: the right tokens, once, checked, in bounded
// memory and with few files open.

#include "data/block_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "data/dataset_index.h"
#include "data/token_data.h"
#include "helpers.h"
#include "old_shard.h"

namespace octavo::data {
namespace {

// Shards of 40,000 tokens (two blocks of 64 KiB each), in a split of about 600,000.
class ManyShards : public testing::Test {
 protected:
  ManyShards() {
    text_ = make_text(600'000, 11);
    put_file(scratch_ / "in.txt", text_);
    PrepareOptions options = quiet_options({scratch_ / "in.txt"}, folder_);
    options.shard_tokens = 40'000;
    options.val_fraction = 0;
    prepare(options);
    data_ = TokenData::open(folder_, "train");
  }

  std::vector<int32_t> wanted(uint64_t begin, size_t count) const {
    std::vector<int32_t> tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<unsigned char>(text_[begin + i]);
    return tokens;
  }

  void flip(const std::string& shard, uint64_t byte) const {
    std::string bytes = get_file(folder_ / shard);
    bytes[byte] = static_cast<char>(bytes[byte] ^ 4);
    put_file(folder_ / shard, bytes);
  }

  Scratch scratch_;
  fs::path folder_ = scratch_ / "out";
  std::string text_;
  std::shared_ptr<TokenData> data_;
};

void read_everywhere(const TokenData& data, const std::string& text, const StreamOptions& options) {
  const auto stream = data.stream(options);
  std::mt19937_64 random(3);
  std::vector<int32_t> out;
  for (int i = 0; i < 400; ++i) {
    out.resize(1 + random() % 3000);
    const uint64_t begin = random() % (text.size() - out.size() + 1);
    if (i % 3 == 0) stream->expect(begin);
    stream->read(begin, out);
    for (size_t j = 0; j < out.size(); ++j)
      ASSERT_EQ(out[j], static_cast<unsigned char>(text[begin + j])) << begin << " + " << j;
  }
}

TEST_F(ManyShards, GiveTheirTokensInAnyBlocks) {
  for (const uint64_t block : {100, 1000, 33'333, 40'000, 100'000, 1'000'000})
    for (const uint64_t overlap : {0, 1})
      for (const int threads : {0, 3})
        read_everywhere(*data_, text_, {block, overlap, 4, 2, threads});
}

TEST_F(ManyShards, OfVersionOneGiveTheirTokensToo) {
  make_old(folder_);
  const auto old = TokenData::open(folder_, "train");
  EXPECT_NE(old->fingerprint(), data_->fingerprint());
  read_everywhere(*old, text_, {10'000, 1, 4, 2, 2});
  std::vector<int32_t> all(old->tokens());
  old->read(0, all);  // mapped
  EXPECT_EQ(all, wanted(0, all.size()));
}

// One pass through the split, in blocks of ten 64 KiB: each is read once, and little around it.
TEST_F(ManyShards, AreReadOnce) {
  PrepareOptions options = quiet_options({scratch_ / "in.txt"}, scratch_ / "large");
  options.shard_tokens = 1'000'000;
  options.val_fraction = 0;
  prepare(options);
  const auto data = TokenData::open(scratch_ / "large", "train");
  const auto stream = data->stream({327'680, 0, 2, 0, 0});
  std::vector<int32_t> out(64);
  for (uint64_t begin = 0; begin + 64 <= data->tokens(); begin += 64) stream->read(begin, out);
  const double tokens = 2.0 * static_cast<double>(data->tokens());
  EXPECT_GE(static_cast<double>(stream->bytes_read()), tokens);
  EXPECT_LT(static_cast<double>(stream->bytes_read()), 1.1 * tokens);
}

int open_files(const fs::path& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const fs::path target = fs::read_symlink(entry.path(), error);
    count += !error && target.string().starts_with(folder.string()) ? 1 : 0;
  }
  return count;
}

TEST_F(ManyShards, KeepNoFilesOpen) {
  const auto stream = data_->stream({20'000, 1, 100, 20, 2});
  std::vector<int32_t> out(1000);
  for (uint64_t begin = 0; begin + 1000 < data_->tokens(); begin += 9'999) {
    stream->expect((begin + 200'000) % data_->tokens());
    stream->read(begin, out);
    ASSERT_LE(open_files(fs::canonical(folder_)), 3);
  }
}

// Ten blocks in turn, and a cache of four: each is read again every time, until there is room.
TEST_F(ManyShards, LetTheCacheGrowWhileBlocksComeBack) {
  const auto loads = [&](uint64_t most) {
    const auto stream = data_->stream({.block_tokens = 10'000,
                                       .cached_blocks = 4,
                                       .expected_blocks = 0,
                                       .threads = 0,
                                       .most_blocks = most});
    std::vector<int32_t> out(100);
    stream->read(0, out);
    const uint64_t block = stream->bytes_read();
    for (uint64_t i = 0; i < 1000; ++i) stream->read(i % 10 * 10'000, out);
    return static_cast<double>(stream->bytes_read()) / static_cast<double>(block);
  };
  const int64_t warnings = warning_count();
  EXPECT_GT(loads(0), 900);
  EXPECT_LT(loads(20), 100);
  EXPECT_EQ(warning_count(), warnings);
  EXPECT_GT(loads(6), 900);
  EXPECT_EQ(warning_count(), warnings + 1) << "once, of a cache that may not grow enough";
}

TEST_F(ManyShards, ServeManyThreads) {
  const auto stream = data_->stream({7'000, 1, 5, 2, 3});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<int32_t> out(500);
      for (int i = 0; i < 500; ++i) {
        const uint64_t begin = random() % (text_.size() - out.size());
        stream->expect(random() % text_.size());
        stream->read(begin, out);
        wrong += out != wanted(begin, out.size());
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// What is damaged is an error each time, and nothing else is.
TEST_F(ManyShards, NameDamageAndGiveTheRest) {
  flip("train-00003.tok", kShardHeaderBytes + kShardBlockBytes + 5);  // its second block
  fs::remove(folder_ / "train-00007.tok");
  const auto stream = data_->stream({60'000, 1, 3, 1, 2});
  std::vector<int32_t> out(1000);
  int damaged = 0;
  for (uint64_t begin = 0; begin + 1000 <= data_->tokens(); begin += 1000) {
    // Tokens 32,768 to 40,000 of the fourth shard, and the eighth.
    const bool bad =
        (begin + 1000 > 152'768 && begin < 160'000) || (begin + 1000 > 280'000 && begin < 320'000);
    if (!bad) {
      stream->read(begin, out);
      ASSERT_EQ(out, wanted(begin, out.size()));
      continue;
    }
    ++damaged;
    expect_failure([&] { stream->read(begin, out); }, ExitCode::kDamaged,
                   {begin < 200'000 ? "train-00003.tok" : "train-00007.tok", "prepare"});
  }
  EXPECT_EQ(damaged, 8 + 40);
  ASSERT_EQ(data_->damage().size(), 2u);
  EXPECT_EQ(data_->damage()[0].begin, 32'768u);
  EXPECT_EQ(data_->damage()[0].end, 40'000u);
  EXPECT_EQ(data_->damage()[1].reason, "missing");
  EXPECT_GT(data_->check_seconds(), 0);
}

// Every bit that a block depends on: the header, its hashes, itself. Document starts are not read.
TEST_F(ManyShards, FindEveryFlippedBitThatMatters) {
  const std::string shard = "train-00001.tok";
  const uint64_t size = fs::file_size(folder_ / shard);
  std::vector<uint64_t> places = {0,    8,      100,    2048,     2055,     4095,
                                  4096, 60'000, 84'095, size - 1, size - 16};
  std::mt19937_64 random(8);
  for (int i = 0; i < 60; ++i) places.push_back(random() % (kShardHeaderBytes + 80'000));
  std::vector<int32_t> out(40'000);
  for (const uint64_t place : places) {
    flip(shard, place);
    const auto data = TokenData::open(folder_, "train");
    SCOPED_TRACE(testing::Message() << "byte " << place);
    expect_failure(
        [&] {
          data->stream({40'000, 1, 2, 0, 0})->read(40'000, out);
        },
        ExitCode::kDamaged, {shard});
    flip(shard, place);
  }
  data_->stream({40'000, 1, 2, 0, 0})->read(40'000, out);
}

TEST_F(ManyShards, TheLoaderLeavesDamageOut) {
  flip("train-00003.tok", kShardHeaderBytes + kShardBlockBytes + 5);
  const Order order{.block = 100, .window = 3, .step = 8, .run = 2};
  const auto sound = [&](bool skip) {
    Loader loader(TokenData::open(folder_, "train"),
                  {.rows = 4, .length = 50, .skip_damaged = skip, .document_end = -1}, {0, order});
    int64_t left_out = 0;
    for (int k = 0; k < 2999; ++k) {
      const Batch batch = loader.next();
      left_out += batch.left_out;
      for (size_t row = 0; row < 4; ++row)
        if (batch.targets[50 * row] != -1)
          EXPECT_EQ(batch.inputs[50 * row],
                    static_cast<unsigned char>(text_[50 * batch.samples[row]]));
    }
    EXPECT_GT(loader.bytes_read(), text_.size());
    return left_out;
  };
  EXPECT_NEAR(static_cast<double>(sound(true)), 7'232.0 / 50, 4);
  expect_failure([&] { sound(false); }, ExitCode::kDamaged, {"train-00003.tok", "block 1"});
}

}  // namespace
}  // namespace octavo::data
