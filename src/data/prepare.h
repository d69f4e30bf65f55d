#pragma once
// `octavo data prepare`: text and JSONL files to token shards; `octavo data inspect`.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace octavo::data {

namespace fs = std::filesystem;

struct PrepareOptions {
  // Text files (one document each, any extension), .jsonl and .ndjson (one a line), folders
  // (recursive, sorted; hidden folders, build, binary and empty files are skipped, and said).
  std::vector<fs::path> inputs;
  fs::path output;
  std::string tokenizer = "bytes";
  std::string text_field = "text";  // of a JSONL row
  // Validation is the documents that start in this last part of the input bytes. A document is
  // never cut, except the last of all (a lone one, say) when the part begins inside it: then it is
  // cut between two tokens. 0: no validation.
  double val_fraction = 0.1;
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

// Every document but the last of all ends with the tokenizer's end_of_document(). The output
// depends on inputs and options only, never on the number of workers. Restartable after any
// interruption: finished shards are kept when inputs and options are the same, dataset.json is
// written last. A folder that holds another data set is refused.
PrepareResult prepare(const PrepareOptions& options);

// A readable description: sizes, tokenizer, documents, first tokens as text, checksum of every
// shard. With `verify_hashes` every block is read and checked; damage is thrown, naming every
// damaged shard.
std::string inspect(const fs::path& folder, bool verify_hashes);

}  // namespace octavo::data
