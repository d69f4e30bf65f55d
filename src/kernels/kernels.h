#pragma once
// What can be launched, and which kernel serves it. The text is one for the device (launches.cu,
// liboctavo_kernels.so) and the host (HostLauncher): a Launcher has
//   template <class Kernel> int32_t launch(int64_t blocks, const typename Kernel::Arguments&);
// Every function enqueues and returns 0, CUDA's error, or kUnsupported when no kernel serves it.

#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/fp8_stats.h"
#include "kernels/norm.h"
#include "kernels/norm_backward.h"
#include "kernels/quantize.h"
#include "kernels/rope.h"

namespace octavo::kernels {

constexpr int32_t kUnsupported = -1;

// Of a row that the kernels of norms take: forward, with transposed codes, and backward.
constexpr int32_t kMostNormColumns = 16384, kMostTransposedColumns = 4096,
                  kMostNormBackwardColumns = 8192;

enum class Stored : int32_t { kFp32, kBf16, kFp8 };
struct AdamWStorage {
  Stored master, gradient, moments;
};

namespace detail {

template <class Master, class Gradient, class Launcher>
int32_t adamw_by_moments(Launcher& on, Stored moments, const AdamWArguments& a, int64_t blocks) {
  switch (moments) {
    case Stored::kFp32:
      return on.template launch<AdamWKernel<Master, Gradient, float>>(blocks, a);
    case Stored::kBf16:
      return on.template launch<AdamWKernel<Master, Gradient, Bf16>>(blocks, a);
    case Stored::kFp8:
      return on.template launch<AdamWKernel<Master, Gradient, uint8_t>>(blocks, a);
  }
  return kUnsupported;
}

template <class Master, class Launcher>
int32_t adamw_by_gradient(Launcher& on, const AdamWStorage& s, const AdamWArguments& a,
                          int64_t blocks) {
  if (s.gradient == Stored::kFp32) return adamw_by_moments<Master, float>(on, s.moments, a, blocks);
  return adamw_by_moments<Master, Bf16>(on, s.moments, a, blocks);
}

}  // namespace detail

// All parameters of one storage. `blocks` is what plan_adamw() gave.
template <class Launcher>
int32_t launch_adamw(Launcher& on, const AdamWStorage& s, const AdamWArguments& a, int64_t blocks) {
  if (s.master == Stored::kFp8 || s.gradient == Stored::kFp8) return kUnsupported;
  if (s.master == Stored::kFp32) return detail::adamw_by_gradient<float>(on, s, a, blocks);
  return detail::adamw_by_gradient<Bf16>(on, s, a, blocks);
}
inline int64_t plan_adamw(AdamWTensor* tensors, int64_t count) {
  return plan_blocks<AdamWKernel<float, float, float>>(tensors, count);
}

// logits become their gradient; *total receives the sums over the rows.
template <class Launcher>
int32_t launch_cross_entropy(Launcher& on, const CrossEntropyArguments& a, LossSums* total) {
  if (const int32_t error = on.template launch<CrossEntropyKernel>(a.rows, a); error != 0)
    return error;
  return on.template launch<SumLossesKernel>(1, {a.of_rows, a.rows, total});
}

namespace detail {

// Threads and vectors by the length of a row.
template <bool kIsLayerNorm, class Launcher>
int32_t norm_by_columns(Launcher& on, const NormArguments& a) {
  const auto by = [&]<class Kernel>(Kernel) {
    return on.template launch<Kernel>(Kernel::blocks(a.rows), a);
  };
  if (a.column_codes != nullptr) {
    if (a.columns <= 1024) return by(NormKernel<kIsLayerNorm, 128, 1, 16>{});
    if (a.columns <= kMostTransposedColumns) return by(NormKernel<kIsLayerNorm, 256, 2, 8>{});
    return kUnsupported;
  }
  if (a.columns <= 1024) return by(NormKernel<kIsLayerNorm, 128, 1, 1>{});
  if (a.columns <= 4096) return by(NormKernel<kIsLayerNorm, 256, 2, 1>{});
  if (a.columns <= kMostNormColumns) return by(NormKernel<kIsLayerNorm, 512, 4, 1>{});
  return kUnsupported;
}

// Calls by(kernel) with the one for such rows.
template <bool kIsLayerNorm, class By>
auto norm_backward_by_columns(int64_t columns, const By& by) {
  if (columns <= 1024) return by(NormBackwardKernel<kIsLayerNorm, 128, 1, 512>{});
  if (columns <= 4096) return by(NormBackwardKernel<kIsLayerNorm, 256, 2, 256>{});
  return by(NormBackwardKernel<kIsLayerNorm, 512, 2, 256>{});
}

}  // namespace detail

template <class Launcher>
int32_t launch_norm(Launcher& on, bool is_layer_norm, const NormArguments& a) {
  return is_layer_norm ? detail::norm_by_columns<true>(on, a)
                       : detail::norm_by_columns<false>(on, a);
}

template <class Launcher>
int32_t launch_norm_backward(Launcher& on, bool is_layer_norm, const NormBackwardArguments& a) {
  if (a.columns > kMostNormBackwardColumns) return kUnsupported;
  const auto by = [&]<class Kernel>(Kernel) {
    return on.template launch<Kernel>(Kernel::blocks(a.rows), a);
  };
  return is_layer_norm ? detail::norm_backward_by_columns<true>(a.columns, by)
                       : detail::norm_backward_by_columns<false>(a.columns, by);
}

// What a launch writes for its own use: floats, and words that are 0 before and after it.
struct Scratch {
  int64_t floats = 0, tickets = 0;
};
inline Scratch norm_backward_scratch(bool is_layer_norm, int64_t rows, int64_t columns) {
  const auto of = [&]<class Kernel>(Kernel) {
    const int64_t blocks = Kernel::blocks(rows);
    return Scratch{blocks * Kernel::kSums * columns, 2 + blocks / kNormGroup};
  };
  return is_layer_norm ? detail::norm_backward_by_columns<true>(columns, of)
                       : detail::norm_backward_by_columns<false>(columns, of);
}

// `blocks` is what plan_quantize() gave. Sums are of a single tensor.
template <class Launcher>
int32_t launch_quantize(Launcher& on, fp8::Format format, const QuantizeArguments& a,
                        int64_t blocks) {
  if (a.sums != nullptr && a.count != 1) return kUnsupported;
  return format == fp8::Format::kE4M3
             ? on.template launch<QuantizeKernel<fp8::Format::kE4M3>>(blocks, a)
             : on.template launch<QuantizeKernel<fp8::Format::kE5M2>>(blocks, a);
}
inline int64_t plan_quantize(QuantizeArguments& a) {
  int64_t blocks = 0;
  for (int32_t i = 0; i < a.count; ++i) {
    a.tensors[i].first_block = static_cast<int32_t>(blocks);
    blocks += int64_t{quantize_tiles(a.tensors[i].rows)} * quantize_tiles(a.tensors[i].columns);
  }
  return blocks;
}
inline Scratch quantize_scratch(int64_t rows, int64_t columns) {
  return {quantize_tiles(rows) * columns, quantize_tiles(columns)};
}

template <class Launcher>
int32_t launch_rope(Launcher& on, Stored stored, const RopeArguments& a) {
  if (stored == Stored::kFp8) return kUnsupported;
  return stored == Stored::kBf16 ? on.template launch<RopeKernel<Bf16>>(a.rows, a)
                                 : on.template launch<RopeKernel<float>>(a.rows, a);
}

// parts has fp8_stats_parts(rows) places; stats has kStats.
constexpr int64_t fp8_stats_parts(int64_t rows) {
  return rows < kMostStatsBlocks ? rows : kMostStatsBlocks;
}
template <class Launcher>
int32_t launch_fp8_stats(Launcher& on, fp8::Format format, const Fp8StatsArguments& a,
                         double* stats) {
  if (a.rows * a.columns > int64_t{UINT32_MAX}) return kUnsupported;
  const int64_t blocks = fp8_stats_parts(a.rows);
  const int32_t error = format == fp8::Format::kE4M3
                            ? on.template launch<Fp8StatsKernel<fp8::Format::kE4M3>>(blocks, a)
                            : on.template launch<Fp8StatsKernel<fp8::Format::kE5M2>>(blocks, a);
  if (error != 0) return error;
  return on.template launch<JoinFp8StatsKernel>(1, {a.parts, blocks, stats});
}

}  // namespace octavo::kernels

// What liboctavo_kernels.so offers after dlopen. `stream` is a cudaStream_t.
struct OctavoKernels {
  int32_t (*adamw)(const octavo::kernels::AdamWStorage&, const octavo::kernels::AdamWArguments&,
                   int64_t blocks, void* stream);
  int32_t (*cross_entropy)(const octavo::kernels::CrossEntropyArguments&,
                           octavo::kernels::LossSums* total, void* stream);
  int32_t (*norm)(bool is_layer_norm, const octavo::kernels::NormArguments&, void* stream);
  int32_t (*norm_backward)(bool is_layer_norm, const octavo::kernels::NormBackwardArguments&,
                           void* stream);
  int32_t (*quantize)(octavo::fp8::Format, const octavo::kernels::QuantizeArguments&,
                      int64_t blocks, void* stream);
  int32_t (*rope)(octavo::kernels::Stored, const octavo::kernels::RopeArguments&, void* stream);
  int32_t (*fp8_stats)(octavo::fp8::Format, const octavo::kernels::Fp8StatsArguments&,
                       double* stats, void* stream);
};
extern "C" const OctavoKernels* octavo_kernels();
