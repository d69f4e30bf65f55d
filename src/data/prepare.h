#pragma once
// `octavo data prepare`: text and JSONL files to token shards; `octavo data inspect`.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace octavo::data {

namespace fs = std::filesystem;

struct PrepareOptions {
  std::vector<fs::path>
      inputs;  // .txt (one document a file), .jsonl (one a line), folders (recursive)
  fs::path output;
  std::string tokenizer = "bytes";
  std::string text_field = "text";  // of a JSONL row
  double val_fraction =
      0.1;  // the last part of the documents (or of the tokens of a lone document)
  uint64_t shard_tokens = 100'000'000;
  int workers = 0;     // 0: one per core
  bool quiet = false;  // no progress bar
};

struct PrepareResult {
  uint64_t train_tokens = 0, val_tokens = 0, documents = 0;
  uint64_t bytes = 0;                 // of the inputs
  int shards = 0, shards_reused = 0;  // reused: finished by an earlier, interrupted call
  double seconds = 0;
};

// Restartable: finished shards are kept when inputs and options are the same, dataset.json is
// written last.
PrepareResult prepare(const PrepareOptions& options);

// A readable description: sizes, tokenizer, documents, first tokens as text, checksum of every
// shard.
std::string inspect(const fs::path& folder, bool verify_hashes);

}  // namespace octavo::data
