// Hashes that see every flipped bit, and who is called the odd one.

#include "dist/replicas.h"

#include <ATen/ATen.h>

#include "dist/ranks.h"

namespace octavo::dist {
namespace {

int64_t hash_of(const at::Tensor& values) {
  at::set_num_threads(1);  // a process with more cannot fork ranks
  static const ContentHash hash(at::kCPU);
  return hash.of(values).item<int64_t>();
}

void flip(const at::Tensor& values, int64_t bit) {
  static_cast<uint8_t*>(values.data_ptr())[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
}

int64_t bits_of(const at::Tensor& values) {
  return 8 * static_cast<int64_t>(values.nbytes());
}

at::Tensor random_values(int64_t count, at::ScalarType type) {
  const at::Tensor values = at::randn({count});
  return type == at::kByte ? (values * 50).to(at::kInt).to(at::kByte) : values.to(type);
}

TEST(ContentHash, EveryBitCounts) {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kByte, at::kDouble, at::kLong})
    for (const int64_t count : {1, 2, 3, 7, 64}) {
      const at::Tensor values = random_values(count, type);
      const int64_t right = hash_of(values);
      for (int64_t bit = 0; bit < bits_of(values); ++bit) {
        flip(values, bit);
        EXPECT_NE(hash_of(values), right) << type << " x " << count << ", bit " << bit;
        flip(values, bit);
      }
      EXPECT_EQ(hash_of(values), right);
    }
}

TEST(ContentHash, AlsoInTensorsOfManyChunks) {
  at::manual_seed(2);
  const at::Tensor values = at::randn({300'001});
  const int64_t right = hash_of(values);
  for (int64_t bit = 5; bit < bits_of(values); bit += 104'729) {
    flip(values, bit);
    EXPECT_NE(hash_of(values), right) << "bit " << bit;
    flip(values, bit);
  }
}

// A plain sum would not see these, nor one modulo 2^64 with odd factors alone the first of them.
TEST(ContentHash, ChangesDoNotCancel) {
  at::manual_seed(3);
  const at::Tensor values = at::randn({400'000});
  const int64_t right = hash_of(values);
  for (const int64_t other : {2, 3, 5, 399'999}) {
    flip(values, 63);  // two signs
    flip(values, 32 * other + 31);
    EXPECT_NE(hash_of(values), right) << "signs of 1 and " << other;
    flip(values, 63);
    flip(values, 32 * other + 31);
    const at::Tensor swapped = values.clone();
    swapped[0] = values[other];
    swapped[other] = values[0];
    EXPECT_NE(hash_of(swapped), right) << "0 and " << other << " changed places";
  }
  EXPECT_NE(hash_of(-values), right);
  EXPECT_EQ(hash_of(values.clone().view({400, 1000})), right) << "the shape does not count";
}

// As memory that was lost looks beside zeros.
TEST(ContentHash, AWordAndItsComplementDiffer) {
  for (const auto type : {at::kLong, at::kInt, at::kByte})
    for (const int64_t count : {1, 2, 16})
      for (const int64_t value : {0, 1, 77}) {
        const at::Tensor values = at::full({count}, value, type);
        EXPECT_NE(hash_of(values), hash_of(values.bitwise_not())) << type << ' ' << value;
      }
}

TEST(ContentHash, OfNothing) {
  EXPECT_EQ(hash_of(at::empty({0, 4})), 0);
}

TEST(Disagreement, TheMajorityIsRight) {
  const std::vector<int64_t> alike = {7, 7, 7}, one = {7, 8, 7}, all = {1, 2, 3}, two = {1, 2},
                             five = {4, 9, 4, 5, 4}, tie = {1, 1, 2, 2};
  EXPECT_FALSE(find_disagreement(alike, {0, 1, 2}));
  const auto of_three = find_disagreement(one, {0, 3, 6});
  ASSERT_TRUE(of_three);
  EXPECT_TRUE(of_three->has_majority);
  EXPECT_EQ(of_three->ranks, std::vector<int>{3});
  const auto of_five = find_disagreement(five, {0, 1, 2, 3, 4});
  EXPECT_TRUE(of_five->has_majority);
  EXPECT_EQ(of_five->ranks, (std::vector<int>{1, 3}));
  for (const auto& unclear : {all, two, tie}) {
    std::vector<int> ranks;
    for (size_t i = 0; i < unclear.size(); ++i) ranks.push_back(static_cast<int>(i));
    const auto odd = find_disagreement(unclear, ranks);
    ASSERT_TRUE(odd);
    EXPECT_FALSE(odd->has_majority);
    EXPECT_EQ(odd->ranks, ranks);
  }
}

void wanted(bool holds, const std::string& what) {
  if (!holds) fail(ExitCode::kDamaged, "test", what);
}

void finish_all(Ranks& ranks, int count) {
  for (int r = 0; r < count; ++r) EXPECT_EQ(ranks.end_of(r, seconds(60)), 0) << ranks.said(r);
}

TEST(Replicas, NameRankAndTensor) {
  Ranks ranks(3, true, [](const launch::RankInfo& rank_info) {
    at::set_num_threads(1);
    World world = World::connect(rank_info, {.timeout = seconds(20)});
    Replicas replicas(world, at::kCPU);
    const at::Tensor a = at::arange(100, at::kFloat), b = at::arange(33, at::kBFloat16);
    const std::vector<Replicated> list = {{"a", "master weights", a}, {"b", "first moments", b}};
    wanted(!replicas.compare(list, 10), "no difference");
    if (world.rank() == 2) flip(b, 8);
    const auto found = replicas.compare(list, 20);
    wanted(found.has_value(), "a difference");
    wanted(found->step == 20 && found->last_alike == 10, "the steps");
    wanted(found->tensors.size() == 1 && found->has_majority(), "one tensor");
    wanted(found->tensors[0].parameter == "b" && found->tensors[0].kind == "first moments", "b");
    wanted(found->ranks() == std::vector<int>{2}, "rank 2");
    wanted(!found->hosts[2].empty(), "its host");
    // Two ranks with two troubles: no two ranks are alike, but every tensor has a majority.
    if (world.rank() == 0) flip(a, 99);
    const auto both = replicas.compare(list, 30);
    wanted(both->tensors.size() == 2 && both->has_majority(), "both told apart");
    wanted(both->ranks() == std::vector<int>{0, 2}, "ranks 0 and 2");
    if (world.rank() == 0) flip(a, 99);
    if (world.rank() == 2) flip(b, 8);
    wanted(!replicas.compare(list, 40), "no difference again");
    wanted(replicas.receipt()["checks"] == 4 && replicas.receipt()["differences"] == 2, "counts");
  });
  finish_all(ranks, 3);
}

// Three nodes of two: rows are compared with those of the same shard.
TEST(Replicas, RowsOfShards) {
  Ranks ranks(6, true, [](launch::RankInfo rank_info) {
    at::set_num_threads(1);
    rank_info.nodes = 3;
    rank_info.local_ranks = 2;
    rank_info.node = rank_info.rank / 2;
    rank_info.local_rank = rank_info.rank % 2;
    World world = World::connect(rank_info, {.timeout = seconds(20), .hybrid = true});
    Replicas replicas(world, at::kCPU);
    const at::Tensor rows = at::full({8}, static_cast<float>(world.shard())), all = at::ones({5});
    const std::vector<Replicated> list = {{"rows", "master weights", rows, true},
                                          {"all", "master weights", all, false}};
    wanted(!replicas.compare(list, 1), "no difference");
    if (world.rank() == 3) flip(rows, 17);
    const auto found = replicas.compare(list, 2);
    wanted(found.has_value() && found->tensors.size() == 1, "one difference");
    wanted(found->has_majority() && found->ranks() == std::vector<int>{3}, "rank 3");
    wanted(found->tensors[0].odd.replicas == std::vector<int>({1, 3, 5}), "among three");
  });
  finish_all(ranks, 6);
}

TEST(Replicas, TwoCannotBeToldApart) {
  Ranks ranks(2, true, [](const launch::RankInfo& rank_info) {
    at::set_num_threads(1);
    World world = World::connect(rank_info, {.timeout = seconds(20)});
    Replicas replicas(world, at::kCPU);
    const at::Tensor a = at::ones({10});
    if (world.rank() == 1) flip(a, 3);
    const auto found = replicas.compare({{"a", "master weights", a}}, 5);
    wanted(found.has_value() && !found->has_majority(), "not told apart");
    wanted(found->ranks() == std::vector<int>({0, 1}), "both named");
    wanted(found->text().find("cannot be told apart") != std::string::npos, found->text());
  });
  finish_all(ranks, 2);
}

}  // namespace
}  // namespace octavo::dist
