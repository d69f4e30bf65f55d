#include "tokenizer/special_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace octavo::tokenizer {
namespace {

constexpr TokenId kMaxSpecialId = 1 << 24;
constexpr size_t kMaxStops = 256;

Json read_if_there(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return Json::object();
  Json json = read_json(path);
  if (!json.is_object())
    fail(ExitCode::kDamaged, "tokenizer", path.string(), ": wanted an object, found ",
         json.type_name());
  return json;
}

// A number, a list of numbers, null or nothing.
std::vector<TokenId> ids_at(const Json& json, const char* name, const fs::path& source) {
  std::vector<TokenId> ids;
  if (!json.contains(name) || json[name].is_null()) return ids;
  const Json list = json[name].is_array() ? json[name] : Json::array({json[name]});
  if (list.size() > kMaxStops)
    fail(ExitCode::kDamaged, "tokenizer", source.string(), ": ", name, ": wanted at most ",
         kMaxStops, " ids, found ", list.size());
  for (const Json& id : list) {
    const bool in_range = id.is_number_unsigned() && id.get<uint64_t>() < uint64_t{kMaxSpecialId};
    if (!in_range)
      fail(ExitCode::kDamaged, "tokenizer", source.string(), ": ", name,
           ": wanted an id or a list of ids, found ", id.dump().substr(0, 80));
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// "<s>", {"content": "<s>", …}, null or nothing.
std::optional<TokenId> named_token(const Json& json, const char* name, const Tokenizer& tokenizer,
                                   const fs::path& source) {
  if (!json.contains(name) || json[name].is_null()) return std::nullopt;
  const std::string content = json[name].is_object()
                                  ? json_string(json[name], "content", source.string())
                                  : json_string(json, name, source.string());
  const std::optional<TokenId> id = tokenizer.added_token(content);
  if (!id)
    log_warn(str("[tokenizer] ", source.string(), ": ", name, " '", content,
                 "' is no token of the tokenizer and is left out"));
  return id;
}

}  // namespace

fs::path folder_of(const std::string& tokenizer_name) {
  const fs::path given = tokenizer_name;
  std::error_code none;
  if (fs::is_directory(given, none)) return given;
  if (!fs::is_regular_file(given, none)) return {};
  return given.has_parent_path() ? given.parent_path() : fs::path(".");
}

SpecialTokens read_special_tokens(const fs::path& folder, const Tokenizer& tokenizer) {
  SpecialTokens result;
  const auto stop_at = [&](TokenId id) {
    if (std::find(result.stop.begin(), result.stop.end(), id) == result.stop.end())
      result.stop.push_back(id);
  };
  const fs::path named = folder / "tokenizer_config.json";
  const Json names = read_if_there(named);
  result.bos = named_token(names, "bos_token", tokenizer, named);
  result.eos = named_token(names, "eos_token", tokenizer, named);
  if (result.eos) stop_at(*result.eos);
  // Ids of config.json are older: where generation_config.json speaks, they are not asked.
  for (const char* name : {"generation_config.json", "config.json"}) {
    const Json json = read_if_there(folder / name);
    const std::vector<TokenId> begin = ids_at(json, "bos_token_id", folder / name);
    const std::vector<TokenId> end = ids_at(json, "eos_token_id", folder / name);
    if (!result.bos && !begin.empty()) result.bos = begin.front();
    if (!result.eos && !end.empty()) result.eos = end.front();
    for (const TokenId id : end) stop_at(id);
    if (!end.empty()) break;
  }
  return result;
}

}  // namespace octavo::tokenizer
