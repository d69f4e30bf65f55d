#include "hub/card.h"

#include <yaml-cpp/yaml.h>

#include <sstream>

#include "base/error.h"
#include "base/log.h"

namespace octavo::hub {
namespace {

constexpr size_t kMaxBlock = size_t{1} << 20, kMaxSubsets = 10'000;

// The lines of `configs:` in the YAML between the first two "---"; the rest, which can be long, is
// not parsed at all.
std::string configs_block(const std::string& card) {
  std::istringstream lines(card);
  std::string line, block;
  const auto next = [&] {
    if (!std::getline(lines, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  };
  if (!next() || line != "---") return "";
  while (next() && line != "---") {
    const bool begins_key = !line.empty() && line[0] != ' ' && line[0] != '-' && line[0] != '#';
    if (begins_key && !block.empty()) break;
    if (line == "configs:" || !block.empty()) block += line + "\n";
    if (block.size() > kMaxBlock) return "";
  }
  return block;
}

std::vector<std::string> texts_of(const YAML::Node& node) {
  std::vector<std::string> texts;
  if (node.IsScalar()) texts.push_back(node.as<std::string>());
  if (node.IsSequence())
    for (const auto& item : node) texts.push_back(item.as<std::string>());
  return texts;
}

CardSubset read_subset(const YAML::Node& node) {
  CardSubset subset;
  subset.name = node["config_name"].as<std::string>("default");
  subset.is_default = node["default"].as<bool>(false);
  const std::string folder = node["data_dir"].as<std::string>("");
  const auto add = [&](const std::string& split, std::vector<std::string> patterns) {
    if (!folder.empty())
      for (std::string& pattern : patterns) pattern.insert(0, folder + "/");
    subset.patterns.emplace_back(split, std::move(patterns));
  };
  const YAML::Node files = node["data_files"];
  if (!files) {
    subset.folder = folder;
  } else if (files.IsMap()) {
    for (const auto& item : files) add(item.first.as<std::string>(), texts_of(item.second));
  } else if (files.IsSequence() && files.size() > 0 && files[0].IsMap()) {
    for (const auto& item : files)
      add(item["split"].as<std::string>("train"), texts_of(item["path"]));
  } else {
    add("train", texts_of(files));
  }
  return subset;
}

}  // namespace

std::vector<CardSubset> read_card(const std::string& card, const std::string& id) {
  const std::string block = configs_block(card);
  std::vector<CardSubset> subsets;
  if (block.empty()) return subsets;
  try {
    const YAML::Node configs = YAML::Load(block)["configs"];
    if (configs.size() > kMaxSubsets) throw YAML::Exception(YAML::Mark(), "too many subsets");
    for (const auto& node : configs) subsets.push_back(read_subset(node));
  } catch (const YAML::Exception& error) {
    log_warn(str("[hub] ", id, ": the card's list of files is not understood (", error.msg,
                 "); the files' names decide which split they are"));
    subsets.clear();
  }
  return subsets;
}

}  // namespace octavo::hub
