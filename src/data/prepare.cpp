#include "data/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "data/dataset_index.h"
#include "data/encode.h"
#include "data/input_sets.h"
#include "data/journal.h"
#include "data/row_plan.h"
#include "data/sources.h"
#include "data/token_output.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {
namespace {

// One preparation per folder at a time; the kernel lets go of the lock when the process dies. Who
// comes second waits: trials of a sweep that begin together all want the same data.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    bool said = false;
    if (fd_ < 0)
      fail(ExitCode::kEnvironment, "data", "wanted to open ", folder.string(), ": ",
           std::strerror(errno));
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error != EWOULDBLOCK && error != EINTR) {
        ::close(fd_);
        fail(ExitCode::kEnvironment, "data", "wanted ", folder.string(),
             " for this process alone: ", std::strerror(error));
      }
      if (!said) log_info(str("data: another process prepares ", folder.string(), "; waiting"));
      said = true;
      if (stop_requested()) {
        ::close(fd_);
        fail(ExitCode::kStopped, "data", "stopped by ", stop_reason(), " while another process ",
             "prepared ", folder.string());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  ~FolderLock() { ::close(fd_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

void check(const PrepareOptions& options) {
  if (options.inputs.empty() || options.output.empty())
    fail(ExitCode::kUsage, "data", "wanted at least one input and an output folder, found ",
         options.inputs.size(), " inputs and output '", options.output.string(), "'; name them");
  if (!(options.val_fraction >= 0 && options.val_fraction < 1))
    fail(ExitCode::kUsage, "data", "wanted 0 <= val_fraction < 1, found ", options.val_fraction,
         "; 0.1 keeps the last tenth for validation");
  if (options.shard_tokens < 1 || options.shard_tokens > (uint64_t{1} << 40))
    fail(ExitCode::kUsage, "data", "wanted shard_tokens from 1 to 2^40, found ",
         options.shard_tokens, "; the default is 100000000");
  if (options.max_seq_length < 1 || options.max_seq_length > (uint64_t{1} << 30))
    fail(ExitCode::kUsage, "data", "wanted max_seq_length from 1 to 2^30, found ",
         options.max_seq_length, "; set it to the model's context");
  if (options.workers < 0 || options.workers > 4096)
    fail(ExitCode::kUsage, "data", "wanted 0 to 4096 workers, found ", options.workers,
         "; 0 takes one per core");
}

// Where tokens come from and what becomes of them, once the inputs have been looked at.
struct Inputs {
  std::vector<Source> sources;
  size_t first_val = 0;  // the sources from here on are validation; sources.size(): none is
  RowPlan rows;
};

Inputs find_inputs(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer) {
  Inputs inputs;
  const size_t first_val = list_set_sources(options, inputs.sources);
  if (first_val == 0)
    fail(ExitCode::kUsage, "data", "wanted text or rows (JSONL, JSON), found none in ",
         options.inputs.size(), " inputs; name files or folders with text");
  const auto middle = inputs.sources.begin() + static_cast<std::ptrdiff_t>(first_val);
  std::vector<Source> validation(middle, inputs.sources.end());
  inputs.sources.erase(middle, inputs.sources.end());
  inputs.rows = plan_rows(options, tokenizer, inputs.sources);
  if (inputs.rows.format.has_answers()) {
    drop_texts(inputs.sources);
    drop_texts(validation);
  }
  inputs.first_val = inputs.sources.size();
  for (Source& source : validation) inputs.sources.push_back(std::move(source));
  return inputs;
}

// Ids that earlier versions made otherwise: a data set of theirs is found again only where its ids
// are the same.
void note_documents(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                    const Inputs& inputs, Json& json) {
  const bool text = !inputs.rows.format.has_answers();
  const bool begins = inputs.rows.chat_template == ChatTemplate::kAlpaca ||
                      inputs.rows.chat_template == ChatTemplate::kNone;
  if (!tokenizer.begin_ids().empty() && text) json["begin_ids"] = tokenizer.begin_ids();
  if (!tokenizer.end_ids().empty() && (text || begins)) json["end_ids"] = tokenizer.end_ids();
  if (text && !tokenizer.special_tokens().empty() && !options.special_tokens_in_text)
    json["special_tokens"] = "text";
}

// Of each data set its training files, and whether it has others to validate on.
Json held_out(const PrepareOptions& options, const Inputs& inputs) {
  Json sets = Json::array();
  for (const InputSet& set : sets_of(options)) sets.push_back({0, set.val_inputs > 0});
  for (size_t i = 0; i < inputs.first_val; ++i) {
    Json& files = sets[inputs.sources[i].set][0];
    files = files.get<uint64_t>() + 1;
  }
  return sets;
}

// What the token stream and its cutting into shards depend on.
Json plan_options(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                  const Inputs& inputs) {
  Json json = {{"text_field", options.text_field},
               {"val_fraction", options.val_fraction},
               {"shard_tokens", options.shard_tokens}};
  if (inputs.first_val < inputs.sources.size())
    json["val_files"] = inputs.sources.size() - inputs.first_val;
  note_documents(options, tokenizer, inputs, json);
  if (holds_out_by_set(options)) json["held_out"] = held_out(options, inputs);
  if (!inputs.rows.format.has_answers()) return json;
  json.erase("text_field");
  json["rows"] = inputs.rows.format.name;
  json["chat_template"] = stored_name(inputs.rows.chat_template);
  if (inputs.rows.own) json["own_template"] = inputs.rows.own->fingerprint();
  json["train_on"] = name_of(options.train_on);
  json["packing"] = options.packing;
  json["sample_length"] = options.max_seq_length;
  return json;
}

DatasetIndex make_index(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                        const Inputs& inputs) {
  const std::vector<Source>& sources = inputs.sources;
  DatasetIndex index;
  index.tokenizer_name = tokenizer.name();
  index.kind = {static_cast<uint64_t>(tokenizer.vocab_size()), tokenizer.fingerprint(),
                inputs.rows.format.has_answers() ? options.max_seq_length : 0};
  index.options = plan_options(options, tokenizer, inputs);
  index.source_files = sources.size();
  index.source_bytes = source_begins(sources).back();
  index.sources_fingerprint = sources_fingerprint(sources);
  const std::string plan =
      str(index.kind.tokenizer_fingerprint, ' ', index.kind.vocab_size, ' ',
          tokenizer.end_of_document(), ' ', index.options.dump(), ' ', index.sources_fingerprint);
  index.plan = hash_bytes(std::as_bytes(std::span(plan.data(), plan.size())));
  return index;
}

// The finished data set in `folder` when it is this one; nothing when there is none or it lost
// shards.
std::optional<DatasetIndex> find_finished(const fs::path& folder, const std::string& plan) {
  if (!fs::exists(folder / kIndexName)) return std::nullopt;
  DatasetIndex index;
  try {
    index = read_index(folder);
  } catch (const Error& error) {
    fail(error.code(), "data",
         "the output folder holds a data set that cannot be read: ", error.what(), "; delete ",
         folder.string(), " to prepare it anew");
  }
  if (index.plan != plan)
    fail(ExitCode::kUsage, "data", folder.string(),
         " holds a data set of other inputs, options or tokenizer (", index.tokenizer_name,
         "); name another output, or delete the folder");
  for (const auto& [name, split] : index.splits)
    for (const ShardInfo& shard : split.shards)
      if (!shard_is_intact(folder, shard)) {
        log_warn(str("data: ", shard.name, " is missing or damaged: preparing all shards again"));
        fs::remove(folder / kIndexName);
        return std::nullopt;
      }
  return index;
}

// Removes what a killed process left: temporary files, and shards the journal does not know.
void remove_leftovers(const fs::path& folder, const Journal& journal) {
  std::set<std::string> kept;
  for (const FinishedShard& entry : journal.finished()) kept.insert(entry.shard.name);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("train-") || name.starts_with("val-") ||
                      name.starts_with(kIndexName) || name.starts_with(kSourcesName);
    const bool temporary = name.ends_with(".tmp") || name.find(".tmp-") != std::string::npos;
    const bool stray = name.ends_with(".tok") && !kept.contains(name);
    if (ours && (temporary || stray)) fs::remove(entry.path());
  }
}

EncodeContext make_context(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                           const Inputs& inputs) {
  EncodeContext context{.tokenizer = tokenizer,
                        .sources = inputs.sources,
                        .begins = source_begins(inputs.sources),
                        .format = inputs.rows.format,
                        .chat_template = inputs.rows.chat_template,
                        .own = inputs.rows.own,
                        .loss_on_all = options.train_on == config::TrainOn::kAll,
                        .special_in_text = options.special_tokens_in_text,
                        .sample_length = options.max_seq_length};
  context.last_end = last_document_end(inputs.sources, context.begins, 0, inputs.sources.size());
  context.cuts = validation_cuts(options, inputs.sources, context.begins, inputs.first_val);
  return context;
}

// Returns what became of the documents.
Tally write_shards(const PrepareOptions& options, const EncodeContext& context, int workers,
                   const ShardKind& kind, Journal& journal) {
  UnitPosition start;
  uint64_t skip = 0;
  Tally tally(options);
  if (!journal.finished().empty()) {
    const FinishedShard& last = journal.finished().back();
    start = last.next;
    skip = last.skip;
    if (last.tally.is_object())
      tally.load(last.tally, options.output.string());
    else if (start.file > 0 || start.offset > 0)
      tally.forget();  // a journal of an earlier version
  }
  const auto output = make_output({.folder = options.output,
                                   .kind = kind,
                                   .shard_tokens = options.shard_tokens,
                                   .padding_id = context.tokenizer.end_of_document(),
                                   .share_samples = options.packing},
                                  journal);
  uint64_t bytes_done = context.begins[std::min(start.file, context.sources.size())] + start.offset;
  std::optional<Progress> progress;
  if (!options.quiet)
    progress.emplace("preparing", static_cast<double>(context.begins.back()) / 1e6, "MB");
  OrderedEncoder encoder(context, start, workers);
  while (const auto unit = encoder.next()) {
    if (stop_requested())
      fail(ExitCode::kStopped, "data", "stopped by ", stop_reason(), " with ",
           journal.finished().size(), " shards finished; run the same command to continue");
    journal.note(tally.to_json());  // of the units before this one, where a restart begins
    output->write(*unit, std::exchange(skip, 0));
    bytes_done += unit->source_bytes;
    tally.add(*unit, context.sources[unit->start.file].set);
    if (progress)
      progress->set(static_cast<double>(bytes_done) / 1e6,
                    str(journal.finished().size(), " shards"));
  }
  journal.note(tally.to_json());
  output->finish({.file = context.sources.size()});
  if (progress) progress->finish();
  return tally;
}

PrepareResult summarise(const DatasetIndex& index) {
  PrepareResult result;
  result.bytes = index.source_bytes;
  result.sample_length = index.kind.sample_length;
  for (const auto& [name, split] : index.splits) {
    (name == "train" ? result.train_tokens : result.val_tokens) = split.tokens();
    result.documents += split.documents();
    result.shards += static_cast<int>(split.shards.size());
    for (const ShardInfo& shard : split.shards) {
      result.loss_tokens += shard.loss_tokens;
      result.padding_tokens += shard.padding;
    }
  }
  return result;
}

PrepareResult run(const PrepareOptions& options) {
  const int workers = options.workers > 0
                          ? options.workers
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto tokenizer = tokenizer::load_tokenizer(options.tokenizer);
  Inputs inputs = find_inputs(options, *tokenizer);
  fs::create_directories(options.output);
  const FolderLock lock(options.output);
  const fs::path sources_path = options.output / kSourcesName;
  hash_sources(inputs.sources, sources_path, workers, options.quiet);
  DatasetIndex index = make_index(options, *tokenizer, inputs);

  if (const auto finished = find_finished(options.output, index.plan)) {
    log_info(str("data: ", options.output.string(), " is already prepared"));
    Journal::remove(options.output);
    for (const std::string& line : describe_sets(finished->sets, kIndexName))
      log_info("data: " + line);
    PrepareResult result = summarise(*finished);
    result.shards_reused = result.shards;
    return result;
  }
  write_sources(sources_path, inputs.sources);
  Journal journal(options.output, index.plan);
  remove_leftovers(options.output, journal);
  const size_t reused = journal.finished().size();
  if (reused > 0) log_info(str("data: continuing behind ", reused, " finished shards"));
  const EncodeContext context = make_context(options, *tokenizer, inputs);
  const Tally tally = write_shards(options, context, workers, index.kind, journal);
  tally.check(options);

  for (const FinishedShard& entry : journal.finished())
    index.splits[entry.split].shards.push_back(entry.shard);
  if (index.splits.empty())
    fail(ExitCode::kUsage, "data", "wanted text, found no token in ", inputs.sources.size(),
         " files; check the inputs and text_field");
  for (const char* split : {"train", "val"})
    if (!index.splits.contains(split) && (options.val_fraction > 0 || split[0] == 't'))
      log_warn(str("data: the split '", split, "' is empty: too little text for val_fraction ",
                   options.val_fraction));
  index.sets = tally.to_json().at("sets");
  for (const std::string& line : describe_sets(index.sets, kIndexName)) log_info("data: " + line);
  write_index(options.output, index);
  Journal::remove(options.output);
  PrepareResult result = summarise(index);
  result.shards_reused = static_cast<int>(reused);
  return result;
}

}  // namespace

PrepareResult prepare(const PrepareOptions& options) {
  check(options);
  const auto start = std::chrono::steady_clock::now();
  try {
    PrepareResult result = run(options);
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  } catch (const fs::filesystem_error& error) {
    fail(ExitCode::kEnvironment, "data", error.what(), "; check rights and free space");
  }
}

bool will_pack(const PrepareOptions& options) {
  return find_format(options, list_sources(options.inputs, options.output, false)).has_answers();
}

}  // namespace octavo::data
