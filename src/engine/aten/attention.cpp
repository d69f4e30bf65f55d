// Flash attention: libtorch's kernel for CPUs, and its varlen kernel for GPUs.

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "engine/aten/aten.h"
#include "engine/torch_version.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

// The flash kernel of libtorch for CPUs, one sequence at a time. Queries, keys and values are views
// of the packed rows: the groups of heads that share a key are the kernel's batch, so that keys are
// read where they are, with stride 0 inside a group.
struct CpuFlash final : Attention {
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
  // Queries of one call, and the first key that they see; their last key is the last query's.
  struct Piece {
    int64_t begin, end, first_key;
  };
  static Heads heads_of(const Tensor& qkv, const Piece& piece, const Shape& h) {
    const Tensor keys = qkv.slice(0, piece.first_key, piece.end);
    return {by_head(qkv.slice(0, piece.begin, piece.end), 0, h, false),
            by_head(keys, h.width(), h, true),
            by_head(keys, h.width() + h.kv_heads * h.dim, h, true)};
  }
  // Whole sequences; with a window in pieces, so that what is far before it is not computed.
  static std::vector<Piece> pieces_of(const Shape& h) {
    constexpr int64_t kRows = 256;
    std::vector<Piece> pieces;
    for (size_t i = 0; i + 1 < h.bounds.size(); ++i) {
      const int64_t first = h.bounds[i], last = h.bounds[i + 1];
      const int64_t step = h.window > 0 ? kRows : last - first;
      for (int64_t begin = first; begin < last; begin += step)
        pieces.push_back({begin, std::min(begin + step, last),
                          h.window > 0 ? std::max(first, begin - h.window + 1) : first});
    }
    return pieces;
  }
  // Of `count` queries, the last of `length` keys: minus infinity for what they do not see.
  static Tensor mask_of(int64_t count, int64_t length, int64_t window, const Tensor& like) {
    const Tensor none = at::full({count, length}, -INFINITY, like.options());
    Tensor mask = none.triu(length - count + 1);
    if (window > 0) mask += none.tril(length - count - window);
    return mask;
  }
  static std::optional<Tensor> mask_of(const Piece& piece, const Shape& h, const Tensor& like) {
    if (h.window == 0) return std::nullopt;
    return mask_of(piece.end - piece.begin, piece.end - piece.first_key, h.window, like);
  }
  static std::optional<double> given_scale(const Shape& h) {
    return h.scale > 0 ? std::optional<double>(h.scale) : std::nullopt;
  }

  static libtorch::CpuFlashShape seen_by(const Piece& piece, const Shape& h, const Tensor& like) {
    return {.causal = h.window == 0, .mask = mask_of(piece, h, like), .scale = given_scale(h)};
  }

  // Sequences of one length whose heads share no keys: all in one call.
  static Forward forward_rows(const Tensor& qkv, const Shape& h, int64_t length) {
    const int64_t rows = qkv.size(0), row = h.row();
    const auto part = [&](int64_t column) {
      return qkv.as_strided({rows / length, h.heads, length, h.dim}, {length * row, h.dim, row, 1},
                            qkv.storage_offset() + column);
    };
    const auto [out, lse] =
        libtorch::cpu_flash_attention(part(0), part(h.width()), part(2 * h.width()),
                                      {.causal = true, .mask = {}, .scale = given_scale(h)});
    return {out.transpose(1, 2).reshape({rows, h.width()}),
            lse.transpose(0, 1).reshape({h.heads, rows}).contiguous()};
  }

  Forward forward(const Tensor& qkv, const Shape& h) override {
    if (h.group() == 1 && h.in_rows() && h.window == 0) return forward_rows(qkv, h, h.bounds[1]);
    const int64_t rows = qkv.size(0);
    Forward result{at::empty({rows, h.width()}, qkv.options()),
                   at::empty({h.heads, rows}, qkv.options().dtype(at::kFloat))};
    for (const Piece& piece : pieces_of(h)) {
      const int64_t begin = piece.begin, end = piece.end;
      const Heads part = heads_of(qkv, piece, h);
      const auto [out, lse] =
          libtorch::cpu_flash_attention(part.q, part.k, part.v, seen_by(piece, h, qkv));
      by_head(result.out.slice(0, begin, end), 0, h, false).copy_(out);
      result.lse.slice(1, begin, end).copy_(lse.reshape({h.heads, end - begin}));
    }
    return result;
  }

  Tensor backward(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                  const Shape& h) override {
    Tensor d_qkv =
        h.window > 0 ? at::zeros_like(qkv, qkv.options().dtype(at::kFloat)) : at::empty_like(qkv);
    for (const Piece& piece : pieces_of(h)) {
      const int64_t begin = piece.begin, end = piece.end;
      const Heads part = heads_of(qkv, piece, h);
      const auto [dq, dk, dv] = libtorch::cpu_flash_attention_backward(
          by_head(d_out.slice(0, begin, end), 0, h, false), part.q, part.k.contiguous(),
          part.v.contiguous(),
          {by_head(saved.out.slice(0, begin, end), 0, h, false),
           saved.lse.slice(1, begin, end).reshape({h.kv_heads, h.group(), end - begin})},
          seen_by(piece, h, qkv));
      const auto by_row = [](const Tensor& t) { return t.permute({2, 0, 1, 3}).flatten(1); };
      const Tensor d_keys = at::cat({by_row(dk.sum(1, true)), by_row(dv.sum(1, true))}, 1);
      if (h.window == 0) {
        d_qkv.slice(0, begin, end).copy_(at::cat({by_row(dq), d_keys}, 1));
        continue;
      }
      // Keys are seen by queries of several pieces.
      d_qkv.slice(0, begin, end).slice(1, 0, h.width()).copy_(by_row(dq));
      d_qkv.slice(0, piece.first_key, end).slice(1, h.width()).add_(d_keys);
    }
    return d_qkv.to(qkv.scalar_type());
  }

