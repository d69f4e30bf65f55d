#pragma once
// Where an export comes from: a checkpoint, a Hugging Face folder, or adapters merged into theirs.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "train/state/folder_check.h"
#include "train/state/persist.h"

namespace octavo::exporter {

struct ExportSource {
  std::string name;               // for messages
  Json config;                    // of Hugging Face, as octavo writes it
  Json source_config;             // the folder's own config.json; empty when there is none
  std::string tokenizer;          // to load it by
  fs::path files;                 // where its files lie; "" when nowhere
  models::NamedTensors outlines;  // names and shapes of the tensors to write
  // Of rows with answers: the template that it was trained with.
  std::optional<config::ChatTemplate> chat_template;
  std::vector<std::string> matrices;  // of the blocks, by their names in files
  // One tensor by its name, as precise as the source has it.
  std::function<at::Tensor(const std::string& name)> tensor;
  train::Loaded
      loaded;  // BF16, to compute with; may be dropped once `tensor` is not needed any more
};

ExportSource open_export_source(const config::Settings& settings);

}  // namespace octavo::exporter
