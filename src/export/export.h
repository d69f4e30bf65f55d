#pragma once
// A model handed on: a Hugging Face folder that transformers, vLLM and octavo itself read; or
// adapters, as a folder that peft reads.
//
// It is written under a temporary name beside the output, one tensor in memory at a time, read back
// through the reader that everybody uses, and gets its name only when a fixed text has the same
// loss as with the source, within the bound of the format.

#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/export_shards.h"
#include "config/settings.h"

namespace octavo::exporter {

struct ExportReport {
  size_t files = 0;
  uint64_t bytes = 0;
  std::vector<std::string> copied, written, missing;  // files beside the weights
  std::string chat_template;  // that they speak of: what the model was trained with; "" for none
  std::string text;           // what the loss is of
  double source_loss = 0, export_loss = 0;  // BF16 computation
  double difference = 0, bound = 0;         // relative
};

// How far the loss may move, relative to it. BF16: rounding moves a weight by 2^-8 of itself at
// most; losses move by some 1e-4 of themselves. FP8: by 2^-4 at most, and a few percent on average;
// pretrained models lose well under 1 % by it. Scales in the wrong order, a matrix transposed or a
// wrong name cost far more than the bounds here, which are there to find such.
double loss_bound(config::ExportFormat format);

// settings: checkpoint, checkpoint_dir, output, export_format.
ExportReport export_model(const config::Settings& settings,
                          uint64_t max_shard_bytes = checkpoint::kExportShardBytes);

}  // namespace octavo::exporter
