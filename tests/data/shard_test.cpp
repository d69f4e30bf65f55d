// Shards and the data over them: nothing damaged is handed out, and nothing grows with the data.

#include "data/shard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "data/dataset_index.h"
#include "data/token_data.h"
#include "helpers.h"

namespace octavo::data {
namespace {

std::vector<int32_t> read_all(const TokenData& data) {
  std::vector<int32_t> tokens(data.tokens());
  data.read(0, tokens);
  return tokens;
}

void flip_bit(const fs::path& path, uint64_t offset, int bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ (1 << bit)));
}

// A prepared set of one shard: 1.3 MB of text in 20 lines of JSONL, as u16 40 blocks.
class PreparedShard : public testing::Test {
 protected:
  PreparedShard() {
    std::string lines;
    for (int i = 0; i < 20; ++i) lines += "{\"text\": \"" + std::string(65'000, 'a' + i) + "\"}\n";
    put_file(scratch_ / "in.jsonl", lines);
    PrepareOptions options = quiet_options({scratch_ / "in.jsonl"}, folder_);
    options.val_fraction = 0;
    prepare(options);
  }

  Scratch scratch_;
  fs::path folder_ = scratch_ / "out", shard_ = folder_ / "train-00000.tok";
};

TEST_F(PreparedShard, EveryFlippedBitIsFound) {
  const uint64_t size = fs::file_size(shard_);
  EXPECT_EQ(size, kShardHeaderBytes + 20UL * 65'000 * 2 + 19UL * 2 + 2 + 20UL * 8 + 40UL * 8);
  std::vector<uint64_t> places;
  for (uint64_t i = 0; i < sizeof(ShardHeader); ++i) places.push_back(i);  // every header byte
  for (uint64_t i = size - 320 - 160 - 2; i < size; i += 3)
    places.push_back(i);  // padding and tables
  for (const uint64_t i :
       {uint64_t{200}, kShardHeaderBytes - 1, kShardHeaderBytes,
        kShardHeaderBytes + kShardBlockBytes - 1, kShardHeaderBytes + kShardBlockBytes, size - 200})
    places.push_back(i);
  std::mt19937_64 random(3);
  for (int i = 0; i < 60; ++i) places.push_back(random() % size);
  for (const uint64_t place : places) {
    const int bit = static_cast<int>(random() % 8);
    flip_bit(shard_, place, bit);
    const auto data = TokenData::open(folder_, "train");
    SCOPED_TRACE(testing::Message() << "byte " << place << " bit " << bit);
    expect_failure([&] { read_all(*data); }, ExitCode::kDamaged, {shard_.string(), "prepare"});
    flip_bit(shard_, place, bit);
  }
  EXPECT_EQ(read_all(*TokenData::open(folder_, "train")).size(), 20u * 65'000 + 19);
}

TEST_F(PreparedShard, DamageIsNamedByBlockAndLeavesTheOthersReadable) {
  flip_bit(shard_, kShardHeaderBytes + kShardBlockBytes + 77, 4);
  const auto data = TokenData::open(folder_, "train");
  const uint64_t per_block = kShardBlockBytes / 2;
  std::vector<int32_t> some(1000);
  data->read(0, some);
  data->read(2 * per_block, some);
  expect_failure([&] { data->read(per_block - 999, some); }, ExitCode::kDamaged, {"block 1"});
  expect_failure([&] { inspect(folder_, true); }, ExitCode::kDamaged, {"block 1", "DAMAGED"});
  expect_failure([&] { data->read(per_block + 5, some); }, ExitCode::kDamaged, {"block 1"});
  ASSERT_EQ(data->damage().size(), 1u);  // once, however often it is met
  const DamagedRange range = data->damage()[0];
  EXPECT_EQ(range.shard, "train-00000.tok");
  EXPECT_EQ(range.begin, per_block);
  EXPECT_EQ(range.end, 2 * per_block);
  EXPECT_GT(data->check_seconds(), 0);
}

TEST_F(PreparedShard, ATruncatedMissingOrForeignShardIsDamage) {
  const auto read = [&] { read_all(*TokenData::open(folder_, "train")); };
  const std::string content = get_file(shard_);
  put_file(shard_, content.substr(0, content.size() - 8));
  expect_failure(read, ExitCode::kDamaged, {"found " + std::to_string(content.size() - 8)});
  put_file(shard_, "");
  expect_failure(read, ExitCode::kDamaged, {"found 0"});
  fs::remove(shard_);
  expect_failure(read, ExitCode::kDamaged, {"missing"});
  // A sound shard of the same size, but of another data set.
  std::vector<int32_t> tokens(20 * 65'000 + 19, 7);
  ShardWriter writer(folder_, "train-00000.tok", read_index(folder_).kind);
  for (size_t i = 0; i < 20; ++i) {
    writer.begin_document();
    writer.append(std::span(tokens).subspan(0, i < 19 ? 65'001 : 65'000));
  }
  EXPECT_EQ(writer.finish().bytes, content.size());
  expect_failure(read, ExitCode::kDamaged, {"not the one the index names"});
}

TEST_F(PreparedShard, ADamagedIndexIsFound) {
  const fs::path index = folder_ / kIndexName;
  const std::string good = get_file(index);
  const auto open_with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    const size_t place = bad.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    put_file(index, bad.replace(place, from.size(), to));
    expect_failure([&] { TokenData::open(folder_, "train"); }, ExitCode::kDamaged,
                   {index.string()});
  };
  open_with("\"tokens\": 1300019", "\"tokens\": 1300018");
  open_with("\"documents\": 20", "\"documents\": 21");
  open_with("train-00000.tok", "train-00001.tok");
  open_with("train-00000.tok", "../in.jsonl");
  open_with("\"vocab_size\": 257", "\"vocab_size\": 258");
  open_with("\"vocab_size\": 257", "\"vocab_size\": -1");
  open_with("\"shards\": [", "\"shards\": {");
  // Another format, and no version that the message could name.
  put_file(index, R"({"format": "another"})");
  expect_failure([&] { TokenData::open(folder_, "train"); }, ExitCode::kDamaged, {"'version'"});
  put_file(index, good.substr(0, good.size() / 2));
  expect_failure([&] { TokenData::open(folder_, "train"); }, ExitCode::kDamaged, {index.string()});
  fs::remove(index);
  expect_failure([&] { TokenData::open(folder_, "train"); }, ExitCode::kUsage, {"data prepare"});
}

TEST_F(PreparedShard, ThreadsReadTheSameTokens) {
  const auto data = TokenData::open(folder_, "train");
  const auto wanted = read_all(*TokenData::open(folder_, "train"));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<int32_t> out(257);
      for (int i = 0; i < 2000; ++i) {
        const uint64_t begin = random() % (wanted.size() - out.size());
        data->read(begin, out);
        wrong += !std::equal(out.begin(), out.end(), wanted.begin() + int64_t(begin));
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  std::vector<int32_t> out(2);
  expect_failure([&] { data->read(data->tokens() - 1, out); }, ExitCode::kUsage,
                 {"another data set"});
}

// A shard whose hashes all hold but which has an id that its vocabulary does not.
TEST(Shard, ATokenBeyondTheVocabularyIsDamage) {
  Scratch scratch;
  fs::create_directories(scratch / "out");
  for (const uint64_t vocab : {uint64_t{257}, uint64_t{100'000}}) {
    const ShardKind honest{vocab, "tokenizer"};
    const ShardKind wide{vocab < 65536 ? uint64_t{60'000} : uint64_t{200'000}, "tokenizer"};
    std::vector<int32_t> tokens(600'000, 5);
    tokens[590'000] = static_cast<int32_t>(vocab);
    ShardWriter writer(scratch / "out", "train-00000.tok", wide);
    writer.begin_document();
    writer.append(tokens);
    ShardInfo info = writer.finish();
    std::string bytes = get_file(scratch / "out/train-00000.tok");
    std::memcpy(bytes.data() + offsetof(ShardHeader, vocab_size), &vocab, 8);
    std::memset(bytes.data() + offsetof(ShardHeader, header_hash), 0, 8);
    const uint64_t hash = XXH3_64bits(bytes.data(), kShardHeaderBytes);
    std::memcpy(bytes.data() + offsetof(ShardHeader, header_hash), &hash, 8);
    put_file(scratch / "out/train-00000.tok", bytes);
    const auto page = std::as_bytes(std::span(bytes.data(), kShardHeaderBytes));
    const std::string text = hash_bytes(page);
    std::copy(text.begin(), text.end(), info.hash.begin());

    const Shard shard(scratch / "out", info, honest, nullptr);
    std::vector<int32_t> out(100);
    shard.read(0, out);
    expect_failure([&] { shard.read(599'000, out); }, ExitCode::kDamaged,
                   {"token 590000", "vocabulary of " + std::to_string(vocab)});
    expect_failure([&] { shard.verify_all(); }, ExitCode::kDamaged, {"train-00000.tok"});
  }
}

TEST(Shard, TheWriterRefusesIdsBeyondTheVocabulary) {
  Scratch scratch;
  fs::create_directories(scratch / "out");
  ShardWriter writer(scratch / "out", "train-00000.tok", {257, "tokenizer"});
  expect_failure([&] { writer.append(std::vector<int32_t>{257}); }, ExitCode::kDamaged, {"257"});
  expect_failure([&] { writer.append(std::vector<int32_t>{-1}); }, ExitCode::kDamaged, {"-1"});
}

int mapped_shards(const fs::path& folder) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find(folder.string()) != std::string::npos;
  return count;
}

TEST(TokenData, FewShardsAreMappedAtOneTime) {
  Scratch scratch;
  const std::string text = make_text(20'000, 4);
  put_file(scratch / "in.txt", text);
  PrepareOptions options = quiet_options({scratch / "in.txt"}, scratch / "out");
  options.shard_tokens = 999;
  options.val_fraction = 0;
  const PrepareResult result = prepare(options);
  EXPECT_EQ(result.shards, int((text.size() + 998) / 999));
  const auto data = TokenData::open(scratch / "out", "train", 2);
  EXPECT_EQ(mapped_shards(scratch / "out"), 0);  // opening reads the index only
  std::mt19937_64 random(5);
  std::vector<int32_t> out(2500);  // spans three or four shards
  for (int i = 0; i < 300; ++i) {
    const uint64_t begin = random() % (text.size() - out.size());
    data->read(begin, out);
    for (size_t j = 0; j < out.size(); ++j)
      ASSERT_EQ(out[j], static_cast<unsigned char>(text[begin + j]));
    ASSERT_LE(mapped_shards(scratch / "out"), 2);
  }
}

TEST(TokenData, AChangedShardIsCheckedAgainAfterItWasUnmapped) {
  Scratch scratch;
  put_file(scratch / "in.txt", make_text(4'000, 4));
  PrepareOptions options = quiet_options({scratch / "in.txt"}, scratch / "out");
  options.shard_tokens = 1000;
  options.val_fraction = 0;
  prepare(options);
  const auto data = TokenData::open(scratch / "out", "train", 1);
  std::vector<int32_t> out(10);
  data->read(0, out);
  data->read(1500, out);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a coarse file clock
  flip_bit(scratch / "out/train-00000.tok", kShardHeaderBytes + 900, 0);
  expect_failure([&] { data->read(0, out); }, ExitCode::kDamaged, {"train-00000.tok", "block 0"});
}

// 10^13 tokens in 10^5 shards: the index opens quickly, without touching a shard.
TEST(TokenData, AnIndexOfAHundredThousandShardsOpens) {
  Scratch scratch;
  fs::create_directories(scratch / "out");
  DatasetIndex index;
  index.tokenizer_name = "bytes";
  index.kind = {257, "tokenizer"};
  for (int i = 0; i < 100'000; ++i) {
    char name[24];
    std::snprintf(name, sizeof name, "train-%05d.tok", i);
    ShardInfo shard{name, 100'000'000, 1000, 200'012'288, {}};
    shard.hash.fill('a');
    index.splits["train"].shards.push_back(shard);
  }
  write_index(scratch / "out", index);
  const std::clock_t start = std::clock();  // of this process: a busy machine does not count
  const auto data = TokenData::open(scratch / "out", "train");
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(data->tokens(), 10'000'000'000'000u);
  EXPECT_LT(seconds, 60);  // under a second in release; the sanitizers are slow
  std::vector<int32_t> out(1);
  expect_failure([&] { data->read(9'999'999'999'999, out); }, ExitCode::kDamaged,
                 {"train-99999.tok"});
}

}  // namespace
}  // namespace octavo::data
