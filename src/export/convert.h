#pragma once
// The tensors of an export's files, made one at a time from those of its source.

#include <ATen/ATen.h>

#include <map>
#include <set>
#include <string>

#include "config/settings.h"
#include "export/source.h"

namespace octavo::exporter {

inline constexpr int64_t kExportSide = 128;  // of fp8_block's blocks

// What is written of every tensor of the source.
class ExportConverter {
 public:
  ExportConverter(const ExportSource& source, config::ExportFormat format);

  const checkpoint::NamedTensors& outlines() const { return outlines_; }

  // One tensor of outlines().
  at::Tensor produce(const std::string& name);

 private:
  void add(const std::string& name, at::IntArrayRef shape, at::ScalarType type) {
    outlines_.emplace_back(name, at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)));
  }
  const char* suffix() const { return is_block_ ? "_scale_inv" : "_scale"; }
  // As the programs that made these formats write them.
  at::ScalarType scale_type() const { return is_block_ ? at::kFloat : at::kBFloat16; }
  // The matrix that a tensor of this name holds the scales of; "" when it holds none.
  std::string matrix_of_scale(const std::string& name) const;

  const ExportSource& source_;
  bool is_block_ = false;
  std::set<std::string> matrices_;
  checkpoint::NamedTensors outlines_;
  std::map<std::string, at::Tensor> scales_;  // of matrices already made: a few thousandths of them
};

}  // namespace octavo::exporter
