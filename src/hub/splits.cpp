#include "hub/splits.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "hub/card.h"

namespace octavo::hub {
namespace {

// The first one that a split has is taken.
constexpr std::array<std::string_view, 5> kFormats = {".parquet", ".arrow", ".jsonl", ".json",
                                                      ".txt"};
// Files about the data, in formats that data comes in.
constexpr std::array<std::string_view, 7> kNotData = {
    "dataset_infos.json", "dataset_dict.json", "state.json", "dataset_info.json",
    "LICENSE.txt",        "requirements.txt",  "config.json"};

std::string_view base_name(std::string_view name) {
  return name.substr(name.rfind('/') + 1);
}

bool is_data(std::string_view name) {
  const bool format = std::any_of(kFormats.begin(), kFormats.end(),
                                  [&](std::string_view end) { return name.ends_with(end); });
  return format && std::find(kNotData.begin(), kNotData.end(), base_name(name)) == kNotData.end();
}

struct ShardName {
  std::string before;  // everything in front of "-00001-of-00004", folders included
  std::string split;   // its last part
  int64_t number = 0, count = 0;
};

std::optional<ShardName> shard_name(std::string_view name) {
  const std::string_view base = base_name(name);
  constexpr size_t kLength = std::string_view("-00001-of-00004").size();
  for (size_t at = base.find('-'); at != std::string_view::npos; at = base.find('-', at + 1)) {
    const std::string mark(base.substr(at, kLength));
    if (mark.size() < kLength || mark.substr(6, 4) != "-of-") continue;
    const std::string number = mark.substr(1, 5), count = mark.substr(10, 5);
    if ((number + count).find_first_not_of("0123456789") != std::string::npos) continue;
    return ShardName{std::string(name.substr(0, name.size() - base.size() + at)),
                     std::string(base.substr(0, at)), std::stoll(number), std::stoll(count)};
  }
  return std::nullopt;
}

std::set<std::string> words_of(std::string_view name) {
  std::set<std::string> words;
  std::string word;
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) word += static_cast<char>(c | 0x20);
    if (!letter && !word.empty()) words.insert(std::exchange(word, ""));
  }
  words.insert(word);
  return words;
}

// The split that a word in a name stands for, or "".
std::string split_by_word(std::string_view name) {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> kWords = {
      {"test", {"test", "testing", "eval", "evaluation"}},
      {"validation", {"validation", "valid", "dev", "val"}},
      {"train", {"train", "training"}},
  };
  const std::set<std::string> words = words_of(name);
  for (const auto& [split, meanings] : kWords)
    for (const std::string& word : meanings)
      if (words.contains(word)) return split;
  return "";
}

using Splits = std::map<std::string, std::vector<std::string>>;

std::string stem_of(std::string_view name) {
  const std::string_view base = base_name(name);
  return std::string(base.substr(0, base.rfind('.')));
}

Splits splits_by_name(const std::vector<std::string>& names) {
  Splits shards, words, rest;
  for (const std::string& name : names) {
    if (!is_data(name)) continue;
    const auto shard = shard_name(name);
    const std::string word = split_by_word(name);
    if (shard) shards[shard->split].push_back(name);
    if (!word.empty()) words[word].push_back(name);
    rest["train"].push_back(name);
  }
  if (!shards.empty()) return shards;
  if (words.empty()) return rest;
  // A file that is called as the split is it, too: "train_1M.jsonl".
  for (const std::string& name : names)
    if (is_data(name) && !words.contains(stem_of(name))) words[stem_of(name)].push_back(name);
  return words;
}

std::vector<std::string> names_under(const std::vector<std::string>& names,
                                     const std::string& folder) {
  std::vector<std::string> inside;
  for (const std::string& name : names)
    if (folder.empty() || name.starts_with(folder + "/")) inside.push_back(name);
  return inside;
}

Splits splits_by_card(const std::vector<std::string>& names, const CardSubset& subset) {
  if (subset.patterns.empty()) return splits_by_name(names_under(names, subset.folder));
  Splits splits;
  for (const auto& [split, patterns] : subset.patterns)
    for (const std::string& name : names)
      if (is_data(name) && std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
            return path_match(pattern, name);
          }))
        splits[split].push_back(name);
  return splits;
}

