#include "train/state/folder_check.h"

#include <ATen/ATen.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "train/model_factory.h"

namespace octavo::train {
namespace {

constexpr size_t kShownProblems = 20;

at::Tensor outline_tensor(at::IntArrayRef shape) {
  return at::empty(shape, at::TensorOptions(at::kMeta).dtype(at::kFloat));
}

// Gives the model what it asks for, as far as the folder has it, and writes down what is not right.
class TensorLookup {
 public:
  TensorLookup(const checkpoint::HfWeights& weights, const models::NamedTensors& outlines)
      : weights_(weights) {
    for (const auto& [name, tensor] : outlines) wanted_[name] = tensor.sizes().vec();
  }

  at::Tensor operator()(const std::string& name) {
    const auto wanted = wanted_.find(name);
    if (wanted != wanted_.end()) last_wanted_ = name;
    if (excused_.contains(name)) return outline_tensor(wanted->second);
    if (!weights_.contains(name)) return {};
    file_names_.push_back(name);
    const auto& shape = weights_.shape(name);
    // By its older name the model checks the shape itself.
    if (wanted == wanted_.end() || shape == wanted->second) return outline_tensor(shape);
    problems_.push_back(octavo::str("tensor '", name, "': wanted shape ",
                                    at::IntArrayRef(wanted->second), ", found ",
                                    at::IntArrayRef(shape)));
    return outline_tensor(wanted->second);
  }

  // What the model wanted last was not there: it is taken as there from now on.
  void excuse(const std::string& problem) {
    missing_.push_back(problem);
    excused_.insert(last_wanted_);
    file_names_.clear();
    problems_.clear();
  }
  std::vector<std::string> problems() const {
    auto all = missing_;
    all.insert(all.end(), problems_.begin(), problems_.end());
    return all;
  }
  const std::vector<std::string>& file_names() const { return file_names_; }

 private:
  const checkpoint::HfWeights& weights_;
  std::map<std::string, std::vector<int64_t>> wanted_;
  std::set<std::string> excused_;
  std::string last_wanted_;
  std::vector<std::string> file_names_, missing_, problems_;
};

// A head that equals the embedding may be written twice; this compares the two, band by band of the
// files' pages.
bool may_be_left_out(const checkpoint::HfWeights& weights, const FolderMatch& match,
                     const models::Model& outline, const std::string& name) {
  const at::Tensor tensor = weights.files().tensor(name);
  if (name != "lm_head.weight") return outline.may_ignore(name, tensor);
  const at::Tensor kept = outline.head()->master;
  for (size_t i = 0; i < match.file_names.size(); ++i) {
    const auto& [wanted, sizes] = match.outlines[i];
    if (sizes.dim() != 2 || sizes.size(0) != outline.vocab_size()) continue;
    outline.head()->master = weights.tensor(match.file_names[i]);  // the embedding
    const bool ignored = outline.may_ignore(name, tensor);
    outline.head()->master = kept;
    return ignored;
  }
  return false;
}

// What the index says of the size; only said, for tools disagree in what they count.
void check_index_size(const checkpoint::HfWeights& weights) {
  const fs::path index = weights.files().folder / "model.safetensors.index.json";
  if (weights.files().shards.size() < 2 || !fs::exists(index)) return;
  const Json read = read_json(index);
  const auto metadata = read.find("metadata");
  if (metadata == read.end() || !metadata->is_object() || !metadata->contains("total_size")) return;
  if (metadata->at("total_size") != Json(weights.bytes()))
    log_warn(octavo::str(index.string(), ": total_size is ", metadata->at("total_size").dump(),
                         ", the tensors have ", weights.bytes(), " bytes"));
}

}  // namespace

Outline make_outline(const Json& config, const std::string& source) {
  Outline outline;
  outline.engine =
      std::make_unique<engine::Engine>(engine::Target{.device = at::kCPU, .compute = at::kFloat});
  outline.engine->target.device = at::kMeta;  // nothing is computed with it
  outline.model = make_model(config, source, *outline.engine, {.trainable = false});
  return outline;
}

FolderMatch match_folder(const checkpoint::HfWeights& weights, models::Model& outline) {
  FolderMatch match;
  match.outlines = outline.to_hugging_face();
  TensorLookup lookup(weights, match.outlines);
  while (lookup.problems().size() < kShownProblems) {
    try {
      outline.load_hugging_face([&](const std::string& name) { return lookup(name); });
      break;
    } catch (const Error& error) {
      lookup.excuse(error.what());
    }
  }
  match.problems = lookup.problems();
  match.file_names = lookup.file_names();
  if (!match.problems.empty()) return match;
  OCTAVO_ASSERT(match.file_names.size() == match.outlines.size());
  const std::set<std::string> used(match.file_names.begin(), match.file_names.end());
  for (const auto& name : weights.names())
    if (!used.contains(name) && !may_be_left_out(weights, match, outline, name))
      match.problems.push_back(octavo::str("tensor ", checkpoint::quote_name(name),
                                           " has no place in the model of config.json"));
  return match;
}

void check_promised_size(const fs::path& folder) {
  const std::string source = (folder / "config.json").string();
  const checkpoint::HfModel files = checkpoint::open_hf_model(folder);
  int64_t found = 0, promised = 0;
  for (const auto& [name, shard] : files.shard_of) {
    const auto& info = files.shards[shard].tensors().at(name);
    found += static_cast<int64_t>((info.end - info.begin) / c10::elementSize(info.dtype));
  }
  const Outline outline = make_outline(files.config, source);
  for (const auto& p : outline.model->params()) promised += p->master.numel();
  // The vocabulary is padded, and a tied head may be in the model once and in the files twice.
  constexpr int64_t kFew = 1 << 20;
  if (promised / 2 > found + kFew)
    fail(ExitCode::kDamaged, "train", source, ": describes a model of ", promised,
         " weights, the files of the folder have ", found,
         "; get config.json and the weights of one model");
}

FolderCheck check_folder(const fs::path& folder) {
  FolderCheck check;
  try {
    const checkpoint::HfWeights weights(folder);
    check.shards = weights.files().shards.size();
    check.tensors = weights.names().size();
    check.in_eight_bits = weights.in_eight_bits();
    check.bytes = weights.bytes();
    check.method = weights.method();
    const Outline outline = make_outline(weights.files().config, (folder / "config.json").string());
    const FolderMatch match = match_folder(weights, *outline.model);
    for (const auto& [name, tensor] : match.outlines) check.parameters += tensor.numel();
    check.problems = match.problems;
    check_index_size(weights);
  } catch (const Error& error) {
    check.problems.emplace_back(error.what());
  }
  return check;
}

}  // namespace octavo::train
