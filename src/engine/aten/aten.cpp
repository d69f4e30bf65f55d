#include "engine/aten/aten.h"

#include <ATen/ATen.h>

#include <tuple>

namespace octavo::engine::aten {
namespace {

using at::Tensor;

// ATen's CPU kernels have no FP32 result for BF16 operands: there the operands are widened first.
Tensor fp32_product(const Tensor& a, const Tensor& b) {
  if (a.is_cpu()) return at::mm(a.to(at::kFloat), b.to(at::kFloat));
  return at::mm(a, b, at::kFloat);
}

struct AtenMatmul final : Matmul {
  void forward(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y) override {
    const bool bf16_on_cpu = x.is_cpu() && x.scalar_type() == at::kBFloat16;
    if (!bias.defined())
      at::mm_out(y, x, w.t());
    else if (bf16_on_cpu)  // addmm would round the product before it adds the bias
      y.copy_(fp32_product(x, w.t()).add_(bias));
    else
      at::addmm_out(y, bias.to(x.scalar_type()), x, w.t());
  }
  void input_gradient(const Tensor& dy, const Tensor& w, Tensor& dx) override {
    at::mm_out(dx, dy, w);
  }
  void weight_gradient(const Tensor& dy, const Tensor& x, Tensor& dw, Accumulate mode) override {
    const bool add = mode == Accumulate::kAdd;
    if (dy.scalar_type() == at::kFloat)
      at::addmm_out(dw, dw, dy.t(), x, add ? 1 : 0, 1);
    else if (add)
      dw.add_(fp32_product(dy.t(), x));
    else
      dw.copy_(fp32_product(dy.t(), x));
  }
};

// The flash kernel of libtorch for CPUs, one sequence at a time. Queries, keys and values are views
// of the packed rows: the groups of heads that share a key are the kernel's batch, so that keys are
// read where they are, with stride 0 inside a group.
struct AtenAttention final : Attention {
  static Tensor by_head(const Tensor& rows, int64_t column, const Shape& h, bool shared) {
    const int64_t group = h.group(), stride = rows.stride(0);
    return rows.narrow(1, column, 1)
        .as_strided({h.kv_heads, group, rows.size(0), h.dim},
                    {shared ? h.dim : group * h.dim, shared ? 0 : h.dim, stride, 1},
                    rows.storage_offset() + column);
  }
  struct Heads {
    Tensor q, k, v;  // [G,R,S,D]
  };
  static Heads heads_of(const Tensor& rows, const Shape& h) {
    return {by_head(rows, 0, h, false), by_head(rows, h.width(), h, true),
            by_head(rows, h.width() + h.kv_heads * h.dim, h, true)};
  }

  // Sequences of one length whose heads share no keys: all in one call.
  static Forward forward_rows(const Tensor& qkv, const Shape& h, int64_t length) {
    const int64_t rows = qkv.size(0), row = h.row();
    const auto part = [&](int64_t column) {
      return qkv.as_strided({rows / length, h.heads, length, h.dim}, {length * row, h.dim, row, 1},
                            qkv.storage_offset() + column);
    };
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        part(0), part(h.width()), part(2 * h.width()), 0.0, /*is_causal=*/true);
    return {out.transpose(1, 2).reshape({rows, h.width()}),
            lse.transpose(0, 1).reshape({h.heads, rows}).contiguous()};
  }

  Forward forward(const Tensor& qkv, const Shape& h) override {
    if (h.group() == 1 && h.in_rows()) return forward_rows(qkv, h, h.bounds[1]);
    const int64_t rows = qkv.size(0);
    Forward result{at::empty({rows, h.width()}, qkv.options()),
                   at::empty({h.heads, rows}, qkv.options().dtype(at::kFloat))};
    for (size_t i = 0; i + 1 < h.bounds.size(); ++i) {
      const int64_t begin = h.bounds[i], end = h.bounds[i + 1];
      const Heads part = heads_of(qkv.slice(0, begin, end), h);
      const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
          part.q, part.k, part.v, 0.0, /*is_causal=*/true);
      by_head(result.out.slice(0, begin, end), 0, h, false).copy_(out);
      result.lse.slice(1, begin, end).copy_(lse.reshape({h.heads, end - begin}));
    }
    return result;
  }

  Tensor backward(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                  const Shape& h) override {
    Tensor d_qkv = at::empty_like(qkv);
    for (size_t i = 0; i + 1 < h.bounds.size(); ++i) {
      const int64_t begin = h.bounds[i], end = h.bounds[i + 1];
      const Heads part = heads_of(qkv.slice(0, begin, end), h);
      const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          by_head(d_out.slice(0, begin, end), 0, h, false), part.q, part.k.contiguous(),
          part.v.contiguous(), by_head(saved.out.slice(0, begin, end), 0, h, false),
          saved.lse.slice(1, begin, end).reshape({h.kv_heads, h.group(), end - begin}), 0.0,
          /*is_causal=*/true);
      const auto by_row = [](const Tensor& t) { return t.permute({2, 0, 1, 3}).flatten(1); };
      d_qkv.slice(0, begin, end)
          .copy_(at::cat({by_row(dq), by_row(dk.sum(1, true)), by_row(dv.sum(1, true))}, 1));
    }
    return d_qkv;
  }

  Tensor extend(const Tensor& q, const Tensor& keys, const Tensor& values,
                const Shape& h) override {
    const int64_t count = q.size(0), length = keys.size(0);
    Tensor mask;  // a single token sees all
    if (count > 1)
      mask = at::full({count, length}, -INFINITY, q.options()).triu_(length - count + 1);
    const auto found = at::_scaled_dot_product_flash_attention_for_cpu(
        by_head(q, 0, h, false), by_head(keys, 0, h, true), by_head(values, 0, h, true), 0.0,
        /*is_causal=*/false,
        mask.defined() ? std::optional<Tensor>(mask) : std::optional<Tensor>());
    return std::get<0>(found).permute({2, 0, 1, 3}).flatten(1);
  }
};

}  // namespace

std::unique_ptr<Matmul> make_matmul() {
  return std::make_unique<AtenMatmul>();
}
std::unique_ptr<Attention> make_attention() {
  return std::make_unique<AtenAttention>();
}

}  // namespace octavo::engine::aten
