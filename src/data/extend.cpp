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
#include "base/text.h"
#include "data/folder_lock.h"
#include "data/journal.h"
#include "data/prepare_plan.h"
#include "data/shard_sequence.h"
#include "data/shared_prepare.h"
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
  return hash_text(first + " " + second);
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
// for their hashes. What stands behind its first `files` lines is of an extension that was
// interrupted, and is not in the data set.
void append_sources(const fs::path& whole, const fs::path& part, uint64_t files) {
  const std::string text = octavo::read_file(whole, kMaxListBytes);
  size_t end = 0;
  for (uint64_t line = 0; line < files && end < text.size(); ++line) {
    const size_t newline = text.find('\n', end);
    end = newline == std::string::npos ? text.size() : newline + 1;
  }
  const std::string grown = text.substr(0, end) + octavo::read_file(part, kMaxListBytes);
  if (grown != text) octavo::write_file_atomic(whole, grown);
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
  append_sources(folder / kSourcesName, from / kSourcesName, whole.source_files);
  if (whole.extensions.empty()) whole.extensions.push_back(whole.sources_fingerprint);
  whole.extensions.push_back(part.sources_fingerprint);
  for (const Json& set : part.sets)  // of some all files may have been there
    if (json_int(set, "train_documents", kIndexName) > 0) whole.sets.push_back(set);
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

using FileNames = std::unordered_set<std::string>;

std::string file_identity(const std::string& hash, const std::string& name) {
  return hash + " " + name;
}

// The files in the first lines of a sources.jsonl.
FileNames known_identities(const fs::path& list, uint64_t files) {
  FileNames known;
  for (const auto& [hash, name] : listed_files(list, files))
    known.insert(file_identity(hash, name));
  return known;
}

// Whether the data set has all files, as far as their hashes are known.
bool has_all(const fs::path& folder, const DatasetIndex& index,
             const std::vector<Source>& sources) {
  const FileNames known = known_identities(folder / kSourcesName, index.source_files);
  return std::ranges::all_of(sources, [&](const Source& source) {
    return known.contains(file_identity(source.hash, source.name));
  });
}

// Whether it may have all files, once they are hashed.
bool has_all_names(const fs::path& folder, const DatasetIndex& index,
                   const std::vector<Source>& sources) {
  std::unordered_set<std::string> names;
  for (auto& [hash, name] : listed_files(folder / kSourcesName, index.source_files))
    names.insert(std::move(name));
  return std::ranges::all_of(sources,
                             [&](const Source& source) { return names.contains(source.name); });
}

// Whether the data set has any file that was prepared to be added to it.
bool has_any(const fs::path& folder, const DatasetIndex& whole, const DatasetIndex& part) {
  const FileNames known = known_identities(folder / kSourcesName, whole.source_files);
  return std::ranges::any_of(
      listed_files(folder / kExtensionFolder / kSourcesName, part.source_files),
      [&](const auto& file) { return known.contains(file_identity(file.first, file.second)); });
}

// Whether the part folder is another extension's, which is at work or will be continued. One whose
// documents are in the data set was killed before it cleaned up.
bool has_work_of_others(const fs::path& part, const DatasetIndex& whole) {
  try {
    if (has_index(part)) return !has_sources(whole, read_index(part).sources_fingerprint);
  } catch (const Error&) {
    return true;  // another process removes it, or the next extension says what is wrong with it
  }
  std::error_code none;
  return fs::exists(part / kJournalName, none) || has_shared_work(part);
}

// The process holds no lock yet when it is one of several.
void clean_up_own(const PrepareOptions& options) {
  const fs::path part = options.output / kExtensionFolder;
  const auto is_own = [&](const DatasetIndex& whole) {
    std::error_code none;
    return fs::exists(part, none) && !has_work_of_others(part, whole);
  };
  if (!is_own(read_index(options.output))) return;  // and does not wait for the others
  std::optional<FolderLock> lock;
  if (options.shared) lock.emplace(options.output, FolderLock::kAloneIfItCan);
  const DatasetIndex index = read_index(options.output);  // it may have grown while this waited
  if (is_own(index)) clean_up(options.output, index);
}

PrepareResult nothing_to_add(const PrepareOptions& options) {
  clean_up_own(options);
  log_info(str("data: ", options.output.string(),
               " has all of these files already, with the same content: nothing is added"));
  return describe_finished(options, read_index(options.output));
}

// The same content under another name is added, and the same name with other content: either may be
// meant.
// `whole`: the data set without it; its list may have lines of an attempt that was killed.
void warn_of_known_files(const fs::path& folder, const DatasetIndex& whole,
                         const DatasetIndex& part) {
  FileNames contents, names;
  for (auto& [hash, name] : listed_files(folder / kSourcesName, whole.source_files)) {
    contents.insert(std::move(hash));
    names.insert(std::move(name));
  }
  const auto added = listed_files(folder / kExtensionFolder / kSourcesName, part.source_files);
  const auto warn = [&](const char* before, const char* after, const auto& is_known) {
    const auto first = std::ranges::find_if(added, is_known);
    if (first == added.end()) return;
    log_warn(str("data: ", before, std::ranges::count_if(added, is_known), " of ",
                 counted(added.size(), "new file"), after, printable(first->second),
                 "): name only what is new"));
  };
  const auto has_content = [&](const auto& file) { return contents.contains(file.first); };
  warn("the content of ",
       " is in the data set already, under another name, and its documents are in it twice now (",
       has_content);
  warn("",
       " has the name of one that is in the data set with other content: if it has grown, the "
       "documents that it had before are in the data set twice (",
       [&](const auto& file) { return !has_content(file) && names.contains(file.second); });
}

// How the new documents are prepared.
PrepareOptions part_options(const PrepareOptions& options, const DatasetIndex& whole,
                            const tokenizer::Tokenizer& tokenizer) {
  PrepareOptions part = options;
  part.extend = false;
  part.output = options.output / kExtensionFolder;
  part.val_fraction = 0;
  part.known_list = options.output / kSourcesName;
  part.known_files = whole.source_files;
  part.after_end = ends_inside_a_document(options.output, whole, tokenizer.end_of_document());
  return part;
}

// Of all processes that share the work: what others did meanwhile does not help.
class RefusedExtension : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void refuse_outdated(const fs::path& folder) {
  throw RefusedExtension(ExitCode::kUsage, "data",
                         str("wanted ", folder.string(),
                             " as it was when --extend --shared began, found that another ",
                             "--extend added to it since; give the command again"));
}

// Processes that share the work take no lock until it is done. `made`: what they prepared.
void check_still_fits(const PrepareOptions& part, const DatasetIndex& whole,
                      const DatasetIndex& made, const tokenizer::Tokenizer& tokenizer) {
  const fs::path folder = part.output.parent_path();
  const bool same_end =
      ends_inside_a_document(folder, whole, tokenizer.end_of_document()) == part.after_end;
  const bool comes_twice = whole.source_files != part.known_files && has_any(folder, whole, made);
  if (same_end && !comes_twice) return;
  remove_shared_folder(part.output);
  refuse_outdated(folder);
}

PrepareResult prepare_and_add(const PrepareOptions& options, const PrepareOptions& part,
                              const tokenizer::Tokenizer& tokenizer) {
  if (prepare(part).shards == 0) return nothing_to_add(options);
  std::optional<FolderLock> lock;
  if (options.shared) lock.emplace(options.output, FolderLock::kAloneIfItCan);
  DatasetIndex index = read_index(options.output);
  const PrepareResult before = summarise(index);
  const DatasetIndex made = read_index(part.output);
  const bool is_added = has_sources(index, made.sources_fingerprint);  // by another process
  if (!is_added) {
    check_still_fits(part, index, made, tokenizer);
    warn_of_known_files(options.output, index, made);
    index = add_shards(options.output, std::move(index), made);
  }
  clean_up(options.output, index);
  if (is_added) return describe_finished(options, index);
  PrepareResult result = summarise(index);
  result.shards_reused = before.shards;
  log_info(str("data: ", counted(static_cast<uint64_t>(result.shards - before.shards), "shard"),
               " added; a run that began on the data before cannot resume on it"));
  return result;
}

}  // namespace

