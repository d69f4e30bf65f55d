#include "data/chunks.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "data/dataset_index.h"
#include "data/input_file.h"
#include "data/shard_sequence.h"

namespace octavo::data {
namespace {

constexpr uint64_t kLeastBytes = uint64_t{1} << 20, kMostBytes = uint64_t{256} << 20;
constexpr uint64_t kChunksWanted = 4096;
constexpr uint64_t kFileTokens = uint64_t{1} << 30;  // a chunk's file has a unit more at most
constexpr uint64_t kCopyTokens = uint64_t{1} << 20;

UnitPosition at_line(const std::vector<Source>& sources, UnitPosition at) {
  constexpr uint64_t kStep = 1 << 16;
  if (at.offset == 0) return at;
  const Source& source = sources.at(at.file);
  const auto file = open_input(source);
  for (uint64_t from = at.offset - 1; from < source.bytes; from += kStep) {
    if (from > at.offset + UnitLimits{}.line_bytes)
      fail(ExitCode::kDamaged, "data", source.path.string(), " at byte ", at.offset,
           ": wanted lines of at most ", UnitLimits{}.line_bytes,
           " bytes, found a longer one; split the document");
    const std::string text = file->read(from, kStep);
    const size_t newline = text.find('\n');
    if (newline == std::string::npos) continue;
    const uint64_t begin = from + newline + 1;
    if (begin < source.bytes) return {.file = at.file, .offset = begin, .line = 0};
    break;
  }
  return {.file = at.file + 1};
}

// Calls `take` with every file of the chunks that has tokens from `begin` to `end` of all, and with
// the part of it that they are.
template <typename Take>
void each_file(const std::vector<EncodedChunk>& chunks, uint64_t begin, uint64_t end, Take take) {
  uint64_t at = 0;
  for (const EncodedChunk& chunk : chunks)
    for (const ShardInfo& file : chunk.files) {
      const uint64_t from = std::max(begin, at), to = std::min(end, at + file.tokens);
      if (from < to) take(file, from - at, to - at);
      at += file.tokens;
      if (at >= end) return;
    }
}

}  // namespace

std::vector<Chunk> cut_chunks(const std::vector<Source>& sources) {
  const uint64_t size =
      std::clamp(source_begins(sources).back() / kChunksWanted, kLeastBytes, kMostBytes);
  std::vector<Chunk> chunks;
  Chunk open;
  const auto close = [&](UnitPosition end) {
    open.end = end;
    if (open.bytes > 0) chunks.push_back(open);
    open = {.begin = end};
  };
  for (size_t i = 0; i < sources.size(); ++i) {
    uint64_t at = 0;
    while (sources[i].format == SourceFormat::kJsonl && sources[i].bytes - at > size - open.bytes) {
      at += size - open.bytes;
      open.bytes = size;
      close({.file = i, .offset = at, .line = 0});
    }
    open.bytes += sources[i].bytes - at;
    if (open.bytes >= size) close({.file = i + 1});
  }
  close({.file = sources.size()});
  return chunks;
}

Chunk at_lines(const std::vector<Source>& sources, Chunk chunk) {
  return {at_line(sources, chunk.begin), at_line(sources, chunk.end), chunk.bytes};
}

uint64_t EncodedChunk::tokens() const {
  uint64_t sum = 0;
  for (const ShardInfo& file : files) sum += file.tokens;
  return sum;
}

Json EncodedChunk::to_json() const {
  Json shards = Json::array(), lengths = Json::array();
  for (const ShardInfo& file : files) shards.push_back(shard_to_json(file));
  for (const Run& run : runs) lengths.push_back({run.train, run.tokens});
  return {{"files", std::move(shards)}, {"runs", std::move(lengths)}, {"tally", tally}};
}

EncodedChunk EncodedChunk::from_json(const Json& json, const std::string& source) {
  EncodedChunk chunk;
  for (const Json& file : json_field(json, "files", Json::value_t::array, source))
    chunk.files.push_back(shard_from_json(file, source));
  uint64_t sum = 0;
  for (const Json& run : json_field(json, "runs", Json::value_t::array, source)) {
    if (!run.is_array() || run.size() != 2 || !run[0].is_boolean() || !run[1].is_number_unsigned())
      fail(ExitCode::kDamaged, "data", source, ": wanted runs of tokens, found ", run.dump(),
           "; delete its folder and prepare the data again");
    chunk.runs.push_back({run[0].get<bool>(), run[1].get<uint64_t>()});
    sum += chunk.runs.back().tokens;
  }
  if (sum != chunk.tokens())
    fail(ExitCode::kDamaged, "data", source, ": its runs have ", sum, " tokens, its files ",
         chunk.tokens(), "; delete its folder and prepare the data again");
  chunk.tally = json_field(json, "tally", Json::value_t::object, source);
  return chunk;
}

ChunkWriter::ChunkWriter(fs::path folder, std::string name, ShardKind kind)
    : folder_(std::move(folder)), name_(std::move(name)), kind_(std::move(kind)) {}

void ChunkWriter::add(const EncodedUnit& unit) {
  if (unit.tokens.empty()) return;
  if (!writer_)
    writer_ =
        std::make_unique<ShardWriter>(folder_, str(name_, ".", chunk_.files.size(), ".tok"), kind_);
  const std::span<const int32_t> tokens = unit.tokens;
  uint64_t from = 0;
  for (const uint64_t document : unit.documents) {
    writer_->append(tokens.subspan(from, document - from));
    writer_->begin_document();
    from = document;
  }
  writer_->append(tokens.subspan(from));
  for (const bool train : {true, false}) {
    const uint64_t count = train ? unit.train_tokens : tokens.size() - unit.train_tokens;
    if (count == 0) continue;
    if (chunk_.runs.empty() || chunk_.runs.back().train != train) chunk_.runs.push_back({train, 0});
    chunk_.runs.back().tokens += count;
  }
  if (writer_->tokens() >= kFileTokens) close();
}

void ChunkWriter::close() {
  chunk_.files.push_back(writer_->finish());
  writer_.reset();
}

EncodedChunk ChunkWriter::finish() {
  if (writer_) close();
  return std::move(chunk_);
}

std::vector<PlannedShard> plan_shards(const std::vector<EncodedChunk>& chunks,
                                      uint64_t shard_tokens) {
  std::vector<PlannedShard> shards;
  std::map<std::string, uint64_t> counts;
  uint64_t at = 0;
  bool open = false;
  for (const EncodedChunk& chunk : chunks)
    for (const EncodedChunk::Run& run : chunk.runs) {
      const std::string split = run.train ? "train" : "val";
      const uint64_t run_end = at + run.tokens;
      while (at < run_end) {
        if (!open || shards.back().split != split)
          shards.push_back({split, shard_name(split, counts[split]++), at, at});
        PlannedShard& shard = shards.back();
        at = shard.end = std::min(run_end, shard.begin + shard_tokens);
        open = shard.end - shard.begin < shard_tokens;
      }
    }
  return shards;
}

ShardInfo write_planned(const PlannedShard& planned, const std::vector<EncodedChunk>& chunks,
                        const fs::path& from, const fs::path& folder, const ShardKind& kind) {
  ShardWriter writer(folder, planned.name, kind);
  std::vector<int32_t> tokens;
  each_file(chunks, planned.begin, planned.end,
            [&](const ShardInfo& info, uint64_t at, uint64_t end) {
              const Shard file(from, info, kind, nullptr);
              const auto documents = file.documents();
              auto document = std::lower_bound(documents.begin(), documents.end(), at);
              while (at < end) {
                const uint64_t stop = std::min(end, at + kCopyTokens);
                tokens.resize(stop - at);
                file.read(at, tokens);
                std::span<const int32_t> rest = tokens;
                for (; document != documents.end() && *document < stop; ++document) {
                  writer.append(rest.first(*document - at));
                  writer.begin_document();
                  rest = rest.subspan(*document - at);
                  at = *document;
                }
                writer.append(rest);
                at = stop;
              }
            });
  return writer.finish();
}

void each_unit(const EncodedChunk& chunk, const fs::path& from, const ShardKind& kind,
               const std::function<void(const EncodedUnit&)>& take) {
  uint64_t run_end = 0, position = 0;  // of the chunk's tokens
  size_t run = 0;
  for (const ShardInfo& info : chunk.files) {
    const Shard file(from, info, kind, nullptr);
    const auto documents = file.documents();
    for (size_t first = 0; first < documents.size();) {
      while (position + documents[first] >= run_end) run_end += chunk.runs.at(run++).tokens;
      EncodedUnit unit;
      size_t last = first;  // documents of one run, about kCopyTokens
      while (last < documents.size() && position + documents[last] < run_end &&
             documents[last] - documents[first] < kCopyTokens)
        unit.documents.push_back(documents[last++] - documents[first]);
      const uint64_t end = last < documents.size() ? documents[last] : file.tokens();
      unit.tokens.resize(end - documents[first]);
      file.read(documents[first], unit.tokens);
      unit.train_tokens = chunk.runs.at(run - 1).train ? unit.tokens.size() : 0;
      take(unit);
      first = last;
    }
    position += file.tokens();
  }
}

}  // namespace octavo::data
