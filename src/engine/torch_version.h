#pragma once
// The releases of libtorch that octavo builds with, and what differs between them.
//
// Operators with a leading underscore are not libtorch's public interface: a minor release may
// change or drop one. All that octavo calls are below, under names of their own and with the
// arguments that octavo gives; src/ calls them nowhere else (tests/lint/repository.py). Whoever
// raises the range compares the declarations of both releases (torch/include/ATen/ops) and runs
// tests/integration/build_matrix.py.
//
//                        2.14                                  2.15
//   _scaled_addmm_       none: a GEMM into FP32, then an add   one launch
//   _philox_randint_     none: made of _philox_uniform_        one launch
//   all others           the same declarations
//
// c10d: Backend and ProcessGroupNCCL have more members in 2.15. So a program runs with the minor
// release that it was compiled for: cli/core.cpp refuses others.

#include <ATen/ATen.h>
#include <torch/headeronly/version.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace octavo::engine::libtorch {

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 14 && TORCH_VERSION_MINOR <= 15,
              "wanted torch 2.14 or 2.15; run ./bootstrap, or read engine/torch_version.h");

using at::Tensor;
using Optional = std::optional<Tensor>;

// ---- attention

struct AttentionForward {
  Tensor out, lse;
};
using AttentionBackward = std::tuple<Tensor, Tensor, Tensor>;  // of q, k and v

// cuDNN: [B,heads,S,D], causal, sequences of one length.
inline AttentionForward cudnn_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                        double scale) {
  const auto found = at::_cudnn_attention_forward(
      q, k, v, /*attn_bias=*/std::nullopt, /*cum_seq_q=*/std::nullopt,
      /*cum_seq_k=*/std::nullopt, q.size(2), k.size(2), /*compute_log_sumexp=*/true,
      /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale);
  return {std::get<0>(found), std::get<1>(found)};
}
inline AttentionBackward cudnn_attention_backward(const Tensor& d_out, const Tensor& q,
                                                  const Tensor& k, const Tensor& v,
                                                  const AttentionForward& saved, double scale) {
  // Nothing was dropped: no one reads them.
  const Tensor no_random = at::empty({}, q.options().dtype(at::kLong));
  return at::_cudnn_attention_backward(
      d_out, q, k, v, saved.out, saved.lse, no_random, no_random, /*attn_bias=*/Tensor(),
      /*cum_seq_q=*/Tensor(), /*cum_seq_k=*/Tensor(), q.size(2), k.size(2), /*dropout_p=*/0.0,
      /*is_causal=*/true, scale);
}

// What a causal flash attention on a GPU sees. Without starts, batches of one length.
struct FlashShape {
  Tensor starts;  // of the sequences in packed rows, or undefined
  int64_t longest_q = 0, longest_k = 0;
  double scale = 1;
  std::optional<int64_t> seen_back, seen_ahead;  // keys before and behind a query's own
};
inline AttentionForward flash_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                        const FlashShape& shape) {
  const Optional starts = shape.starts.defined() ? Optional(shape.starts) : std::nullopt;
  const auto found = at::_flash_attention_forward(q, k, v, starts, starts, shape.longest_q,
                                                  shape.longest_k, /*dropout_p=*/0.0,
                                                  /*is_causal=*/true, /*return_debug_mask=*/false,
                                                  shape.scale, shape.seen_back, shape.seen_ahead);
  return {std::get<0>(found), std::get<1>(found)};
}
inline AttentionBackward flash_attention_backward(const Tensor& d_out, const Tensor& q,
                                                  const Tensor& k, const Tensor& v,
                                                  const AttentionForward& saved,
                                                  const FlashShape& shape) {
  const Tensor no_random = at::empty({0}, at::kLong);  // nothing was dropped
  return at::_flash_attention_backward(d_out, q, k, v, saved.out, saved.lse, shape.starts,
                                       shape.starts, shape.longest_q, shape.longest_k,
                                       /*dropout_p=*/0.0, /*is_causal=*/true, no_random, no_random,
                                       shape.scale, shape.seen_back, shape.seen_ahead);
}

// On CPUs; a mask of scores to add, or the causal one, or none.
struct CpuFlashShape {
  bool causal = true;
  Optional mask;
  std::optional<double> scale;
};
inline AttentionForward cpu_flash_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const CpuFlashShape& shape) {
  const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      q, k, v, /*dropout_p=*/0.0, shape.causal, shape.mask, shape.scale);
  return {out, lse};
}
inline AttentionBackward cpu_flash_attention_backward(const Tensor& d_out, const Tensor& q,
                                                      const Tensor& k, const Tensor& v,
                                                      const AttentionForward& saved,
                                                      const CpuFlashShape& shape) {
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(
      d_out, q, k, v, saved.out, saved.lse, /*dropout_p=*/0.0, shape.causal, shape.mask,
      shape.scale);
}

