#pragma once
// Token shards on disk and the loader over them. No torch here: the loader fills plain buffers.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/settings.h"
#include "data/remote_files.h"
#include "data/sampler.h"
#include "data/shard.h"
#include "data/token_stream.h"

namespace octavo::data {

namespace fs = std::filesystem;

class MixedTokens;

// One prepared data set (a folder with dataset.json and shard files, here or at s3://…), one split
// of it ("train", "val"). `cache`: for parts of remote shards. Opening reads the index only. read()
// maps shards when they are first touched, and stream() reads blocks; every block is checked
// against its hash before its first token is handed out.
class TokenData {
 public:
  // Shards mapped at one time; the least recently used is unmapped for a new one.
  static constexpr int kMaxMappedShards = 256;
  static std::shared_ptr<TokenData> open(const fs::path& folder, const std::string& split,
                                         int max_mapped_shards = kMaxMappedShards,
                                         const LocalCache& cache = {});
  // "train" and "val" by one reading of the index, which has a line for each shard and may lie far
  // away; val: null when it is not there or has no token.
  struct Splits {
    std::shared_ptr<TokenData> train, val;
  };
  static Splits open_splits(const fs::path& folder, const LocalCache& cache = {});
  virtual ~TokenData() = default;
  virtual uint64_t tokens() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual std::string tokenizer_name() const = 0;  // what made the shards
  virtual std::string tokenizer_fingerprint() const = 0;
  virtual std::string fingerprint() const = 0;  // of the data set: kept in checkpoints
  // Packed data: tokens in a sample, which `read` gives with the flags of shard.h. 0: plain tokens.
  virtual int64_t sample_length() const { return 0; }
  // Of rows with answers: the chat template that they went through (never auto); else nothing.
  virtual std::optional<config::ChatTemplate> chat_template() const { return std::nullopt; }
  // Of several sources with weights (mixed_tokens.h); else null.
  virtual const MixedTokens* mixed() const { return nullptr; }
  // Copies tokens [begin, begin + out.size()) of the concatenated split. Thread-safe.
  // Damaged tokens are an error (DamagedShard) each time, and are remembered.
  virtual void read(uint64_t begin, std::span<int32_t> out) const = 0;
  // For a reader that comes back to the same blocks (order.h). Must not outlive the data.
  virtual std::unique_ptr<TokenStream> stream(const StreamOptions& options) const;
  virtual uint64_t token_bytes() const { return sizeof(int32_t); }  // of one, on disk
  virtual bool is_remote() const { return false; }  // a read may take tens of milliseconds
  // What was found damaged so far, and how long the checks took.
  virtual std::vector<DamagedRange> damage() const { return {}; }
  virtual size_t damage_count() const { return 0; }  // asked in every step: waits for nobody
  virtual double check_seconds() const { return 0; }
};

// Plain samples have `length` + 1 tokens (inputs and targets overlap by one): sample i starts at
// token i * length.
uint64_t sample_count(uint64_t tokens, int64_t length);
// Of either kind of data. Packed data has samples of one length only: another is refused.
uint64_t sample_count(const TokenData& data, int64_t length);
// Of a new run, with steps of so many samples (order.h).
Order order_for(const TokenData& data, int64_t length, uint64_t step_samples);

struct Batch {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> inputs;   // rows x length
  std::vector<int32_t> targets;  // -1: not in the loss
  // Where documents begin in the rows laid end to end, ascending; each row's first position is one.
  std::vector<int32_t> starts;
  // The numbers of the samples in it, row by row; short of `rows` in the last batches of a run.
  std::vector<uint64_t> samples = {};
  int64_t loss_tokens = 0;  // targets that are not -1
  // Of a mixture: the source of each row, and the loss tokens of each source. Else empty.
  std::vector<int32_t> sources = {}, source_tokens = {};
  int64_t left_out = 0;  // rows left out of the loss because their tokens are damaged
  Position after;        // where to resume once this batch has been trained on
};

// From sample `at` of the run on, a sample is cut into sequences of `length` tokens, which divides
// it.
struct LengthStage {
  uint64_t at = 0;
  int64_t length = 0;
  bool operator==(const LengthStage&) const = default;
};

// Reads ahead on its own thread, and blocks of an order in two levels on more threads.
// Deterministic: batch k depends on (data, seed, position) only.
class Loader {
 public:
  struct Options {
    int64_t rows = 1;  // per call to next(), on this rank
    int64_t length = 1024;
    uint64_t seed = 0;
    bool shuffle = true;
    int rank = 0, world = 1;  // rank r takes rows [r * rows, (r + 1) * rows) of each global batch
    // The position behind the last sample. A batch that reaches beyond it keeps its shape: rows
    // without a sample have no loss tokens. 0: there is no end.
    uint64_t end = 0;
    int read_ahead = 4;
    // Samples with damaged tokens: none of theirs is in the loss. Their places in the order stay,
    // so that everything else is trained on as it would have been. False: they are an error.
    bool skip_damaged = false;
    // Of plain data: the token behind which another document begins. -1: a sample is one sequence.
    int32_t document_end = -1;
    // Of plain data: sequences in a sample, from a position on. Before the first: one.
    std::vector<LengthStage> lengths = {};
  };
  Loader(std::shared_ptr<const TokenData> data, const Options& options, const Position& start);
  ~Loader();
  Batch next();                 // rethrows what the reading thread met; not to be asked at the end
  double wait_seconds() const;  // time next() spent waiting: data starvation
  uint64_t samples_per_epoch() const;
  uint64_t end() const;         // as the options say
  uint64_t bytes_read() const;  // from files, of an order in two levels

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo::data
