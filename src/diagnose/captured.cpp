#include "diagnose/captured.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "base/progress.h"
#include "checkpoint/safetensors.h"

namespace octavo::diagnose {
namespace {

// A tensor of a layer's file, of the one shape that the manifest allows.
at::Tensor saved_tensor(const checkpoint::SafetensorsReader& reader, const char* name, int64_t rows,
                        int64_t columns) {
  const at::Tensor tensor = reader.tensor(name);
  if (tensor.dim() != 2 || tensor.size(0) != rows || tensor.size(1) != columns)
    fail(ExitCode::kDamaged, "diagnose", reader.path().string(), ": wanted ", name, " as [", rows,
         ", ", columns, "], as capture.json says, found ", tensor.sizes(),
         "; capture the step again");
  if (!at::isFloatingType(tensor.scalar_type()) || tensor.element_size() < 2)
    fail(ExitCode::kDamaged, "diagnose", reader.path().string(), ": wanted ", name,
         " as F32, F16 or BF16, found ", checkpoint::safetensors_dtype_name(tensor.scalar_type()),
         "; capture the step again");
  return tensor.to(at::kBFloat16);
}

LayerStats measured(const engine::Engine& engine, const fs::path& folder,
                    const CapturedLayer& layer, const std::vector<Variant>& all) {
  const fs::path path = join_inside(folder, layer.file);
  std::error_code unreadable;
  if (!fs::is_regular_file(path, unreadable))
    fail(ExitCode::kDamaged, "diagnose", "wanted ", path.string(), " with the tensors of ",
         layer.name, ", found none; copy the whole folder, or capture the step again");
  const checkpoint::SafetensorsReader reader(path);
  const int64_t tokens = layer.saved_tokens(), outputs = layer.saved_outputs();
  const at::Tensor x = saved_tensor(reader, "input", tokens, layer.inputs),
                   w = saved_tensor(reader, "weight", outputs, layer.inputs),
                   dy = saved_tensor(reader, "gradient", tokens, outputs);
  const auto factor = [&](const Variant& variant, fp8::Role role, fp8::Direction direction) {
    const at::Tensor& of = role == fp8::Role::kInput ? x : role == fp8::Role::kWeight ? w : dy;
    const fp8::Format format = side_of(variant.recipe, variant.format, role, direction).format;
    return factor_from_amax(variant, format, of.abs().max().to(at::kFloat).item<float>());
  };
  // The sizes of the whole layer decide; how many tokens a batch has is not the layer's doing.
  LayerStats stats = stats_for(layer.name, layer.outputs, layer.inputs, all);
  measure_forward(engine, x, w, factor, stats);
  measure_backward(engine, dy, layer.trainable ? x : at::Tensor(), w, factor, stats);
  return stats;
}

}  // namespace

CapturedDiagnosis diagnose_capture(const fs::path& folder, const fp8::Options& chosen) {
  CapturedDiagnosis found{
      .folder = folder.string(), .manifest = read_capture(folder), .chosen = chosen, .layers = {}};
  const engine::Engine engine(engine::Target{});  // the rehearsal on the CPU: it has every recipe
  const auto all = variants(chosen);
  octavo::Progress bar("diagnose", static_cast<double>(found.manifest.layers.size()), "");
  for (const CapturedLayer& layer : found.manifest.layers) {
    found.layers.push_back(measured(engine, folder, layer, all));
    bar.set(static_cast<double>(found.layers.size()), layer.name);
  }
  bar.finish();
  return found;
}

bool is_sick(const CapturedDiagnosis& found) {
  return std::ranges::any_of(kept_in_bf16(found.layers, variant_of(found.chosen)),
                             &KeptLayer::is_sick);
}

}  // namespace octavo::diagnose
