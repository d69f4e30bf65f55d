#pragma once
// Inputs cut into chunks that processes claim one by one, and the tokens of a chunk until they are
// written into shards. How the inputs are cut never shows in the shards.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/encode.h"
#include "data/shard.h"
#include "data/units.h"

namespace octavo::data {

struct Chunk {
  // Inside a JSONL file: its lines that begin in between.
  UnitPosition begin, end;
  uint64_t bytes = 0;
};

// Whole files, and parts of JSONL files; from 1 to 256 MiB each, as there is more to do.
std::vector<Chunk> cut_chunks(const std::vector<Source>& sources);

// With begin and end where lines begin.
Chunk at_lines(const std::vector<Source>& sources, Chunk chunk);

// The tokens of a chunk, in shard files of the work folder.
struct EncodedChunk {
  struct Run {
    bool train = false;
    uint64_t tokens = 0;
  };
  std::vector<ShardInfo> files;
  std::vector<Run> runs;  // training, validation, training, …
  Json tally;

  uint64_t tokens() const;
  Json to_json() const;
  static EncodedChunk from_json(const Json& json, const std::string& source);
};

class ChunkWriter {
 public:
  // `name`: what its files begin with.
  ChunkWriter(fs::path folder, std::string name, ShardKind kind);
  void add(const EncodedUnit& unit);
  EncodedChunk finish();

 private:
  void close();

  fs::path folder_;
  std::string name_;
  ShardKind kind_;
  std::unique_ptr<ShardWriter> writer_;
  EncodedChunk chunk_;
};

// A shard of plain tokens: the part of all chunks' tokens from `begin` to `end`.
struct PlannedShard {
  std::string split, name;
  uint64_t begin = 0, end = 0;
};

// As PlainOutput cuts (token_output.h).
std::vector<PlannedShard> plan_shards(const std::vector<EncodedChunk>& chunks,
                                      uint64_t shard_tokens);

// Writes the shard into `folder` from the chunks' files in `from`.
ShardInfo write_planned(const PlannedShard& shard, const std::vector<EncodedChunk>& chunks,
                        const fs::path& from, const fs::path& folder, const ShardKind& kind);

// Calls `take` with all documents of a chunk in order, whole ones in each unit.
void each_unit(const EncodedChunk& chunk, const fs::path& from, const ShardKind& kind,
               const std::function<void(const EncodedUnit&)>& take);

}  // namespace octavo::data