  Tensor extend(const Tensor& q, const Tensor& keys, const Tensor& values,
                const Shape& h) override {
    const int64_t count = q.size(0), length = keys.size(0);
    std::optional<Tensor> mask;  // a single token sees all
    if (count > 1 || (h.window > 0 && length > h.window))
      mask = mask_of(count, length, h.window, q);
    const auto found = libtorch::cpu_flash_attention(
        by_head(q, 0, h, false), by_head(keys, 0, h, true), by_head(values, 0, h, true),
        {.causal = false, .mask = mask, .scale = given_scale(h)});
    return found.out.permute({2, 0, 1, 3}).flatten(1);
  }
};

// All sequences in one call, where they lie in the packed rows. Heads that share keys are the
// kernel's affair.
struct GpuFlash final : Attention {
  static Tensor heads_at(const Tensor& rows, int64_t column, int64_t heads, int64_t dim) {
    return rows.narrow(1, column, heads * dim).unflatten(1, {heads, dim});
  }
  struct Heads {
    Tensor q, k, v;  // [T,H,D], [T,G,D]
  };
  static Heads heads_of(const Tensor& qkv, const Shape& h) {
    return {heads_at(qkv, 0, h.heads, h.dim), heads_at(qkv, h.width(), h.kv_heads, h.dim),
            heads_at(qkv, h.width() + h.kv_heads * h.dim, h.kv_heads, h.dim)};
  }

  Forward forward(const Tensor& qkv, const Shape& h) override {
    require(h);
    const Heads part = heads_of(qkv, h);
    const auto found =
        libtorch::flash_attention(part.q, part.k, part.v, seen(h, h.starts, h.longest, h.longest));
    return {found.out.flatten(1), found.lse};
  }

  Tensor backward(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                  const Shape& h) override {
    const Parts parts = backward_parts(d_out, qkv, saved, h);
    return at::cat({parts.dq, parts.dk, parts.dv}, 1);
  }
  Parts backward_parts(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                       const Shape& h) override {
    const Heads part = heads_of(qkv, h);
    const auto [dq, dk, dv] = libtorch::flash_attention_backward(
        heads_at(d_out, 0, h.heads, h.dim), part.q, part.k, part.v,
        {heads_at(saved.out, 0, h.heads, h.dim), saved.lse},
        seen(h, h.starts, h.longest, h.longest));
    return {dq.flatten(1), dk.flatten(1), dv.flatten(1)};
  }

  // The kernel's causal mask ends at the last query and the last key.
  Tensor extend(const Tensor& q, const Tensor& keys, const Tensor& values,
                const Shape& h) override {
    require(h);
    const auto found =
        libtorch::flash_attention(heads_at(q, 0, h.heads, h.dim).unsqueeze(0),
                                  heads_at(keys, 0, h.kv_heads, h.dim).unsqueeze(0),
                                  heads_at(values, 0, h.kv_heads, h.dim).unsqueeze(0),
                                  seen(h, Tensor(), q.size(0), keys.size(0)));
    return found.out.squeeze(0).flatten(1);
  }

 private:
  // Keys before a query's own, and behind it: the kernel's way to say a window.
  static libtorch::FlashShape seen(const Shape& h, const Tensor& starts, int64_t queries,
                                   int64_t keys) {
    libtorch::FlashShape shape{.starts = starts,
                               .longest_q = queries,
                               .longest_k = keys,
                               .scale = h.softmax_scale(),
                               .seen_back = {},
                               .seen_ahead = {}};
    if (h.window > 0) {
      shape.seen_back = h.window - 1;
      shape.seen_ahead = 0;
    }
    return shape;
  }
  static void require(const Shape& h) {
    if (h.dim % 8 != 0 || h.dim > 256)
      fail(ExitCode::kUsage, "engine", "attention on a GPU: wanted heads whose size is a multiple ",
           "of 8 and at most 256, found ", h.dim,
           "; change the number of heads, or run on the CPU");
  }
};

struct Flash final : Attention {
  Attention& on(const Tensor& t) {
    return t.is_cuda() ? static_cast<Attention&>(gpu_) : static_cast<Attention&>(cpu_);
  }
  Forward forward(const Tensor& qkv, const Shape& h) override { return on(qkv).forward(qkv, h); }
  Tensor backward(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                  const Shape& h) override {
    return on(qkv).backward(d_out, qkv, saved, h);
  }
  // On GPUs: whoever can use them asks there alone.
  bool gives_parts() const override { return true; }
  Parts backward_parts(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                       const Shape& h) override {
    OCTAVO_ASSERT(qkv.is_cuda());
    return gpu_.backward_parts(d_out, qkv, saved, h);
  }
  Tensor extend(const Tensor& q, const Tensor& keys, const Tensor& values,
                const Shape& h) override {
    return on(q).extend(q, keys, values, h);
  }

  CpuFlash cpu_;
  GpuFlash gpu_;
};

}  // namespace

std::unique_ptr<Attention> make_attention() {
  return std::make_unique<Flash>();
}

}  // namespace octavo::engine::aten
