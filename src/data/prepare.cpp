#include "data/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "data/dataset_index.h"
#include "data/encode.h"
#include "data/journal.h"
#include "data/sources.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {
namespace {

// One preparation per folder at a time; the kernel lets go of the lock when the process dies.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (fd_ >= 0) ::close(fd_);
      fail(ExitCode::kEnvironment, "data", "wanted ", folder.string(),
           " for this process alone: ", std::strerror(error),
           "; wait for the other `octavo data prepare`");
    }
  }
  ~FolderLock() { ::close(fd_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

// Distributes tokens over shards, split by split, and notes each finished shard in the journal.
class ShardOutput {
 public:
  ShardOutput(const fs::path& folder, ShardKind kind, uint64_t shard_tokens, Journal& journal)
      : folder_(folder), kind_(std::move(kind)), shard_tokens_(shard_tokens), journal_(journal) {
    for (const FinishedShard& shard : journal.finished()) ++counts_[shard.split];
  }

  // Writes the unit's tokens from index `at` on.
  void write(const EncodedUnit& unit, uint64_t at) {
    while (at < unit.tokens.size()) {
      const bool train = at < unit.train_tokens;
      const std::string split = train ? "train" : "val";
      if (writer_ && split != split_) close(unit.start, at);
      if (!writer_) open(split);
      const uint64_t split_end = train ? unit.train_tokens : unit.tokens.size();
      const uint64_t end = std::min(split_end, at + shard_tokens_ - writer_->tokens());
      append(unit, at, end);
      at = end;
      if (writer_->tokens() == shard_tokens_) close(unit.start, at);
    }
  }

  // `end`: the position behind all inputs.
  void finish(UnitPosition end) {
    if (writer_) close(end, 0);
  }

 private:
  void open(const std::string& split) {
    char name[40];
    std::snprintf(name, sizeof name, "%s-%05llu.tok", split.c_str(),
                  static_cast<unsigned long long>(counts_[split]));
    writer_.emplace(folder_, name, kind_);
    split_ = split;
  }

  void append(const EncodedUnit& unit, uint64_t from, uint64_t to) {
    const std::span<const int32_t> tokens = unit.tokens;
    auto document = std::lower_bound(unit.documents.begin(), unit.documents.end(), from);
    for (; document != unit.documents.end() && *document < to; ++document) {
      writer_->append(tokens.subspan(from, *document - from));
      writer_->begin_document();
      from = *document;
    }
    writer_->append(tokens.subspan(from, to - from));
  }

  void close(UnitPosition next, uint64_t skip) {
    const ShardInfo info = writer_->finish();
    writer_.reset();
    journal_.append({.split = split_, .shard = info, .next = next, .skip = skip});
    ++counts_[split_];
  }

  fs::path folder_;
  ShardKind kind_;
  uint64_t shard_tokens_;
  Journal& journal_;
  std::map<std::string, uint64_t> counts_;
  std::optional<ShardWriter> writer_;
  std::string split_;
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
  if (options.workers < 0 || options.workers > 4096)
    fail(ExitCode::kUsage, "data", "wanted 0 to 4096 workers, found ", options.workers,
         "; 0 takes one per core");
}

// What the token stream and its cutting into shards depend on.
Json plan_options(const PrepareOptions& options) {
  return {{"text_field", options.text_field},
          {"val_fraction", options.val_fraction},
          {"shard_tokens", options.shard_tokens}};
}

DatasetIndex make_index(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                        const std::vector<Source>& sources) {
  DatasetIndex index;
  index.tokenizer_name = tokenizer.name();
  index.kind = {static_cast<uint64_t>(tokenizer.vocab_size()), tokenizer.fingerprint()};
  index.options = plan_options(options);
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
                           const std::vector<Source>& sources) {
  EncodeContext context{.tokenizer = tokenizer,
                        .sources = sources,
                        .begins = source_begins(sources),
                        .text_field = options.text_field};
  context.last_end = last_document_end(sources, context.begins);
  if (options.val_fraction > 0)
    context.val_begin = static_cast<uint64_t>(
        std::floor(static_cast<double>(context.begins.back()) * (1 - options.val_fraction)));
  return context;
}

void write_shards(const PrepareOptions& options, const EncodeContext& context, int workers,
                  const ShardKind& kind, Journal& journal) {
  UnitPosition start;
  uint64_t skip = 0;
  if (!journal.finished().empty()) {
    start = journal.finished().back().next;
    skip = journal.finished().back().skip;
  }
  ShardOutput output(options.output, kind, options.shard_tokens, journal);
  uint64_t bytes_done = context.begins[std::min(start.file, context.sources.size())] + start.offset;
  uint64_t empty = 0;
  std::optional<Progress> progress;
  if (!options.quiet)
    progress.emplace("preparing", static_cast<double>(context.begins.back()) / 1e6, "MB");
  OrderedEncoder encoder(context, start, workers);
  while (const auto unit = encoder.next()) {
    if (stop_requested())
      fail(ExitCode::kStopped, "data", "stopped by ", stop_reason(), " with ",
           journal.finished().size(), " shards finished; run the same command to go on");
    output.write(*unit, std::exchange(skip, 0));
    bytes_done += unit->text_bytes;
    empty += unit->empty_documents;
    if (progress)
      progress->set(static_cast<double>(bytes_done) / 1e6,
                    str(journal.finished().size(), " shards"));
  }
  output.finish({.file = context.sources.size()});
  if (progress) progress->finish();
  if (empty > 0) log_warn(str("data: left out ", empty, " JSONL rows with an empty text"));
}

PrepareResult summarise(const DatasetIndex& index) {
  PrepareResult result;
  result.bytes = index.source_bytes;
  for (const auto& [name, split] : index.splits) {
    (name == "train" ? result.train_tokens : result.val_tokens) = split.tokens();
    result.documents += split.documents();
    result.shards += static_cast<int>(split.shards.size());
  }
  return result;
}

PrepareResult run(const PrepareOptions& options) {
  const int workers = options.workers > 0
                          ? options.workers
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto tokenizer = tokenizer::load_tokenizer(options.tokenizer);
  auto sources = list_sources(options.inputs, options.output);
  if (sources.empty())
    fail(ExitCode::kUsage, "data", "wanted text or JSONL files, found none in ",
         options.inputs.size(), " inputs; name files or folders with text");
  fs::create_directories(options.output);
  const FolderLock lock(options.output);
  const fs::path sources_path = options.output / kSourcesName;
  hash_sources(sources, sources_path, workers, options.quiet);
  DatasetIndex index = make_index(options, *tokenizer, sources);

  if (const auto finished = find_finished(options.output, index.plan)) {
    log_info(str("data: ", options.output.string(), " is already prepared"));
    PrepareResult result = summarise(*finished);
    result.shards_reused = result.shards;
    return result;
  }
  write_sources(sources_path, sources);
  Journal journal(options.output, index.plan);
  remove_leftovers(options.output, journal);
  const size_t reused = journal.finished().size();
  if (reused > 0) log_info(str("data: going on behind ", reused, " finished shards"));
  const EncodeContext context = make_context(options, *tokenizer, sources);
  write_shards(options, context, workers, index.kind, journal);

  for (const FinishedShard& entry : journal.finished())
    index.splits[entry.split].shards.push_back(entry.shard);
  if (index.splits.empty())
    fail(ExitCode::kUsage, "data", "wanted text, found no token in ", sources.size(),
         " files; check the inputs and text_field");
  for (const char* split : {"train", "val"})
    if (!index.splits.contains(split) && (options.val_fraction > 0 || split[0] == 't'))
      log_warn(str("data: the split '", split, "' is empty: too little text for val_fraction ",
                   options.val_fraction));
  write_index(options.output, index);
  journal.remove();
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

}  // namespace octavo::data
