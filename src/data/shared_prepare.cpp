#include "data/shared_prepare.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/chunks.h"
#include "data/duplicates.h"
#include "data/extend.h"
#include "data/journal.h"
#include "data/stages.h"
#include "data/token_output.h"
#include "data/work_folder.h"

namespace octavo::data {
namespace {

// Sources that one process hashes at a time.
constexpr uint64_t kGroupBytes = uint64_t{1} << 30;
constexpr size_t kGroupFiles = 10'000;

std::vector<std::span<Source>> group_sources(std::vector<Source>& sources) {
  std::vector<std::span<Source>> groups;
  size_t first = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    bytes += sources[i].bytes;
    if (bytes < kGroupBytes && i + 1 - first < kGroupFiles && i + 1 < sources.size()) continue;
    groups.push_back(std::span(sources).subspan(first, i + 1 - first));
    first = i + 1;
    bytes = 0;
  }
  return groups;
}

// Each process reads a part of the inputs. One that has another file under a name than the process
// that hashed it hashes it itself, and finds that the preparations differ.
void hash_together(WorkFolder& work, std::vector<Source>& sources, const fs::path& cache,
                   int workers, bool quiet) {
  const auto groups = group_sources(sources);
  const auto hash_group = [&](size_t number) {
    std::vector<Source> group(groups[number].begin(), groups[number].end());
    hash_sources(group, cache, workers, true);
    Json hashes = Json::array();
    for (const Source& source : group)
      hashes.push_back({source.name, source.bytes, source.modified_ns, source.hash});
    return hashes;
  };
  do_stage(work, {"hash", "hashing inputs", groups.size(), hash_group, quiet});
  for (size_t i = 0; i < groups.size(); ++i) {
    const Json hashes = work.result(item_name("hash", i)).value_or(Json::array());
    for (size_t j = 0; j < groups[i].size() && j < hashes.size(); ++j) {
      Source& source = groups[i][j];
      const Json& found = hashes[j];
      if (found.is_array() && found.size() == 4 && found[0] == source.name &&
          found[1] == source.bytes && found[2] == source.modified_ns && found[3].is_string())
        source.hash = found[3];
    }
  }
  hash_sources(sources, cache, workers, quiet);
}

// Processes of different plans would write different shards under the same names.
void agree_on_plan(WorkFolder& work, const std::string& plan) {
  if (!work.result("plan")) work.publish_once("plan", {{"plan", plan}});
  const Json agreed = work.result("plan").value_or(Json::object());
  if (json_string(agreed, "plan", work.path().string()) != plan)
    fail(ExitCode::kUsage, "data", work.path().string(),
         " is an unfinished preparation of other inputs, options or tokenizer; give the command "
         "that began it, name another output, or delete the folder");
}

class ChunkedPreparation {
 public:
  ChunkedPreparation(const PrepareOptions& options, EncodeContext& context, DatasetIndex& index,
                     WorkFolder& work, int workers)
      : options_(options),
        context_(context),
        index_(index),
        work_(work),
        workers_(workers),
        chunks_(cut_chunks(context.sources)),
        tokens_(work.path() / "tokens") {
    fs::create_directories(tokens_);
  }

  // Said also when others finish the data set while this process waits.
  ~ChunkedPreparation() {
    log_info(str("data: this process encoded ", own_chunks_, " of ",
                 counted(chunks_.size(), "chunk"), " and wrote ", counted(own_shards_, "shard")));
  }
  ChunkedPreparation(const ChunkedPreparation&) = delete;
  ChunkedPreparation& operator=(const ChunkedPreparation&) = delete;

  // Whether this process wrote the index; else another one did.
  bool run() {
    if (options_.deduplicate) find_duplicates();
    do_stage(work_, {"chunk", "encoding", chunks_.size(), [this](size_t i) { return encode(i); },
                     options_.quiet});
    for (size_t i = 0; i < chunks_.size(); ++i) {
      const std::string item = item_name("chunk", i);
      encoded_.push_back(EncodedChunk::from_json(needed(item), item));
    }
    const bool packed = index_.kind.packed();
    if (!packed) shards_ = plan_shards(encoded_, options_.shard_tokens);
    const size_t items = packed ? 1 : shards_.size();
    do_stage(work_, {"shard", packed ? "packing" : "writing shards", items,
                     [&](size_t i) { return packed ? pack() : write(i); }, options_.quiet});
    bool finished = false;
    do_stage(work_, {"index", "writing the index", 1,
                     [&](size_t) {
                       finish(items);
                       finished = true;
                       return Json::object();
                     },
                     true});
    return finished;
  }

