// Statistics of a quantized matrix on a GPU: every element, in two launches.

#include <ATen/ATen.h>

#include <optional>

#include "base/error.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/traffic.h"
#include "fp8/health.h"

namespace octavo::engine::own {

std::optional<at::Tensor> fp8_stats(const at::Tensor& x, const at::Tensor& codes,
                                    const at::Tensor& decode, fp8::Format format,
                                    const fp8::Grid& grid) {
  static_assert(kernels::kStats == fp8::kHealthStats);
  if (!x.is_cuda() || x.scalar_type() != at::kBFloat16 || library().kernels == nullptr ||
      x.numel() > int64_t{UINT32_MAX} || format == fp8::Format::kE2M1)
    return std::nullopt;
  const at::NoGradGuard no_grad;
  const at::Tensor values = x.contiguous(), bytes = codes.contiguous(),
                   factors = decode.contiguous();
  OCTAVO_ASSERT(bytes.numel() == values.numel() && factors.numel() == grid.count());
  OCTAVO_ASSERT(factors.scalar_type() == at::kFloat && codes.element_size() == 1);
  const int64_t parts = kernels::fp8_stats_parts(x.size(0));
  const auto size = static_cast<int64_t>(sizeof(kernels::Fp8Stats));
  at::Tensor of_blocks = at::empty({parts * size}, x.options().dtype(at::kByte)),
             stats = at::empty({kernels::kStats}, x.options().dtype(at::kDouble));
  const kernels::Fp8StatsArguments arguments{
      .x = static_cast<const kernels::Bf16*>(values.const_data_ptr()),
      .codes = static_cast<const uint8_t*>(bytes.const_data_ptr()),
      .decode = factors.const_data_ptr<float>(),
      .parts = static_cast<kernels::Fp8Stats*>(of_blocks.mutable_data_ptr()),
      .rows = x.size(0),
      .columns = static_cast<int32_t>(x.size(1)),
      .block_rows = static_cast<int32_t>(grid.block_rows),
      .block_columns = static_cast<int32_t>(grid.block_columns),
      .grid_columns = static_cast<int32_t>(grid.grid_columns)};
  launch_for(x, found_kernels(), "FP8 statistics", [&](const OctavoKernels& all, void* stream) {
    return all.fp8_stats(format, arguments, stats.mutable_data_ptr<double>(), stream);
  });
  note_traffic("octavo_fp8_stats", {values, bytes, factors}, {of_blocks, stats});
  return stats;
}

}  // namespace octavo::engine::own
