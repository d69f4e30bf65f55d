#pragma once
// One reader for each kind of log. Each knows its log by its first bytes or lines; what it reads
// goes into Metrics.

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "foreign_logs/metrics.h"

namespace octavo::foreign_logs {

// TensorBoard: records with a length and checksums, a protobuf Event in each.
bool is_event_file(std::string_view head);
void read_event_file(std::string_view bytes, const std::string& name, Metrics& metrics);

// W&B's offline file: LevelDB's log, a protobuf Record in each entry.
bool is_wandb_file(std::string_view head);
void read_wandb_file(std::string_view bytes, const std::string& name, Metrics& metrics);

// A table with a step in one of its columns: W&B's export, Lightning's metrics.csv. `run`: which of
// several that were exported together; "": there is one.
bool is_csv(std::string_view first_line);
void read_csv(const fs::path& path, const std::string& run, Metrics& metrics);

// JSON as Python writes it, with NaN and Infinity.
Json parse_python_json(std::string_view text, const std::string& source, size_t max_bytes);
// transformers' trainer_state.json.
void read_trainer_state(const Json& state, Metrics& metrics);
// A record in each line.
void read_jsonl(const fs::path& path, Metrics& metrics);

// What lines say of each other.
struct TextState {
  int64_t last_step = 0;
  std::optional<double> open_evaluation;  // of the step before the next line's
};

// Text logs, line by line. False: the line is none of that trainer's.
bool read_megatron_line(std::string_view line, TextState& state, Metrics& metrics);
bool read_torchtitan_line(std::string_view line, TextState& state, Metrics& metrics);
bool read_nanogpt_line(std::string_view line, TextState& state, Metrics& metrics);
bool read_nanochat_line(std::string_view line, TextState& state, Metrics& metrics);
bool read_llmc_line(std::string_view line, TextState& state, Metrics& metrics);

// The text log whose reader takes the most lines; none: no reader took one.
std::optional<Log> read_text_log(const fs::path& path, const Options& options);

}  // namespace octavo::foreign_logs