 private:
  Json needed(const std::string& item) const {
    auto result = work_.result(item);
    if (!result)
      fail(ExitCode::kDamaged, "data", "wanted ", item, " in ", work_.path().string(),
           ", found nothing; delete the folder and prepare the data again");
    return std::move(*result);
  }

  // Two stages: hashes of all documents, then which of them came before.
  void find_duplicates() {
    const size_t parts = hash_parts(index_.source_bytes);
    context_.only_hash = true;
    do_stage(work_, {"texts", "hashing documents", chunks_.size(),
                     [&](size_t i) { return hash_texts(i, parts); }, options_.quiet});
    context_.only_hash = false;
    std::vector<std::string> files;
    for (size_t i = 0; i < chunks_.size(); ++i) files.push_back(item_name("texts", i));
    do_stage(work_, {"duplicates", "finding duplicates", parts,
                     [&](size_t i) {
                       const std::string item = item_name("duplicates", i);
                       const std::string hash =
                           write_duplicates(tokens_, files, i, parts, work_.scratch(), item);
                       move_to_tokens(item);
                       return Json{{"hash", hash}};
                     },
                     options_.quiet});
    for (size_t i = 0; i < parts; ++i) {
      const std::string item = item_name("duplicates", i);
      duplicates_.add(tokens_ / item, json_string(needed(item), "hash", item));
    }
  }

  Json hash_texts(size_t number, size_t parts) {
    const Chunk chunk = at_lines(context_.sources, chunks_[number]);
    const std::string item = item_name("texts", number);
    std::vector<DocumentHash> hashes;
    OrderedEncoder encoder(context_, chunk.begin, workers_, chunk.end);
    while (const auto unit = encoder.next()) {
      check_stop(work_);
      hashes.insert(hashes.end(), unit->hashes.begin(), unit->hashes.end());
    }
    const size_t documents = hashes.size();
    write_hashes(work_.scratch(), item, std::move(hashes), parts);
    move_to_tokens(item);
    return {{"documents", documents}};
  }

  void move_to_tokens(const std::string& name) const {
    fs::rename(work_.scratch() / name, tokens_ / name);
    fsync_path(tokens_);
  }

  Json encode(size_t number) {
    const Chunk chunk = at_lines(context_.sources, chunks_[number]);
    const std::string item = item_name("chunk", number);
    const std::vector<DocumentPlace> duplicates = duplicates_.inside(chunk);
    context_.duplicates = options_.deduplicate ? &duplicates : nullptr;
    ChunkWriter writer(work_.scratch(), item, index_.kind);
    Tally tally(options_);
    OrderedEncoder encoder(context_, chunk.begin, workers_, chunk.end);
    while (const auto unit = encoder.next()) {
      check_stop(work_);
      writer.add(*unit);
      tally.add(*unit, context_.sources[unit->start.file].set);
    }
    EncodedChunk encoded = writer.finish();
    encoded.tally = tally.to_json();
    for (const ShardInfo& file : encoded.files) move_to_tokens(file.name);
    ++own_chunks_;
    return encoded.to_json();
  }

  // Another process may have written the same shard: its bytes are the same.
  Json move_to_output(const std::vector<FinishedShard>& shards) {
    Json list = Json::array();
    for (const FinishedShard& shard : shards) {
      fs::rename(work_.scratch() / shard.shard.name, options_.output / shard.shard.name);
      list.push_back({{"split", shard.split}, {"shard", shard_to_json(shard.shard)}});
    }
    fsync_path(options_.output);
    own_shards_ += shards.size();
    return list;
  }

  Json write(size_t number) {
    const PlannedShard& planned = shards_[number];
    return move_to_output(
        {{.split = planned.split,
          .shard = write_planned(planned, encoded_, tokens_, work_.scratch(), index_.kind)}});
  }

  // Which sample a document goes into depends on all before it: one process packs.
  Json pack() {
    Journal journal(work_.scratch(), index_.plan);
    const auto output = make_output({.folder = work_.scratch(),
                                     .kind = index_.kind,
                                     .shard_tokens = options_.shard_tokens,
                                     .padding_id = context_.tokenizer.end_of_document(),
                                     .share_samples = options_.packing},
                                    journal);
    for (const EncodedChunk& chunk : encoded_)
      each_unit(chunk, tokens_, index_.kind, [&](const EncodedUnit& unit) {
        check_stop(work_);
        output->write(unit, 0);
      });
    output->finish({.file = context_.sources.size()});
    Json list = move_to_output(journal.finished());
    Journal::remove(work_.scratch());
    return list;
  }

