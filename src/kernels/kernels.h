#pragma once
// What can be launched, and which kernel serves it. The text is one for the device (launches.cu,
// liboctavo_kernels.so) and the host (HostLauncher): a Launcher has
//   template <class Kernel> int32_t launch(int64_t blocks, const typename Kernel::Arguments&);
// Every function enqueues and returns 0, CUDA's error, or kUnsupported when no kernel serves it.

#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/finite.h"
#include "kernels/fp8_stats.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace octavo::kernels {

constexpr int32_t kUnsupported = -1;

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

template <class Launcher>
int32_t launch_norm(Launcher& on, bool is_layer_norm, const NormArguments& a) {
  constexpr int kFew = 2, kMany = 8;
  if (a.columns > NormKernel<false, kMany>::kColumns) return kUnsupported;
  const bool few = a.columns <= NormKernel<false, kFew>::kColumns;
  if (is_layer_norm)
    return few ? on.template launch<NormKernel<true, kFew>>(a.rows, a)
               : on.template launch<NormKernel<true, kMany>>(a.rows, a);
  return few ? on.template launch<NormKernel<false, kFew>>(a.rows, a)
             : on.template launch<NormKernel<false, kMany>>(a.rows, a);
}

template <class Launcher>
int32_t launch_rope(Launcher& on, Stored stored, const RopeArguments& a) {
  if (stored == Stored::kFp8) return kUnsupported;
  return stored == Stored::kBf16 ? on.template launch<RopeKernel<Bf16>>(a.rows, a)
                                 : on.template launch<RopeKernel<float>>(a.rows, a);
}

// `blocks` is what plan_finite() gave.
template <class Launcher>
int32_t launch_finite(Launcher& on, const FiniteArguments& a, int64_t blocks) {
  return on.template launch<FiniteKernel>(blocks, a);
}
inline int64_t plan_finite(FiniteTensor* tensors, int64_t count) {
  return plan_blocks<FiniteKernel>(tensors, count);
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
  int32_t (*rope)(octavo::kernels::Stored, const octavo::kernels::RopeArguments&, void* stream);
  int32_t (*finite)(const octavo::kernels::FiniteArguments&, int64_t blocks, void* stream);
  int32_t (*fp8_stats)(octavo::fp8::Format, const octavo::kernels::Fp8StatsArguments&,
                       double* stats, void* stream);
};
extern "C" const OctavoKernels* octavo_kernels();
