#pragma once
// TokenStream over the shards of a data set (token_data.cpp).

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/shard_reader.h"
#include "data/token_stream.h"

namespace octavo::data {

// Where the shards of a split are; outlives the stream.
struct SplitShards {
  fs::path folder;
  ShardKind kind;
  std::vector<ShardInfo> shards;  // none is empty
  std::vector<uint64_t> begins;   // of each shard's first token in the split
  uint64_t tokens = 0;
  std::shared_ptr<RemoteFiles> remote = nullptr;  // that has them; null: they are files here

  size_t shard_of(uint64_t token) const;
  ShardFile file(size_t number) const {
    return {join_inside(folder, shards[number].name), shards[number], kind};
  }
};

class BlockStream final : public TokenStream {
 public:
  // `on_damage` is told of every damage, from any thread; `on_check` how long checks took.
  BlockStream(const SplitShards& split, const StreamOptions& options,
              std::function<void(size_t shard, const DamagedShard&)> on_damage,
              std::function<void(uint64_t nanoseconds)> on_check);
  ~BlockStream() override;
  void read(uint64_t begin, std::span<int32_t> out) override;
  bool expect(uint64_t begin) override;
  uint64_t bytes_read() const override;

 private:
  struct Damage {
    uint64_t begin, end;  // tokens of the split
    DamagedShard error;
  };
  struct Content {
    Bytes tokens;
    size_t filled = 0;  // while it is loaded
    std::vector<Damage> damage;
  };
  // Blocks that were read in advance stay until they are used.
  enum class State { kQueued, kLoading, kUnused, kUsed };
  struct Block {
    State state = State::kQueued;
    std::shared_ptr<const Content> content;
    std::exception_ptr error;           // what is no damage: permission denied, say
    std::list<uint64_t>::iterator use;  // of a used one
  };

  std::shared_ptr<const Content> block(uint64_t number);
  void add(uint64_t number);
  void load(uint64_t number, std::unique_lock<std::mutex>& lock);
  void make_room();
  void remember_dropped(uint64_t number);
  Content load_content(uint64_t number);
  void add_part(size_t shard, uint64_t begin, uint64_t end, size_t whole, Content& content);
  BlockHashes known_hashes(size_t shard);
  void keep_hashes(size_t shard, const BlockHashes& hashes);
  void run();

  const SplitShards& split_;
  StreamOptions options_;
  std::function<void(size_t, const DamagedShard&)> on_damage_;
  std::function<void(uint64_t)> on_check_;

  mutable std::mutex mutex_;
  std::condition_variable ready_, wanted_;
  std::unordered_map<uint64_t, Block> blocks_;
  std::list<uint64_t> uses_;    // used blocks, most recently used first
  std::deque<uint64_t> queue_;  // may name blocks that are no longer queued
  uint64_t unused_ = 0;         // blocks that are queued, loading or not used yet
  uint64_t capacity_;           // in blocks: begins as cached_blocks
  std::unordered_map<uint64_t, uint64_t> dropped_;   // the last blocks that had to leave, and…
  std::deque<std::pair<uint64_t, uint64_t>> drops_;  // …in which drop; the oldest first
  uint64_t drops_made_ = 0;
  double return_share_ = 0;  // of the blocks added lately, those that were in dropped_
  bool said_ = false;        // that the cache is too small
  std::unordered_map<size_t, BlockHashes> hashes_;
  uint64_t bytes_read_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace octavo::data
