#include "data/dataset_index.h"

#include <algorithm>
#include <cctype>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "object_store/address.h"
#include "object_store/object_store.h"

namespace octavo::data {
namespace {

constexpr const char* kFormat = "octavo-tokens";
constexpr int64_t kVersion = 1;
// 10^5 shards of 10^8 tokens are about 20 MB of index.
constexpr JsonLimits kLimits{.max_bytes = size_t{256} << 20, .max_depth = 8};
constexpr uint64_t kMaxTokens = uint64_t{1} << 62;

uint64_t json_size(const Json& object, const char* name, const std::string& source) {
  const int64_t value = json_int(object, name, source);
  if (value < 0 || static_cast<uint64_t>(value) > kMaxTokens)
    fail(ExitCode::kDamaged, "data", source, ": field '", name, "' wanted from 0 to 2^62, found ",
         value, "; prepare the data again");
  return static_cast<uint64_t>(value);
}

template <typename Member>
uint64_t total(const std::vector<ShardInfo>& shards, Member member, const char* what) {
  uint64_t sum = 0;
  for (const ShardInfo& shard : shards) sum = checked_add(sum, shard.*member, what);
  return sum;
}

SplitIndex split_from_json(const Json& object, const std::string& source) {
  SplitIndex split;
  const Json& shards = json_field(object, "shards", Json::value_t::array, source);
  split.shards.reserve(shards.size());
  for (const Json& shard : shards) split.shards.push_back(shard_from_json(shard, source));
  const uint64_t tokens = json_size(object, "tokens", source);
  const uint64_t documents = json_size(object, "documents", source);
  if (split.tokens() != tokens || split.documents() != documents || tokens > kMaxTokens)
    fail(ExitCode::kDamaged, "data", source, ": its shards add up to ", split.tokens(),
         " tokens and ", split.documents(), " documents, the split says ", tokens, " and ",
         documents, "; restore the file from a copy or prepare the data again");
  return split;
}

void read_sample_length(const Json& json, const std::string& source, ShardKind& kind) {
  kind.sample_length = json_size(json, "sample_length", source);
  if (kind.sample_length == 0 || kind.sample_length > (uint64_t{1} << 30) ||
      kind.vocab_size > uint64_t{kIdMask} + 1)
    fail(ExitCode::kDamaged, "data", source,
         ": wanted packed samples of 1 to 2^30 tokens of a vocabulary up to 2^30, found ",
         kind.sample_length, " and ", kind.vocab_size, "; prepare the data again");
}

void check_whole_samples(const DatasetIndex& index, const std::string& source) {
  if (!index.kind.packed()) return;
  for (const auto& [name, split] : index.splits)
    if (split.tokens() % index.kind.sample_length != 0)
      fail(ExitCode::kDamaged, "data", source, ": wanted whole samples of ",
           index.kind.sample_length, " tokens, found ", split.tokens(), " tokens in '", name,
           "'; prepare the data again");
}

}  // namespace

uint64_t SplitIndex::tokens() const {
  return total(shards, &ShardInfo::tokens, "tokens");
}
uint64_t SplitIndex::documents() const {
  return total(shards, &ShardInfo::documents, "documents");
}

std::string DatasetIndex::fingerprint() const {
  std::string text = str(kFormat, kVersion, ' ', kind.tokenizer_fingerprint, ' ', kind.vocab_size);
  if (kind.packed()) text += str(" packed ", kind.sample_length);
  for (const auto& [name, split] : splits) {
    text += "\n" + name;
    for (const ShardInfo& shard : split.shards)
      text += str('\n', shard.name, ' ', shard.tokens, ' ', shard.documents, ' ', shard.bytes, ' ',
                  shard.hash_text());
  }
  return hash_text(text);
}

Json shard_to_json(const ShardInfo& shard) {
  Json json = {{"name", shard.name},
               {"tokens", shard.tokens},
               {"documents", shard.documents},
               {"bytes", shard.bytes},
               {"hash", shard.hash_text()}};
  if (shard.loss_tokens > 0 || shard.padding > 0) {
    json["learned"] = shard.loss_tokens;
    json["padding"] = shard.padding;
  }
  return json;
}

ShardInfo shard_from_json(const Json& object, const std::string& source) {
  ShardInfo shard;
  shard.name = json_string(object, "name", source);
  shard.tokens = json_size(object, "tokens", source);
  shard.documents = json_size(object, "documents", source);
  shard.bytes = json_size(object, "bytes", source);
  if (object.contains("learned")) {
    shard.loss_tokens = json_size(object, "learned", source);
    shard.padding = json_size(object, "padding", source);
  }
  const std::string hash = json_string(object, "hash", source);
  const bool hex =
      std::all_of(hash.begin(), hash.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (hash.size() != shard.hash.size() || !hex)
    fail(ExitCode::kDamaged, "data", source, ": wanted a hash of 32 hex digits for ", shard.name,
         ", found '", hash, "'; prepare the data again");
  std::copy(hash.begin(), hash.end(), shard.hash.begin());
  return shard;
}

bool has_index(const fs::path& folder) {
  const fs::path path = folder / kIndexName;
  if (!object_store::is_s3_address(folder.string())) return fs::exists(path);
  return !object_store::s3()->list(path.string()).empty();
}

DatasetIndex read_index(const fs::path& folder) {
  const fs::path path = folder / kIndexName;
  const std::string source = path.string();
  if (!has_index(folder))
    fail(ExitCode::kUsage, "data", "wanted a prepared data set at ", folder.string(), ", found no ",
         kIndexName, "; run `octavo data prepare` (again, if it was interrupted)");
  const bool remote = object_store::is_s3_address(source);
  const Json json =
      remote ? parse_json(object_store::s3()->get(source, kLimits.max_bytes), source, kLimits)
             : read_json(path, kLimits);
  const std::string format = json_string(json, "format", source);
  const int64_t version = json_int(json, "version", source);
  if (format != kFormat || version != kVersion)
    fail(ExitCode::kUsage, "data", source, ": wanted format ", kFormat, " version ", kVersion,
         ", found ", printable(format), " version ", version,
         "; prepare the data again with this program");
  DatasetIndex index;
  const Json& tokenizer = json_field(json, "tokenizer", Json::value_t::object, source);
  index.tokenizer_name = json_string(tokenizer, "name", source);
  index.kind.tokenizer_fingerprint = json_string(tokenizer, "fingerprint", source);
  index.kind.vocab_size = json_size(tokenizer, "vocab_size", source);
  if (index.kind.vocab_size == 0 || index.kind.vocab_size > uint64_t{INT32_MAX})
    fail(ExitCode::kDamaged, "data", source, ": wanted a vocabulary of 1 to 2^31 - 1 ids, found ",
         index.kind.vocab_size, "; prepare the data again");
  if (json.contains("sample_length")) read_sample_length(json, source, index.kind);
  index.plan = json_string(json, "plan", source);
  index.options = json_field(json, "options", Json::value_t::object, source);
  const Json& sources = json_field(json, "sources", Json::value_t::object, source);
  index.source_files = json_size(sources, "files", source);
  index.source_bytes = json_size(sources, "bytes", source);
  index.sources_fingerprint = json_string(sources, "fingerprint", source);
  for (const auto& item : json_field(json, "splits", Json::value_t::object, source).items())
    index.splits[item.key()] = split_from_json(item.value(), source);
  if (json.contains("sets")) index.sets = json_field(json, "sets", Json::value_t::array, source);
  if (json.contains("duplicates_left_out"))
    index.duplicates = json_size(json, "duplicates_left_out", source);
  if (json.contains("extensions"))
    for (const Json& item : json_field(json, "extensions", Json::value_t::array, source)) {
      if (!item.is_string())
        fail(ExitCode::kDamaged, "data", source,
             ": wanted a text for each of its extensions, found ", item.type_name(),
             "; restore the file from a copy or prepare the data again");
      index.extensions.push_back(item.get<std::string>());
    }
  check_whole_samples(index, source);
  if (index.fingerprint() != json_string(json, "fingerprint", source))
    fail(ExitCode::kDamaged, "data", source, " is damaged: wanted fingerprint ",
         json_string(json, "fingerprint", source), ", its content gives ", index.fingerprint(),
         "; restore the file from a copy or prepare the data again");
  return index;
}

void write_index(const fs::path& folder, const DatasetIndex& index) {
  Json splits = Json::object();
  for (const auto& [name, split] : index.splits) {
    Json shards = Json::array();
    for (const ShardInfo& shard : split.shards) shards.push_back(shard_to_json(shard));
    splits[name] = {{"tokens", split.tokens()},
                    {"documents", split.documents()},
                    {"shards", std::move(shards)}};
  }
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"fingerprint", index.fingerprint()},
               {"plan", index.plan},
               {"tokenizer",
                {{"name", index.tokenizer_name},
                 {"fingerprint", index.kind.tokenizer_fingerprint},
                 {"vocab_size", index.kind.vocab_size}}},
               {"options", index.options},
               {"sources",
                {{"list", kSourcesName},
                 {"files", index.source_files},
                 {"bytes", index.source_bytes},
                 {"fingerprint", index.sources_fingerprint}}},
               {"splits", std::move(splits)}};
  if (!index.sets.empty()) json["sets"] = index.sets;
  if (index.duplicates > 0) json["duplicates_left_out"] = index.duplicates;
  if (!index.extensions.empty()) json["extensions"] = index.extensions;
  if (index.kind.packed()) json["sample_length"] = index.kind.sample_length;
  write_file_atomic(folder / kIndexName,
                    json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace octavo::data
