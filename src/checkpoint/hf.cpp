#include "checkpoint/hf.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/log.h"
#include "base/model_file.h"
#include "base/text.h"

namespace octavo::checkpoint {

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// Links are followed (the Hugging Face cache is made of them; model_file() refuses those that leave
// the folder), pipes and devices are not.
bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

fs::path shard_path(const fs::path& folder, const std::string& name, const std::string& source) {
  if (name.find('/') != std::string::npos || name.find('\\') != std::string::npos ||
      name.starts_with(".") || !name.ends_with(".safetensors"))
    fail(ExitCode::kDamaged, "checkpoint", source, ": shard name ", quote_name(name),
         " refused: wanted the plain name of a .safetensors file in the same folder");
  fs::path path = model_file(folder, name);
  if (!is_file(path))
    fail(ExitCode::kDamaged, "checkpoint", source, ": wanted shard ", name, ", found none in ",
         folder.string(), "; download the model again");
  return path;
}

void add_shard(HfModel& model, const fs::path& path) {
  model.shards.emplace_back(path);
  for (const auto& item : model.shards.back().tensors()) {
    auto [at, fresh] = model.shard_of.emplace(item.first, model.shards.size() - 1);
    if (!fresh)
      fail(ExitCode::kDamaged, "checkpoint", path.string(), ": tensor ", quote_name(item.first),
           " is also in ", model.shards[at->second].path().filename().string(),
           "; wanted each tensor once. Download the model again");
  }
}

void open_shards(HfModel& model) {
  std::string source = (model.folder / kIndex).string();
  Json index = read_json(model_file(model.folder, kIndex));
  const Json& map = json_field(index, "weight_map", Json::value_t::object, source);
  std::map<std::string, size_t> shard_index;
  for (const auto& item : map.items()) {
    if (!item.value().is_string())
      fail(ExitCode::kDamaged, "checkpoint", source, ": weight_map of ", quote_name(item.key()),
           ": wanted a file name, found ", item.value().type_name());
    auto name = item.value().get<std::string>();
    if (shard_index.emplace(name, model.shards.size()).second)
      add_shard(model, shard_path(model.folder, name, source));
    auto found = model.shard_of.find(item.key());
    if (found == model.shard_of.end() || found->second != shard_index.at(name))
      fail(ExitCode::kDamaged, "checkpoint", source, ": tensor ", quote_name(item.key()),
           " should be in ", name, ", which does not have it; download the model again");
  }
  for (const auto& item : model.shard_of)
    if (!map.contains(item.first))
      fail(ExitCode::kDamaged, "checkpoint", source, ": tensor ", quote_name(item.first), " of ",
           model.shards[item.second].path().filename().string(),
           " is not in the index; download the model again");
}

}  // namespace

const TensorInfo& HfModel::info(const std::string& name) const {
  auto found = shard_of.find(name);
  if (found != shard_of.end()) return shards[found->second].tensors().at(name);
  std::vector<std::string_view> names;
  for (const auto& item : shard_of) names.push_back(item.first);
  std::string near = nearest_name(name, names);
  fail(ExitCode::kDamaged, "checkpoint", folder.string(), ": wanted tensor ", quote_name(name),
       ", found none of that name among ", names.size(),
       near.empty() ? std::string() : "; the nearest is " + quote_name(near),
       "; check that config.json and the weights are of the same model");
}

at::Tensor HfModel::tensor(const std::string& name) const {
  info(name);
  return shards[shard_of.at(name)].tensor(name);
}

void HfModel::release(const std::string& name) const {
  shards[shard_of.at(name)].release(name);
}

bool has_hf_weights(const fs::path& folder) {
  return is_file(folder / kSingle) || is_file(folder / kIndex);
}

HfModel open_hf_model(const fs::path& folder) {
  HfModel model;
  model.folder = folder;
  if (!is_file(folder / "config.json"))
    fail(ExitCode::kUsage, "checkpoint", "wanted a Hugging Face model folder at ", folder.string(),
         ", found no config.json in it; give the folder that holds config.json");
  model.config = read_json(model_file(folder, "config.json"));
  if (!model.config.is_object())
    fail(ExitCode::kDamaged, "checkpoint", (folder / "config.json").string(),
         ": wanted a JSON object, found ", model.config.type_name());
  bool single = is_file(folder / kSingle), sharded = is_file(folder / kIndex);
  if (!single && !sharded)
    fail(ExitCode::kUsage, "checkpoint", "wanted ", kSingle, " or ", kIndex, " in ",
         folder.string(), ", found neither",
         is_file(folder / "pytorch_model.bin")
             ? "; pytorch_model.bin is a pickle, which is never read: convert it to safetensors"
             : "; download the weights as safetensors");
  if (single && sharded)
    log_warn(str(folder.string(), " has ", kSingle, " and ", kIndex,
                 ": the single file is read, as transformers does"));
  if (single)
    add_shard(model, model_file(folder, kSingle));
  else
    open_shards(model);
  return model;
}

}  // namespace octavo::checkpoint
