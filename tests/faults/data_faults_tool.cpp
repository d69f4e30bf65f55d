// Token shards with flipped bits, ids beyond the vocabulary, and missing files, read as training
// reads them: through a loader. Driven by tests/faults/data.py.
// usage: data_faults_tool flips FOLDER COUNT | skip FOLDER COUNT | vocabulary FOLDER
// FOLDER: prepared data with a split "train" of several shards. Prints one JSON line.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "data/dataset_index.h"
#include "data/token_data.h"

namespace octavo::data {
namespace {

constexpr int64_t kLength = 64, kRows = 8;

struct BitPosition {
  std::string shard;
  uint64_t byte = 0;
  int bit = 0;
};

void flip(const fs::path& folder, const BitPosition& place) {
  std::fstream file(folder / place.shard, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(place.byte));
  const char byte = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(place.byte));
  file.put(static_cast<char>(byte ^ (1 << place.bit)));
  if (!file.flush()) fail(ExitCode::kEnvironment, "faults", "cannot flip a bit of ", place.shard);
}

// By turns in a header, in tokens, in the starts of documents and in the hashes of blocks.
BitPosition draw(const DatasetIndex& index, int number, std::mt19937_64& random,
                 std::string& kind) {
  const auto& shards = index.splits.at("train").shards;
  const ShardInfo& shard = shards[random() % shards.size()];
  const uint64_t tokens = shard.tokens * index.kind.token_bytes();
  const uint64_t documents = 8 * shard.documents;
  const uint64_t tables = kShardHeaderBytes + (tokens + 7) / 8 * 8;
  const std::map<std::string, std::pair<uint64_t, uint64_t>> kinds = {
      {"boundaries", {tables, documents}},
      {"hashes", {tables + documents, shard.bytes - tables - documents}},
      {"header", {0, kShardHeaderBytes}},
      {"tokens", {kShardHeaderBytes, tokens}}};
  auto chosen = kinds.begin();
  std::advance(chosen, number % 4);
  if (chosen->second.second == 0) chosen = kinds.find("tokens");  // no document starts here
  kind = chosen->first;
  const auto [begin, size] = chosen->second;
  return {shard.name, begin + random() % size, static_cast<int>(random() % 8)};
}

// One epoch, as `options` want it.
std::vector<Batch> read_epoch(const fs::path& folder, Loader::Options options,
                              uint64_t from_batch = 0) {
  const auto data = TokenData::open(folder, "train");
  options.rows = kRows;
  options.length = kLength;
  const auto world = static_cast<uint64_t>(options.world);
  const uint64_t batches = sample_count(*data, kLength) / (kRows * world);
  Loader loader(data, options, {from_batch * kRows * world});
  std::vector<Batch> read;
  for (uint64_t i = from_batch; i < batches; ++i) read.push_back(loader.next());
  return read;
}

bool same(const Batch& a, const Batch& b) {
  return a.inputs == b.inputs && a.targets == b.targets && a.after.samples == b.after.samples;
}

// Rows that are neither the wanted ones nor without loss tokens; `left_out` counts those.
int wrong_rows(const Batch& found, const Batch& wanted, int64_t& left_out) {
  int wrong = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto part = [&](const std::vector<int32_t>& all) {
      return std::span(all).subspan(static_cast<size_t>(row * kLength), kLength);
    };
    const auto inputs = part(found.inputs), targets = part(found.targets);
    if (std::ranges::equal(inputs, part(wanted.inputs)) &&
        std::ranges::equal(targets, part(wanted.targets)))
      continue;
    if (std::ranges::all_of(targets, [](int32_t id) { return id == -1; }))
      ++left_out;
    else
      ++wrong;
  }
  return wrong;
}

// Until the damage is met: every batch before it must be the right one.
std::string stop_problem(const fs::path& folder, const BitPosition& place,
                         const std::vector<Batch>& wanted, uint64_t seed) {
  Loader loader(TokenData::open(folder, "train"), {.rows = kRows, .length = kLength, .seed = seed},
                {});
  for (const Batch& batch : wanted) {
    try {
      if (!same(loader.next(), batch)) return "a wrong token was handed out";
    } catch (const Error& error) {
      const std::string message = error.what();
      if (error.code() != ExitCode::kDamaged) return "wanted exit code 5: " + message;
      return message.find(place.shard) == std::string::npos ? "the shard is not named: " + message
                                                            : "";
    }
  }
  return "the damage was not found";
}

int try_flips(const fs::path& folder, int count) {
  const DatasetIndex index = read_index(folder);
  std::mt19937_64 random(500);
  constexpr uint64_t kSeed = 3;
  const auto wanted = read_epoch(folder, {.seed = kSeed});
  std::map<std::string, int> tried;
  int found = 0;
  for (int i = 0; i < count; ++i) {
    std::string kind;
    const BitPosition place = draw(index, i, random, kind);
    flip(folder, place);
    const std::string problem = stop_problem(folder, place, wanted, kSeed);
    flip(folder, place);
    ++tried[kind];
    found += problem.empty() ? 1 : 0;
    if (!problem.empty())
      std::fprintf(stderr, "%s byte %llu bit %d: %s\n", place.shard.c_str(),
                   static_cast<unsigned long long>(place.byte), place.bit, problem.c_str());
  }
  std::printf("%s\n", Json{{"tried", count}, {"found", found}, {"of", tried}}.dump().c_str());
  return found == count ? 0 : 1;
}

