#pragma once
// A Hugging Face folder against the model that its config.json describes, by names and shapes: no
// weight is read, so that the largest model takes a moment.

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/hf_fp8.h"
#include "models/model.h"

namespace octavo::train {

// A model without memory: its tensors have names, shapes and no numbers.
struct Outline {
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<models::Model> model;
};
Outline make_outline(const Json& hugging_face_config, const std::string& source);

struct FolderMatch {
  models::NamedTensors outlines;        // what the model keeps in files, in its order
  std::vector<std::string> file_names;  // the same as this folder calls them
  std::vector<std::string> problems;    // one line each; the two above are whole when empty
};
FolderMatch match_folder(const checkpoint::HfWeights& weights, models::Model& outline);

// Fails when config.json describes far more weights than the files have: a model of that size would
// take the memory before the first missing weight is noticed.
void check_promised_size(const fs::path& folder);

struct FolderCheck {
  size_t shards = 0, tensors = 0, in_eight_bits = 0;
  int64_t parameters = 0;
  uint64_t bytes = 0;
  std::string method;                 // of quantization_config
  std::vector<std::string> problems;  // empty when whole
};
// Opens every shard, checks the index and the header of each file, and every tensor's name and
// shape. What cannot be opened at all is one problem.
FolderCheck check_folder(const fs::path& folder);

}  // namespace octavo::train
