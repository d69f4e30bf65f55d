#include "export/convert.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "nn/fp8_weight.h"

namespace octavo::exporter {
namespace {

using config::ExportFormat;

// In parts: the check makes copies, and an embedding may be gigabytes.
at::Tensor finite(const at::Tensor& values, const std::string& name) {
  constexpr int64_t kPart = 1 << 24;
  const at::Tensor flat = values.reshape({-1});
  for (int64_t first = 0; first < flat.numel(); first += kPart)
    if (!at::isfinite(flat.narrow(0, first, std::min(kPart, flat.numel() - first)))
             .all()
             .item<bool>())
      fail(ExitCode::kDamaged, "train", "weight '", name,
           "': wanted finite numbers in the range of BF16, found others; the model is broken, "
           "take an earlier checkpoint");
  return values;
}

}  // namespace

ExportConverter::ExportConverter(const ExportSource& source, ExportFormat format)
    : source_(source) {
  if (format == ExportFormat::kBf16) {
    for (const auto& [name, tensor] : source.outlines) add(name, tensor.sizes(), at::kBFloat16);
    return;
  }
  is_block_ = format == ExportFormat::kFp8Block;
  matrices_ = {source.matrices.begin(), source.matrices.end()};
  size_t ragged = 0;
  for (const auto& [name, tensor] : source.outlines) {
    const bool is_matrix = matrices_.contains(name);
    add(name, tensor.sizes(), is_matrix ? at::kFloat8_e4m3fn : at::kBFloat16);
    if (!is_matrix) continue;
    const int64_t rows = tensor.size(0), columns = tensor.size(1);
    add(name + suffix(),
        is_block_ ? at::IntArrayRef{ceil_div(rows, kExportSide), ceil_div(columns, kExportSide)}
                  : at::IntArrayRef{rows, 1},
        scale_type());
    ragged += is_block_ && (rows % kExportSide != 0 || columns % kExportSide != 0) ? 1 : 0;
  }
  if (ragged > 0)
    log_warn(octavo::str(
        ragged, " of ", matrices_.size(), " matrices have a side that is no multiple of ",
        kExportSide,
        ": octavo reads such fp8_block folders, but vLLM refuses them where it joins layers, and "
        "transformers, dequantizing on a CPU, refuses or misreads them; fp8_channel has no such "
        "limit"));
}

std::string ExportConverter::matrix_of_scale(const std::string& name) const {
  const std::string end = suffix();
  if (matrices_.empty() || !name.ends_with(end)) return "";
  const std::string matrix = name.substr(0, name.size() - end.size());
  return matrices_.contains(matrix) ? matrix : "";
}
at::Tensor ExportConverter::produce(const std::string& name) {
  const std::string matrix = matrix_of_scale(name);
  if (!matrix.empty() && scales_.contains(matrix)) return scales_.at(matrix);
  const std::string& stored = matrix.empty() ? name : matrix;
  const at::Tensor values = source_.tensor(stored);
  if (!matrices_.contains(stored)) return finite(values.to(at::kBFloat16), name);
  const nn::Fp8Block block =
      is_block_ ? nn::Fp8Block{kExportSide, kExportSide} : nn::Fp8Block{1, values.size(1)};
  auto made = nn::quantize_weight(values, block, scale_type(), checkpoint::quote_name(stored));
  scales_[stored] = made.scales;
  return matrix.empty() ? made.codes : made.scales;
}

}  // namespace octavo::exporter