// With data_damage skip: right rows or nothing, the same again, from the middle, and on two ranks.
std::string skip_problem(const fs::path& folder, const std::vector<Batch>& wanted,
                         const Loader::Options& options) {
  const auto first = read_epoch(folder, options);
  int64_t left_out = 0, counted = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wrong_rows(first[i], wanted[i], left_out) > 0) return "a wrong token was handed out";
    counted += first[i].left_out;
  }
  if (left_out == 0) return "nothing was left out";
  if (left_out != counted) return str(counted, " rows were counted, ", left_out, " left out");
  const uint64_t middle = wanted.size() / 2;
  const auto rest = read_epoch(folder, options, middle);
  for (size_t i = 0; i < rest.size(); ++i)
    if (!same(rest[i], first[middle + i])) return "a resumed loader reads otherwise";
  Loader::Options second = options;
  second.rank = 1;
  second.world = 2;
  const auto half = read_epoch(folder, second);
  for (size_t i = 0; i < half.size(); ++i)
    if (half[i].targets != first[2 * i + 1].targets)
      return "the second of two ranks reads otherwise";
  return "";
}

int try_skips(const fs::path& folder, int count) {
  const DatasetIndex index = read_index(folder);
  std::mt19937_64 random(20);
  const Loader::Options options{.seed = 5, .skip_damaged = true};
  const auto wanted = read_epoch(folder, {.seed = 5});
  int survived = 0;
  for (int i = 0; i < count; ++i) {
    std::string kind;
    const BitPosition place = draw(index, i, random, kind);
    flip(folder, place);
    std::string problem;
    try {
      problem = skip_problem(folder, wanted, options);
    } catch (const Error& error) {
      problem = error.what();
    }
    flip(folder, place);
    survived += problem.empty() ? 1 : 0;
    if (!problem.empty()) std::fprintf(stderr, "skip, %s: %s\n", kind.c_str(), problem.c_str());
  }
  std::printf("%s\n", Json{{"tried", count}, {"survived", survived}}.dump().c_str());
  return survived == count ? 0 : 1;
}

// All hashes are right, as a faulty writer would leave it; an id is beyond the vocabulary.
void forge_id(const fs::path& folder, DatasetIndex& index, uint64_t position, uint16_t id) {
  ShardInfo& info = index.splits.at("train").shards[1];
  const fs::path path = folder / info.name;
  std::string content = read_file(path, size_t{1} << 30);
  ShardHeader header{};
  std::memcpy(&header, content.data(), sizeof header);
  const size_t data_bytes = header.tokens * header.token_bytes;
  std::memcpy(content.data() + kShardHeaderBytes + position * sizeof id, &id, sizeof id);
  const size_t tables = kShardHeaderBytes + (data_bytes + 7) / 8 * 8;
  const uint64_t block = XXH3_64bits(content.data() + kShardHeaderBytes,
                                     std::min<size_t>(data_bytes, kShardBlockBytes));
  std::memcpy(content.data() + tables + 8 * header.documents, &block, sizeof block);
  const size_t blocks = (data_bytes + kShardBlockBytes - 1) / kShardBlockBytes;
  const uint64_t page = XXH3_64bits(content.data() + tables + 8 * header.documents,
                                    8 * std::min<size_t>(blocks, kHashesInPage));
  std::memcpy(content.data() + kPageHashesOffset, &page, sizeof page);
  header.tables_hash = XXH3_64bits(content.data() + kShardHeaderBytes + data_bytes,
                                   content.size() - kShardHeaderBytes - data_bytes);
  header.header_hash = 0;
  std::memcpy(content.data(), &header, sizeof header);
  header.header_hash = XXH3_64bits(content.data(), kShardHeaderBytes);
  std::memcpy(content.data(), &header, sizeof header);
  std::ofstream(path, std::ios::binary) << content;
  const std::string hash =
      hash_bytes(std::as_bytes(std::span(content.data(), size_t{kShardHeaderBytes})));
  std::copy(hash.begin(), hash.end(), info.hash.begin());
  write_index(folder, index);
}

int try_vocabulary(const fs::path& folder) {
  DatasetIndex index = read_index(folder);
  constexpr uint64_t kPosition = 777;
  forge_id(folder, index, kPosition, static_cast<uint16_t>(index.kind.vocab_size));
  std::string message = "nothing was refused";
  try {
    read_epoch(folder, {});
  } catch (const Error& error) {
    message = error.what();
  }
  const bool named = message.find(str("token ", kPosition, " is beyond")) != std::string::npos &&
                     message.find(index.splits.at("train").shards[1].name) != std::string::npos;
  if (!named) std::fprintf(stderr, "wanted shard and position, found: %s\n", message.c_str());
  std::printf("%s\n", Json{{"tried", 1}, {"survived", named ? 1 : 0}}.dump().c_str());
  return named ? 0 : 1;
}

}  // namespace
}  // namespace octavo::data

int main(int argc, char** argv) {
  using namespace octavo;
  const std::vector<std::string> args(argv + 1, argv + argc);
  set_log_level(LogLevel::kError);
  try {
    if (args.size() == 3 && args[0] == "flips") return data::try_flips(args[1], std::stoi(args[2]));
    if (args.size() == 3 && args[0] == "skip") return data::try_skips(args[1], std::stoi(args[2]));
    if (args.size() == 2 && args[0] == "vocabulary") return data::try_vocabulary(args[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "unknown arguments; see data_faults_tool.cpp\n");
  return 2;
}