void leave_out_known(const PrepareOptions& options, Inputs& inputs) {
  if (options.known_files == 0) return;
  OCTAVO_ASSERT(inputs.first_val == inputs.sources.size());
  const FileNames known = known_identities(options.known_list, options.known_files);
  const size_t all = inputs.sources.size();
  std::string first;
  std::erase_if(inputs.sources, [&](const Source& source) {
    const bool is_known = known.contains(file_identity(source.hash, source.name));
    if (is_known && first.empty()) first = source.name;
    return is_known;
  });
  inputs.first_val = inputs.sources.size();
  if (inputs.first_val < all)
    log_info(str("data: left out ", all - inputs.first_val, " of ", counted(all, "file"), " (",
                 printable(first), all - inputs.first_val > 1 ? ", …" : "",
                 "): the data set has them already, with the same names and content"));
}

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
  // Whether they are all there already, as far as the hashes of the files are known.
  const auto finished = [&]() -> std::optional<PrepareResult> {
    index = read_index(options.output);
    hash_sources(inputs.sources, options.output / kSourcesName, 0, true);
    const DatasetIndex planned = make_index(part, *tokenizer, inputs);
    check_same_kind(index, planned, options.output);
    if (!has_all(options.output, index, inputs.sources) &&
        !has_sources(index, planned.sources_fingerprint))
      return std::nullopt;
    return nothing_to_add(options);
  };
  if (inputs.first_val < inputs.sources.size())
    fail(ExitCode::kUsage, "data", "--extend adds to the training split, and found ",
         counted(inputs.sources.size() - inputs.first_val, "file"),
         " to validate on; leave them out, or prepare the data set anew");
  if (const auto result = finished()) return *result;
  if (options.deduplicate)
    log_info("data: --deduplicate compares the new documents with each other, not with the others");
  try {
    return prepare_and_add(options, part, *tokenizer);
  } catch (const RefusedExtension&) {
    throw;
  } catch (const Error& error) {
    if (!options.shared) throw;
    std::error_code none;
    const bool is_removed = !fs::exists(part_folder, none);  // by a process that shared the work
    if (const auto result = finished()) return *result;
    if (!is_removed || error.code() == ExitCode::kStopped) throw;
    if (has_all_names(options.output, index, inputs.sources)) {
      hash_sources(inputs.sources, options.output / kSourcesName, 1, options.quiet);
      if (const auto result = finished()) return *result;
    }
    // Another extension was added: the process that removed the work had refused it.
    if (index.source_files != part.known_files) refuse_outdated(options.output);
    throw;
  }
}

}  // namespace octavo::data
