#include "tokenizer/bpe.h"

#include <ctime>
#include <map>
#include <set>

#include "fixtures.h"

namespace octavo::tokenizer {
namespace {

// The definition: merge the leftmost pair of the lowest rank until there is none.
std::vector<TokenId> plain_bpe(const std::vector<Merge>& merges, std::string_view word) {
  std::vector<TokenId> ids;
  for (const char c : word) ids.push_back(static_cast<unsigned char>(c));
  while (true) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best_rank = rank;
          best_at = i;
        }
    if (best_rank == merges.size()) return ids;
    ids[best_at] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

// The same, with all pairs in order, for words of many parts.
std::vector<TokenId> ordered_bpe(const std::vector<Merge>& merges, std::string_view word) {
  std::map<std::pair<TokenId, TokenId>, size_t> rank_of;
  for (size_t rank = 0; rank < merges.size(); ++rank)
    rank_of[{merges[rank].left, merges[rank].right}] = rank;
  std::map<size_t, TokenId> ids;  // by where they start
  for (size_t i = 0; i < word.size(); ++i) ids[i] = static_cast<unsigned char>(word[i]);
  std::set<std::pair<size_t, size_t>> pairs;  // rank, start
  const auto enlist = [&](auto left, bool add) {
    if (left == ids.end() || std::next(left) == ids.end()) return;
    const auto rank = rank_of.find({left->second, std::next(left)->second});
    if (rank == rank_of.end()) return;
    if (add)
      pairs.emplace(rank->second, left->first);
    else
      pairs.erase({rank->second, left->first});
  };
  for (auto id = ids.begin(); id != ids.end(); ++id) enlist(id, true);
  while (!pairs.empty()) {
    const auto [rank, start] = *pairs.begin();
    const auto left = ids.find(start), before = left == ids.begin() ? ids.end() : std::prev(left);
    for (const auto changed : {before, left, std::next(left)}) enlist(changed, false);
    ids.erase(std::next(left));
    left->second = merges[rank].result;
    for (const auto changed : {before, left}) enlist(changed, true);
  }
  std::vector<TokenId> result;
  for (const auto& [start, id] : ids) result.push_back(id);
  return result;
}

std::array<TokenId, 256> all_bytes() {
  std::array<TokenId, 256> bytes;
  for (int i = 0; i < 256; ++i) bytes[i] = i;
  return bytes;
}

std::vector<TokenId> encode(const Bpe& bpe, Bpe::Scratch& scratch, std::string_view word) {
  std::vector<TokenId> ids;
  const auto end = static_cast<uint32_t>(word.size());
  if (end > 0) bpe.encode(word, {&end, 1}, scratch, ids);
  return ids;
}

// Random merges over a small alphabet, in random order, so that ranks and ways to a token vary.
std::vector<Merge> random_merges(std::mt19937& random, size_t count) {
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::vector<Merge> merges;
  const auto id_of = [&](const std::string& token) {
    if (token.size() == 1) return static_cast<TokenId>(token[0]);
    return static_cast<TokenId>(256 +
                                (std::find(tokens.begin(), tokens.end(), token) - tokens.begin()));
  };
  while (merges.size() < count) {
    const std::string left = tokens[random() % tokens.size()],
                      right = tokens[random() % tokens.size()];
    const bool known = std::any_of(merges.begin(), merges.end(), [&](const Merge& merge) {
      return merge.left == id_of(left) && merge.right == id_of(right);
    });
    if (known || left.size() + right.size() > 12) continue;
    if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end())
      tokens.push_back(left + right);
    merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
  std::shuffle(merges.begin(), merges.end(), random);
  return merges;
}

TEST(Bpe, ShortAndLongWordsFollowTheDefinition) {
  std::mt19937 random(3);
  for (int table = 0; table < 20; ++table) {
    const std::vector<Merge> merges = random_merges(random, 40);
    const Bpe bpe(merges, all_bytes(), {});
    Bpe::Scratch scratch;
    for (int round = 0; round < 100; ++round) {
      std::string word;
      const size_t length = round % 4 == 0 ? 40 + random() % 200 : random() % 24;
      for (size_t i = 0; i < length; ++i) word += static_cast<char>('a' + random() % 3);
      const std::vector<TokenId> wanted = plain_bpe(merges, word);
      ASSERT_EQ(encode(bpe, scratch, word), wanted) << word;
      ASSERT_EQ(encode(bpe, scratch, word), wanted) << "from the cache: " << word;
    }
  }
}

TEST(Bpe, WordsOfManyPartsFollowTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 8; ++round) {
    std::vector<Merge> merges = random_merges(random, 40);
    // Powers of two of one letter: where their borders are hangs on the word's far end.
    if (round % 4 == 3) {
      merges = {{'a', 'a', 256}};
      for (TokenId id = 256; id < 272; ++id) merges.insert(merges.begin(), {id, id, id + 1});
    }
    const Bpe bpe(merges, all_bytes(), {});
    Bpe::Scratch scratch;
    std::string word;
    const size_t letters = 1 + static_cast<size_t>(round) % 3, length = 60'000 + random() % 5000;
    for (size_t i = 0; i < length; ++i)
      word += static_cast<char>(round % 4 == 3 ? 'a' : 'a' + random() % letters);
    ASSERT_EQ(encode(bpe, scratch, word), ordered_bpe(merges, word)) << round;
    ASSERT_EQ(encode(bpe, scratch, word.substr(0, 200)), ordered_bpe(merges, word.substr(0, 200)));
  }
}

TEST(Bpe, CacheTellsWordsWithZeroBytesApart) {
  const Bpe bpe({}, all_bytes(), {});
  Bpe::Scratch scratch;
  const std::string zeros(24, '\0');
  for (size_t length = 0; length <= zeros.size(); ++length)
    EXPECT_EQ(encode(bpe, scratch, zeros.substr(0, length)).size(), length);
}

TEST(Bpe, WholeWordsWinOverMerges) {
  ByteMap whole;
  whole.insert("abc", 300);
  const std::vector<Merge> merges = {{'a', 'b', 256}};
  const Bpe bpe(merges, all_bytes(), whole);
  Bpe::Scratch scratch;
  EXPECT_EQ(encode(bpe, scratch, "abc"), (std::vector<TokenId>{300}));
  EXPECT_EQ(encode(bpe, scratch, "abcd"), (std::vector<TokenId>{256, 'c', 'd'}));
}

TEST(Bpe, BytesWithoutATokenAreDroppedBeforeMerging) {
  auto bytes = all_bytes();
  bytes['x'] = -1;
  const std::vector<Merge> merges = {{'a', 'b', 256}};
  const Bpe bpe(merges, bytes, {});
  Bpe::Scratch scratch;
  EXPECT_EQ(encode(bpe, scratch, "axb"), (std::vector<TokenId>{256}));
  EXPECT_EQ(encode(bpe, scratch, "x"), (std::vector<TokenId>{}));
}

TEST(Bpe, LastOfTwoEqualMergesCounts) {
  const std::vector<Merge> merges = {{'a', 'b', 256}, {'b', 'c', 257}, {'a', 'b', 256}};
  const Bpe bpe(merges, all_bytes(), {});
  Bpe::Scratch scratch;
  EXPECT_EQ(encode(bpe, scratch, "abc"), (std::vector<TokenId>{'a', 257}));
}

TEST(Bpe, AWordOfTenMegabytes) {
  std::vector<Merge> merges = {{'a', 'a', 256}};
  for (TokenId id = 256; id < 270; ++id) merges.push_back({id, id, id + 1});
  const Bpe bpe(merges, all_bytes(), {});
  Bpe::Scratch scratch;
  const std::string word(10'000'000, 'a');
  const std::clock_t start = std::clock();  // of the processor: the machine may be shared
  const std::vector<TokenId> ids = encode(bpe, scratch, word);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(ids.front(), 270);  // 2^15 bytes
  size_t bytes = 0;
  for (const TokenId id : ids) bytes += id < 256 ? 1 : size_t{2} << (id - 256);
  EXPECT_EQ(bytes, word.size());
  EXPECT_LT(seconds, 60);
}

TEST(ByteMap, FindsWhatWasInsertedOnce) {
  ByteMap map;
  EXPECT_EQ(map.find("0"), ByteMap::kNone);
  for (int i = 0; i < 20'000; ++i) EXPECT_TRUE(map.insert(std::to_string(i * 7919), i));
  for (int i = 0; i < 20'000; ++i) EXPECT_EQ(map.find(std::to_string(i * 7919)), i);
  EXPECT_FALSE(map.insert("0", 5));
  EXPECT_EQ(map.find("0"), 0);
  EXPECT_EQ(map.find("none"), ByteMap::kNone);
  EXPECT_TRUE(map.insert("", 1));
  EXPECT_EQ(map.find(""), 1);
}

}  // namespace
}  // namespace octavo::tokenizer
