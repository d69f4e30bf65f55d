#pragma once
// `octavo data prepare`: text and rows to token shards; `octavo data inspect`.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/settings.h"

namespace octavo::data {

namespace fs = std::filesystem;

// One of the data sets that are prepared together: so many of the inputs and of val_inputs, in
// their order.
struct InputSet {
  std::string name;
  size_t inputs = 0, val_inputs = 0;
  std::string val_split;  // what val_inputs are, when they are a split
};

struct PrepareOptions {
  // Text files (one document each, any extension), .jsonl and .ndjson (one a line), .json (an
  // array, or values one behind the other), folders (recursive, sorted; hidden folders, build,
  // binary and empty files are skipped, and said).
  std::vector<fs::path> inputs;
  std::vector<fs::path> val_inputs;  // all of it validation
  std::vector<InputSet> sets;        // none: all inputs are one data set
  fs::path output;
  std::string tokenizer = "bytes";
  // A text that spells a special token ("<|endoftext|>") means it. False: text is text.
  bool special_tokens_in_text = false;
  // What the fields of rows mean; "" (and "text"): as the first row shows.
  std::string text_field = "text", prompt_field, response_field, messages_field;
  // Of rows with answers: prompt and response, or chat messages.
  config::ChatTemplate chat_template = config::ChatTemplate::kAuto;
  config::TrainOn train_on = config::TrainOn::kAnswer;
  bool packing = true;
  uint64_t max_seq_length = 1024;
  // Validation of a data set without val_inputs is the documents that start in this last part of
  // its bytes. A document is never cut, except the set's last (a lone one, say) when the part
  // begins inside it: then it is cut between two tokens. 0: no validation.
  double val_fraction = 0.1;
  bool val_fraction_given = false;  // by the user: `extend` refuses one that it cannot follow
  // More rows than this share left out is an error: rows without an answer, or whose answer begins
  // behind max_seq_length.
  double max_skipped_rows = 0.05;
  uint64_t shard_tokens = 100'000'000;
  bool deduplicate = false;  // documents that came before are left out
  bool shared = false;       // other processes with the same options may share the work
  bool extend = false;       // the output is a finished data set, which gets these documents too
  bool after_end = false;    // the tokens begin with an end of document (extend.h)
  // What stands in the first `known_files` lines of this sources.jsonl is left out (extend.h).
  fs::path known_list;
  uint64_t known_files = 0;
  int workers = 0;     // 0: one per core
  bool quiet = false;  // no progress bar
};

// `inputs` may be names of data sets: see splits.h.
PrepareOptions prepare_options(const config::Settings& settings,
                               const std::vector<std::string>& inputs);

struct PrepareResult {
  uint64_t train_tokens = 0, val_tokens = 0, documents = 0;
  uint64_t duplicates = 0;                       // documents that were left out
  uint64_t bytes = 0;                            // of the inputs
  uint64_t sample_length = 0;                    // packed: tokens in a sample
  uint64_t loss_tokens = 0, padding_tokens = 0;  // of packed samples
  int shards = 0, shards_reused = 0;             // reused: finished by an earlier, interrupted call
  double seconds = 0;
};

// A document begins and ends as the tokenizer's own post-processor says (Llama-3's
// <|begin_of_text|>); every one but the last of all ends with end_of_document(). The output
// depends on inputs and options only, never on the number of workers. Restartable after any
// interruption: finished shards are kept when inputs and options are the same, dataset.json is
// written last. A folder that holds another data set is refused.
//
// Rows with answers are packed: every sample is max_seq_length tokens of whole documents that do
// not see each other, with a mark at each loss token.
PrepareResult prepare(const PrepareOptions& options);

// Whether the rows have answers, so that the data depends on max_seq_length and the template.
bool will_pack(const PrepareOptions& options);

// A readable description: sizes, tokenizer, documents, first tokens as text, checksum of every
// shard. With `verify_hashes` every block is read and checked; damage is thrown, naming every
// damaged shard.
std::string inspect(const fs::path& folder, bool verify_hashes);

}  // namespace octavo::data
