#pragma once
// capture.json: what octavo.capture (packaging/python/octavo/capture.py) saved of a PyTorch model.
// It comes from elsewhere and is taken for hostile: every size is bounded, file names are of one
// form, and layer names are such that they can be pasted into a program.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace octavo::diagnose {

inline constexpr const char* kCaptureManifest = "capture.json";

struct CapturedLayer {
  std::string name, kind;       // "model.layers.0.mlp.up_proj", the class of its module
  std::string layout, tied_to;  // how the module stores its weight; the parameter that it shares
  std::string file;
  int64_t outputs = 0, inputs = 0, tokens = 0;  // of the whole layer
  bool trainable = true;
  // Which groups of 128 rows were saved: of tokens, and of outputs.
  std::vector<int64_t> token_groups, output_groups;

  int64_t saved_tokens() const;
  int64_t saved_outputs() const;
  bool is_sampled() const { return saved_tokens() < tokens || saved_outputs() < outputs; }
};

struct LeftOut {
  std::string name, why;
};

struct CaptureManifest {
  std::string model, torch_version;
  std::optional<int64_t> step;
  std::vector<CapturedLayer> layers;
  std::vector<LeftOut> not_captured;
};

CaptureManifest parse_capture(std::string_view text, const std::string& source);
CaptureManifest read_capture(const fs::path& folder);

}  // namespace octavo::diagnose
