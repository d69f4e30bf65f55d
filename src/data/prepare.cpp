#include "data/prepare.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/text.h"
#include "data/encode.h"
#include "data/extend.h"
#include "data/folder_lock.h"
#include "data/journal.h"
#include "data/prepare_plan.h"
#include "data/shared_prepare.h"
#include "data/token_output.h"
#include "data/work_folder.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {
namespace {

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
      tally.add(last.tally, options.output.string());
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
           counted(journal.finished().size(), "shard"),
           " finished; run the same command to continue");
    journal.note(tally.to_json());  // of the units before this one, where a restart begins
    output->write(*unit, std::exchange(skip, 0));
    bytes_done += unit->source_bytes;
    tally.add(*unit, context.sources[unit->start.file].set);
    if (progress)
      progress->set(static_cast<double>(bytes_done) / 1e6,
                    counted(journal.finished().size(), "shard"));
  }
  journal.note(tally.to_json());
  output->finish({.file = context.sources.size()});
  if (progress) progress->finish();
  return tally;
}

PrepareResult run(const PrepareOptions& options) {
  const int workers = options.workers > 0
                          ? options.workers
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto tokenizer = tokenizer::load_tokenizer(options.tokenizer);
  Inputs inputs = find_inputs(options, *tokenizer);
  fs::create_directories(options.output);
  const FolderLock lock(options.output,
                        options.shared ? FolderLock::kTogether : FolderLock::kAlone);
  if (options.shared || options.deduplicate)
    return prepare_in_chunks(options, *tokenizer, std::move(inputs), workers);
  const fs::path sources_path = options.output / kSourcesName;
  hash_and_keep(inputs.sources, sources_path, workers, options.quiet);
  leave_out_known(options, inputs);
  if (inputs.sources.empty()) return {};
  DatasetIndex index = make_index(options, *tokenizer, inputs);

  if (const auto finished = find_finished(options.output, index)) {
    Journal::remove(options.output);
    WorkFolder::remove(options.output);
    return describe_finished(options, *finished);
  }
  if (fs::exists(options.output / kWorkFolderName))
    fail(ExitCode::kUsage, "data", options.output.string(),
         " holds an unfinished preparation of several processes; continue it with "
         "--shared, or delete the folder");
  write_sources(sources_path, inputs.sources);
  Journal journal(options.output, index.plan);
  std::set<std::string> kept;
  for (const FinishedShard& entry : journal.finished()) kept.insert(entry.shard.name);
  remove_leftovers(options.output, kept);
  const size_t reused = journal.finished().size();
  if (reused > 0) log_info(str("data: continuing behind ", counted(reused, "finished shard")));
  const EncodeContext context = make_context(options, *tokenizer, inputs);
  const Tally tally = write_shards(options, context, workers, index.kind, journal);
  for (const FinishedShard& entry : journal.finished())
    index.splits[entry.split].shards.push_back(entry.shard);
  finish_index(options, tally, index);
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
    PrepareResult result = options.extend ? extend(options) : run(options);
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