// ---- FP8 GEMMs

// at::blas::ScalingType and SwizzleType, whose header wants CUDA's.
enum Scaling : int64_t { kTensorWise = 0, kRowWise = 1, k1x32 = 3, k1x128 = 4, k128x128 = 5 };
enum Swizzle : int64_t { kNoSwizzle = 0, kSwizzle32x4x4 = 1 };

// One operand: a[M,K], or b[K,N].
struct ScaledOperand {
  Tensor codes, scales;
  int64_t scaling = kTensorWise, swizzle = kNoSwizzle;
};

// out = a x b + bias. `fast`: fewer bits in the sums.
inline void scaled_mm(const ScaledOperand& a, const ScaledOperand& b, const Optional& bias,
                      bool fast, Tensor& out) {
  at::_scaled_mm_v2_out(out, a.codes, b.codes, {a.scales}, {a.scaling}, {a.swizzle}, {b.scales},
                        {b.scaling}, {b.swizzle}, bias, out.scalar_type(),
                        /*contraction_dim=*/{}, fast);
}

// out = a x b, or out += a x b, where one launch does both.
inline constexpr bool kHasScaledAddmm = TORCH_VERSION_MINOR >= 15;
inline void scaled_addmm([[maybe_unused]] const ScaledOperand& a,
                         [[maybe_unused]] const ScaledOperand& b, [[maybe_unused]] bool add,
                         [[maybe_unused]] Tensor& out) {
#if TORCH_VERSION_MINOR >= 15
  at::_scaled_addmm_(out, a.codes, b.codes, {a.scales}, {a.scaling}, {a.swizzle}, {b.scales},
                     {b.scaling}, {b.swizzle}, /*contraction_dim=*/{}, /*beta=*/add ? 1 : 0);
#else
  TORCH_INTERNAL_ASSERT(false, "kHasScaledAddmm says that this libtorch has no such operator");
#endif
}

// ---- norms, loss, optimizer

inline std::tuple<Tensor, Tensor> fused_rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
  return at::_fused_rms_norm(x, {x.size(1)}, gamma, eps);
}
inline std::tuple<Tensor, Tensor> fused_rms_norm_backward(const Tensor& d_normed, const Tensor& x,
                                                          const Tensor& rstd, const Tensor& gamma,
                                                          bool with_dgamma) {
  return at::_fused_rms_norm_backward(d_normed, x, {x.size(1)}, rstd, gamma, {true, with_dgamma});
}

// Of rows in FP32, where they are: the kernel reads a row twice before it writes it.
inline Tensor& log_softmax_in_place(Tensor& rows) {
  return at::_log_softmax_out(rows, rows, 1, /*half_to_float=*/false);
}

inline void foreach_copy(at::TensorList to, at::TensorList from) {
  at::_foreach_copy_(to, from);
}
inline std::vector<Tensor> foreach_sum_of_squares(at::TensorList list) {
  return at::_foreach_powsum(list, 2, at::kDouble);
}

struct FusedAdamW {
  double lr, beta1, beta2, weight_decay, eps;
};
// Ignores strides; divides gradients by `divisor` where there is one, and leaves them so.
inline void fused_adamw(at::TensorList master, at::TensorList grad, at::TensorList m,
                        at::TensorList v, at::TensorList steps, const FusedAdamW& with,
                        const Optional& divisor) {
  at::_fused_adamw_(master, grad, m, v, /*max_exp_avg_sqs=*/{}, steps, with.lr, with.beta1,
                    with.beta2, with.weight_decay, with.eps, /*amsgrad=*/false,
                    /*maximize=*/false, divisor);
}

// Numbers of [0, 2^bits), bits at most 23, into int32: a pure function of the key (a seed, and the
// counter of the first four elements) and the place. The two releases draw different numbers.
inline Tensor& philox_bits(Tensor& numbers, const Tensor& key, int64_t bits) {
  const int64_t end = int64_t{1} << bits;
#if TORCH_VERSION_MINOR >= 15
  return at::_philox_randint_(numbers, key, 0, end);
#else
  // 24 random bits as an FP32 number in [0, 1), times a power of two, cut: exact.
  Tensor uniform = at::empty(numbers.sizes(), numbers.options().dtype(at::kFloat));
  at::_philox_uniform_(uniform, key, 0.0, 1.0);
  return numbers.copy_(uniform.mul_(static_cast<double>(end)));
#endif
}

}  // namespace octavo::engine::libtorch