  void finish(size_t items) {
    Tally tally(options_);
    for (const EncodedChunk& chunk : encoded_) tally.add(chunk.tally, work_.path().string());
    std::set<std::string> names;
    for (size_t i = 0; i < items; ++i) {
      const std::string item = item_name("shard", i);
      for (const Json& entry : needed(item)) {
        const ShardInfo shard =
            shard_from_json(json_field(entry, "shard", Json::value_t::object, item), item);
        if (!shard_is_intact(options_.output, shard))
          fail(ExitCode::kDamaged, "data", shard.name, " in ", options_.output.string(),
               " is not as it was finished; delete the folder and prepare the data again");
        names.insert(shard.name);
        index_.splits[json_string(entry, "split", item)].shards.push_back(shard);
      }
    }
    write_sources(options_.output / kSourcesName, context_.sources);
    Journal::remove(options_.output);
    remove_leftovers(options_.output, names);
    finish_index(options_, tally, index_);
  }

  const PrepareOptions& options_;
  EncodeContext& context_;
  DatasetIndex& index_;
  WorkFolder& work_;
  int workers_;
  std::vector<Chunk> chunks_;
  fs::path tokens_;
  Duplicates duplicates_;
  std::vector<EncodedChunk> encoded_;
  std::vector<PlannedShard> shards_;
  size_t own_chunks_ = 0, own_shards_ = 0;  // done by this process
};

struct Attempt {
  DatasetIndex index;
  bool wrote = false;
  size_t reused = 0;
};

Attempt attempt(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                Inputs& inputs, int workers) {
  WorkFolder work(options.output);
  if (const size_t others = work.others(); others > 0)
    log_info(str("data: sharing ", options.output.string(), " with ", others,
                 others == 1 ? " other process" : " other processes"));
  Attempt result;
  for (const std::string& item : work.done()) result.reused += item.starts_with("shard-") ? 1 : 0;
  hash_together(work, inputs.sources, options.output / kSourcesName, workers, options.quiet);
  leave_out_known(options, inputs);
  if (inputs.sources.empty()) return result;
  result.index = make_index(options, tokenizer, inputs);
  agree_on_plan(work, result.index.plan);
  // Others may have finished, and removed the folder that this process then made anew.
  if (has_index(options.output)) return result;
  EncodeContext context = make_context(options, tokenizer, inputs);
  result.wrote = ChunkedPreparation(options, context, result.index, work, workers).run();
  return result;
}

}  // namespace

PrepareResult prepare_in_chunks(const PrepareOptions& options,
                                const tokenizer::Tokenizer& tokenizer, Inputs inputs, int workers) {
  const auto finished = [&]() -> std::optional<DatasetIndex> {
    if (!has_index(options.output)) return std::nullopt;
    hash_sources(inputs.sources, options.output / kSourcesName, workers, options.quiet);
    leave_out_known(options, inputs);
    if (inputs.sources.empty()) return std::nullopt;
    return find_finished(options.output, make_index(options, tokenizer, inputs));
  };
  if (const auto index = finished()) {
    WorkFolder::remove(options.output);
    return describe_finished(options, *index);
  }
  // Whoever looked into the work folder while it was removed may have made a part of it anew.
  const auto by_others = [&](const DatasetIndex& index) {
    WorkFolder::remove(options.output);
    log_info(str("data: another process finished ", options.output.string()));
    return summarise(index);
  };
  try {
    const Attempt done = attempt(options, tokenizer, inputs, workers);
    if (inputs.sources.empty()) return {};
    if (!done.wrote) {
      const auto index = finished();
      if (!index)
        fail(ExitCode::kDamaged, "data", "wanted ", kIndexName, " in ", options.output.string(),
             " from another process, found none; run the same command again");
      return by_others(*index);
    }
    WorkFolder::remove(options.output);
    PrepareResult result = summarise(done.index);
    result.shards_reused = static_cast<int>(done.reused);
    return result;
  } catch (const Error&) {
    // The work folder goes when the data set is complete, whoever still looks into it.
    if (const auto index = finished()) return by_others(*index);
    throw;
  } catch (const fs::filesystem_error&) {
    if (const auto index = finished()) return by_others(*index);
    throw;
  }
}

bool has_shared_work(const fs::path& output) {
  const fs::path folder = output / kWorkFolderName;
  std::error_code none;  // another process may be removing it
  const fs::directory_iterator worker(folder / "workers", none);
  return worker != fs::directory_iterator() || fs::exists(folder / "done" / "plan", none);
}

}  // namespace octavo::data
