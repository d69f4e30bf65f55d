#include "data/extend.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "data/folder_lock.h"
#include "data/prepare_plan.h"
#include "data/shard_sequence.h"
#include "data/token_data.h"
#include "data/work_folder.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {
namespace {

constexpr size_t kMaxListBytes = size_t{1} << 32;

// The options that a document's tokens depend on; the others say which documents go where.
Json deciding_options(const Json& options) {
  Json kept = options;
  for (const char* other : {"val_fraction", "val_files", "held_out", "shard_tokens", "deduplicate",
                            "text_field", "after_end"})
    kept.erase(other);
  return kept;
}

void check_same_kind(const DatasetIndex& whole, const DatasetIndex& part, const fs::path& folder) {
  const auto refuse = [&](const std::string& what, const std::string& then,
                          const std::string& now) {
    fail(ExitCode::kUsage, "data", folder.string(), " was prepared with ", what, " ", then,
         ", and --extend found ", now, "; give the same, or name another output");
  };
  if (part.kind.tokenizer_fingerprint != whole.kind.tokenizer_fingerprint)
    refuse("tokenizer", printable(whole.tokenizer_name), printable(part.tokenizer_name));
  if (part.kind.sample_length != whole.kind.sample_length)
    refuse("samples of", str(whole.kind.sample_length, " tokens (0: not packed)"),
           str(part.kind.sample_length));
  const Json then = deciding_options(whole.options), now = deciding_options(part.options);
  if (then != now) refuse("options", then.dump(), now.dump());
}

// The new documents go into the training split, whatever is asked. 0 asks for that.
void check_val_fraction(const PrepareOptions& options, const DatasetIndex& whole) {
  if (!options.val_fraction_given || options.val_fraction == 0) return;
  const auto then = whole.options.find("val_fraction");
  const bool known = then != whole.options.end() && then->is_number();
  if (known && then->get<double>() == options.val_fraction) return;
  fail(ExitCode::kUsage, "data", options.output.string(), " was prepared with ",
       known ? "val_fraction " + then->dump() : "no val_fraction that it names",
       ", and --extend found val_fraction ", Json(options.val_fraction).dump(),
       ": it adds to the training split alone, and the validation split stays as it is; leave "
       "val_fraction out, or prepare all inputs anew with another output");
}

std::string joined_hash(const std::string& first, const std::string& second) {
  const std::string text = first + " " + second;
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

// The last document of the training split has no end where it was the last of all.
bool ends_inside_a_document(const fs::path& folder, const DatasetIndex& index, int32_t end) {
  const auto train = index.splits.find("train");
  if (index.kind.packed() || train == index.splits.end() || train->second.tokens() == 0)
    return false;
  int32_t last = 0;
  TokenData::open(folder, "train")->read(train->second.tokens() - 1, std::span(&last, 1));
  return last != end;
}

// What is there already may be in use: another process may have joined the same shards.
void put_shard(const fs::path& from, const fs::path& folder, const ShardInfo& shard) {
  if (shard_is_intact(folder, shard)) return;
  const fs::path to = folder / shard.name;
  std::error_code error;
  fs::remove(to, error);  // of another extension that was interrupted
  fs::create_hard_link(from, to, error);
  if (!error) return;
  log_info(str("data: ", shard.name, " is copied: ", error.message()));
  fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  fsync_path(to);
}

// The list of source files grows: it says where documents came from, and a preparation looks there
// for their hashes. An extension that was interrupted may have added them.
void append_sources(const fs::path& whole, const fs::path& part) {
  std::string text = octavo::read_file(whole, kMaxListBytes);
  const std::string added = octavo::read_file(part, kMaxListBytes);
  if (!text.ends_with(added)) octavo::write_file_atomic(whole, text + added);
}

// The new documents are in the data set: what was made on the way goes.
void clean_up(const fs::path& folder, const DatasetIndex& whole) {
  std::set<std::string> names;
  for (const auto& [name, split] : whole.splits)
    for (const ShardInfo& shard : split.shards) names.insert(shard.name);
  remove_leftovers(folder, names);
  remove_shared_folder(folder / kExtensionFolder);
}

// The data set with its new shards. Readers see the old index until the new one is whole.
DatasetIndex add_shards(const fs::path& folder, DatasetIndex whole, const DatasetIndex& part) {
  const fs::path from = folder / kExtensionFolder;
  SplitIndex& train = whole.splits["train"];
  for (ShardInfo shard : part.splits.at("train").shards) {
    const fs::path source = from / shard.name;
    shard.name = shard_name("train", train.shards.size());
    put_shard(source, folder, shard);
    train.shards.push_back(shard);
  }
  fsync_path(folder);
  append_sources(folder / kSourcesName, from / kSourcesName);
  if (whole.extensions.empty()) whole.extensions.push_back(whole.sources_fingerprint);
  whole.extensions.push_back(part.sources_fingerprint);
  for (const Json& set : part.sets) whole.sets.push_back(set);
  whole.source_files += part.source_files;
  whole.source_bytes += part.source_bytes;
  whole.sources_fingerprint = joined_hash(whole.sources_fingerprint, part.sources_fingerprint);
  whole.duplicates += part.duplicates;
  whole.plan = joined_hash(whole.plan, part.plan);
  write_index(folder, whole);
  return whole;
}

bool has_sources(const DatasetIndex& whole, const std::string& fingerprint) {
  return fingerprint == whole.sources_fingerprint ||
         std::ranges::find(whole.extensions, fingerprint) != whole.extensions.end();
}

// (hash, name) of the first files in a sources.jsonl.
std::vector<std::pair<std::string, std::string>> listed_files(const fs::path& path, uint64_t most) {
  std::vector<std::pair<std::string, std::string>> files;
  std::ifstream file(path);
  for (std::string text; files.size() < most && std::getline(file, text);) {
    const Json line = parse_json(text, path.string());
    files.emplace_back(json_string(line, "hash", path.string()),
                       json_string(line, "name", path.string()));
  }
  return files;
}

// A folder that has grown is named as a whole, and its old documents come twice.
// `whole`: the data set without them; its list may have lines of an attempt that was killed.
void warn_of_known_files(const fs::path& folder, const DatasetIndex& whole,
                         const DatasetIndex& part) {
  std::unordered_set<std::string> known;
  for (auto& [hash, name] : listed_files(folder / kSourcesName, whole.source_files))
    known.insert(std::move(hash));
  const auto added = listed_files(folder / kExtensionFolder / kSourcesName, part.source_files);
  const auto is_known = [&](const auto& file) { return known.contains(file.first); };
  const auto first = std::ranges::find_if(added, is_known);
  if (first == added.end()) return;
  log_warn(str("data: ", std::ranges::count_if(added, is_known), " of ", added.size(),
               " files are in the data set already (", printable(first->second),
               "): their documents are in it twice now; name only what is new"));
}

// How the new documents are prepared.
PrepareOptions part_options(const PrepareOptions& options, const DatasetIndex& whole,
                            const tokenizer::Tokenizer& tokenizer) {
  PrepareOptions part = options;
  part.extend = false;
  part.output = options.output / kExtensionFolder;
  part.val_fraction = 0;
  part.after_end = ends_inside_a_document(options.output, whole, tokenizer.end_of_document());
  return part;
}

// Processes that share the work take no lock until it is done.
void check_same_end(const PrepareOptions& part, const DatasetIndex& whole,
                    const tokenizer::Tokenizer& tokenizer) {
  const fs::path folder = part.output.parent_path();
  if (ends_inside_a_document(folder, whole, tokenizer.end_of_document()) == part.after_end) return;
  remove_shared_folder(part.output);
  fail(ExitCode::kUsage, "data", "wanted ", folder.string(),
       " as it was when --extend --shared began, found that another --extend added to it since; "
       "give the command again");
}

}  // namespace

PrepareResult extend(const PrepareOptions& options) {
  const fs::path part_folder = options.output / kExtensionFolder;
  DatasetIndex index = read_index(options.output);
  check_val_fraction(options, index);
  std::optional<FolderLock> lock;
  if (!options.shared) {
    lock.emplace(options.output, FolderLock::kAlone);
    index = read_index(options.output);  // it may have grown while this process waited
  }
  const auto tokenizer = tokenizer::load_tokenizer(options.tokenizer);
  const PrepareOptions part = part_options(options, index, *tokenizer);
  Inputs inputs = find_inputs(part, *tokenizer);
  // Whether they are there already, as far as the hashes of the files are known.
  const auto finished = [&]() -> std::optional<PrepareResult> {
    index = read_index(options.output);
    hash_sources(inputs.sources, options.output / kSourcesName, 0, true);
    const DatasetIndex planned = make_index(part, *tokenizer, inputs);
    check_same_kind(index, planned, options.output);
    if (!has_sources(index, planned.sources_fingerprint)) return std::nullopt;
    clean_up(options.output, index);
    return describe_finished(options, index);
  };
  if (inputs.first_val < inputs.sources.size())
    fail(ExitCode::kUsage, "data", "--extend adds to the training split, and found ",
         inputs.sources.size() - inputs.first_val,
         " files to validate on; leave them out, or prepare the data set anew");
  if (const auto result = finished()) return *result;
  if (options.deduplicate)
    log_info("data: --deduplicate compares the new documents with each other, not with the others");
  try {
    prepare(part);
    if (options.shared) lock.emplace(options.output, FolderLock::kAloneIfItCan);
    index = read_index(options.output);
    const PrepareResult before = summarise(index);
    const DatasetIndex made = read_index(part_folder);
    const bool is_new = !has_sources(index, made.sources_fingerprint);
    if (is_new) check_same_end(part, index, *tokenizer);
    if (is_new) warn_of_known_files(options.output, index, made);
    if (is_new) index = add_shards(options.output, std::move(index), made);
    clean_up(options.output, index);
    if (!is_new) return describe_finished(options, index);  // only the dates of the files were new
    PrepareResult result = summarise(index);
    result.shards_reused = before.shards;
    log_info(str("data: ", result.shards - before.shards,
                 " shards added; a run that began on the data before cannot resume on it"));
    return result;
  } catch (const Error&) {
    // A process that shared the work has removed the folder.
    if (!options.shared) throw;
    if (const auto result = finished()) return *result;
    std::error_code error;  // or refused the work, for all that shared it
    if (!fs::exists(part_folder, error)) check_same_end(part, index, *tokenizer);
    throw;
  }
}

}  // namespace octavo::data