Splits splits_of(const std::vector<std::string>& names, const std::string& card,
                 const SplitRequest& request) {
  const std::vector<CardSubset> subsets = read_card(card, request.id);
  const CardSubset* chosen = nullptr;
  std::vector<std::string> known;
  for (const CardSubset& subset : subsets) {
    known.push_back(subset.name);
    const bool standard = request.subset.empty() &&
                          (subset.is_default || subset.name == "default" || subsets.size() == 1);
    if (subset.name == request.subset || (standard && chosen == nullptr)) chosen = &subset;
  }
  if (chosen != nullptr) return splits_by_card(names, *chosen);
  if (!subsets.empty())
    fail(ExitCode::kUsage, "hub", request.id, ": wanted one of its subsets ", join(known, ", "),
         ", found ", request.subset.empty() ? "none given" : "'" + request.subset + "'",
         "; set dataset_config");
  return splits_by_name(names_under(names, request.subset));  // a subset is a folder
}

std::vector<std::string> one_format(const std::vector<std::string>& files,
                                    const std::string& what) {
  for (const std::string_view format : kFormats) {
    std::vector<std::string> same;
    for (const std::string& name : files)
      if (name.ends_with(format)) same.push_back(name);
    if (same.empty()) continue;
    if (same.size() < files.size())
      log_warn(str("[hub] ", what, ": ", files.size() - same.size(), " of ", files.size(),
                   " files are not ", format.substr(1), " and are left out"));
    return same;
  }
  return {};
}

bool segments_match(std::span<const std::string> pattern, std::span<const std::string> name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == "**") {
    for (size_t skip = 0; skip <= name.size(); ++skip)
      if (segments_match(pattern.subspan(1), name.subspan(skip))) return true;
    return false;
  }
  return !name.empty() && glob_match(pattern.front(), name.front()) &&
         segments_match(pattern.subspan(1), name.subspan(1));
}

}  // namespace

bool path_match(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return false;
  std::vector<std::string> parts = split(pattern, '/');
  // Each ** multiplies the work; one after another means the same as one.
  parts.erase(std::unique(parts.begin(), parts.end(),
                          [](const auto& a, const auto& b) { return a == "**" && b == "**"; }),
              parts.end());
  if (std::count(parts.begin(), parts.end(), "**") > 3) return false;
  // A folder means what is under it.
  if (parts.back().empty()) parts.back() = "**";
  return segments_match(parts, split(name, '/'));
}

std::vector<std::string> files_of_split(const std::vector<std::string>& names,
                                        const std::string& card, const SplitRequest& request) {
  const Splits splits = splits_of(names, card, request);
  const auto found = splits.find(request.split);
  if (found != splits.end()) {
    std::vector<std::string> files =
        one_format(found->second, request.id + ", split " + request.split);
    if (!files.empty()) return files;
  }
  std::vector<std::string> known;
  std::vector<std::string_view> views;
  for (const auto& item : splits) known.push_back(item.first);
  for (const std::string& name : known) views.emplace_back(name);
  const std::string nearest = nearest_name(request.split, views);
  fail(ExitCode::kUsage, "hub", request.id, ": wanted the split '", request.split, "', found ",
       known.empty() ? "no files in a known format (parquet, arrow, jsonl, json, txt; the hub may "
                       "have a conversion as NAME@refs/convert/parquet)"
                     : "the splits " + join(known, ", "),
       nearest.empty() ? "" : "; perhaps '" + nearest + "' is meant", "; set split_name");
}

bool shards_missing(const std::vector<std::string>& files) {
  std::map<std::string, std::set<int64_t>> present;
  std::map<std::string, int64_t> wanted;
  for (const std::string& name : files)
    if (const auto shard = shard_name(name)) {
      present[shard->before].insert(shard->number);
      wanted[shard->before] = shard->count;
    }
  return std::any_of(wanted.begin(), wanted.end(), [&](const auto& item) {
    return static_cast<int64_t>(present[item.first].size()) < item.second;
  });
}

}  // namespace octavo::hub
