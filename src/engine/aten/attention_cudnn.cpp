#include "engine/aten/attention_cudnn.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "base/error.h"
#include "engine/aten/aten.h"
#include "engine/torch_version.h"
#include "fake_cuda/fake_cuda.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

// cuDNN 9.0 and later have heads that share keys, in both passes.
constexpr long kLeastCudnn = 90000;
// Of its backward pass on both generations.
constexpr int64_t kWidestHead = 128;
// cuDNN makes a plan for every length that it meets, which takes long: not for those of evaluations
// and of generated text.
constexpr int64_t kLengthMultiple = 64;

DenseAttention by_cudnn() {
  return {.forward = [](const Tensor& q, const Tensor& k, const Tensor& v,
                        double scale) -> DenseAttention::Forward {
            const auto found = libtorch::cudnn_attention(q, k, v, scale);
            return {found.out, found.lse};
          },
          .backward =
              [](const Tensor& d_out, const Tensor& q, const Tensor& k, const Tensor& v,
                 const DenseAttention::Forward& saved, double scale) {
                return libtorch::cudnn_attention_backward(d_out, q, k, v, {saved.out, saved.lse},
                                                          scale);
              }};
}

libtorch::FlashShape of_one_length(const Tensor& q, const Tensor& k, double scale) {
  return {.starts = {},
          .longest_q = q.size(2),
          .longest_k = k.size(2),
          .scale = scale,
          .seen_back = {},
          .seen_ahead = {}};
}

// The fake CUDA device has no cuDNN. Flash attention of the same views stands in: as much is
// allocated, and a few kernels are launched.
DenseAttention by_flash() {
  const auto rows_first = [](const Tensor& t) { return t.transpose(1, 2); };
  return {.forward = [rows_first](const Tensor& q, const Tensor& k, const Tensor& v,
                                  double scale) -> DenseAttention::Forward {
            const auto found = libtorch::flash_attention(rows_first(q), rows_first(k),
                                                         rows_first(v), of_one_length(q, k, scale));
            return {rows_first(found.out), found.lse};
          },
          .backward =
              [rows_first](const Tensor& d_out, const Tensor& q, const Tensor& k, const Tensor& v,
                           const DenseAttention::Forward& saved, double scale) {
                const auto [dq, dk, dv] = libtorch::flash_attention_backward(
                    rows_first(d_out), rows_first(q), rows_first(k), rows_first(v),
                    {rows_first(saved.out), saved.lse}, of_one_length(q, k, scale));
                return std::make_tuple(rows_first(dq), rows_first(dk), rows_first(dv));
              }};
}

class OneLength final : public Attention {
 public:
  explicit OneLength(DenseAttention calls) : calls_(std::move(calls)) {}

  Forward forward(const Tensor& qkv, const Shape& h) override {
    if (!serves(h)) return flash_->forward(qkv, h);
    const Heads heads = heads_of(qkv, h);
    const DenseAttention::Forward found =
        calls_.forward(heads.q, heads.k, heads.v, h.softmax_scale());
    return {by_row(found.out), found.lse};
  }

  Tensor backward(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                  const Shape& h) override {
    if (!serves(h)) return flash_->backward(d_out, qkv, saved, h);
    const Parts parts = backward_parts(d_out, qkv, saved, h);
    return at::cat({parts.dq, parts.dk, parts.dv}, 1);
  }
  bool gives_parts() const override { return true; }
  Parts backward_parts(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                       const Shape& h) override {
    if (!serves(h)) return flash_->backward_parts(d_out, qkv, saved, h);
    const Heads heads = heads_of(qkv, h);
    const auto [dq, dk, dv] =
        calls_.backward(by_head(d_out, 0, h.heads, h), heads.q, heads.k, heads.v,
                        {by_head(saved.out, 0, h.heads, h), saved.lse}, h.softmax_scale());
    return {by_row(dq), by_row(dk), by_row(dv)};
  }

  Tensor extend(const Tensor& q, const Tensor& keys, const Tensor& values,
                const Shape& h) override {
    return flash_->extend(q, keys, values, h);
  }

 private:
  struct Heads {
    Tensor q, k, v;
  };
  static bool serves(const Shape& h) {
    return h.in_rows() && h.window == 0 && h.longest > 0 && h.longest % kLengthMultiple == 0 &&
           h.dim % 8 == 0 && h.dim <= kWidestHead;
  }
  // [B,heads,S,D] of the packed rows, where they lie.
  static Tensor by_head(const Tensor& rows, int64_t column, int64_t heads, const Shape& h) {
    const int64_t length = h.longest, stride = rows.stride(0);
    return rows.as_strided({rows.size(0) / length, heads, length, h.dim},
                           {length * stride, h.dim, stride, 1}, rows.storage_offset() + column);
  }
  static Heads heads_of(const Tensor& qkv, const Shape& h) {
    return {by_head(qkv, 0, h.heads, h), by_head(qkv, h.width(), h.kv_heads, h),
            by_head(qkv, h.width() + h.kv_heads * h.dim, h.kv_heads, h)};
  }
  static Tensor by_row(const Tensor& heads) {
    const Tensor rows = heads.transpose(1, 2);  // [B,S,heads,D]
    return rows.reshape({rows.size(0) * rows.size(1), rows.size(2) * rows.size(3)});
  }

  DenseAttention calls_;
  std::unique_ptr<Attention> flash_ = make_attention();
};

}  // namespace

std::unique_ptr<Attention> make_dense_attention(DenseAttention calls) {
  return std::make_unique<OneLength>(std::move(calls));
}

std::unique_ptr<Attention> make_cudnn_attention() {
  return make_dense_attention(fake_cuda::is_active() ? by_flash() : by_cudnn());
}

std::string cudnn_missing() {
  const auto& hooks = at::detail::getCUDAHooks();
  if (!hooks.compiledWithCuDNN()) return "libtorch was built without cuDNN";
  const long version = hooks.versionCuDNN();
  if (version < kLeastCudnn) return str("wanted cuDNN 9.0 or later, found ", version);
  return {};
}

}  // namespace octavo::engine::aten
