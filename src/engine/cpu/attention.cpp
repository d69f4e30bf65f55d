// Causal attention on CPUs. One task per (sequence, key head): the heads of a group share its keys
// and values, so their queries are stacked and go through one GEMM. Queries and keys are taken
// in blocks of kBlock rows, so that every GEMM is in one core's cache, and blocks beyond the
// diagonal are never computed. Operands are first copied into dense memory: oneDNN's fast kernels
// want it. Neither are blocks before the window of their queries. A sequence's last block is filled
// up with zeros to a multiple of kStep rows: documents have every length, and a GEMM is compiled
// for each number of rows.
//
// forward, per pair of blocks (m: largest score so far, l: sum):
//   P = exp(scale Q_i K_j^T - m);  O_i = O_i exp(m_before - m) + P V_j;  in the end O_i / l
// backward, per pair of blocks:
//   P = exp(scale Q_i K_j^T - lse);  dP = dO_i V_j^T;  dS = scale P (dP - rowsum(dO O))
//   dQ_i += dS K_j;  dK_j += dS^T Q_i;  dV_j += P^T dO_i   (sums in FP32)
//
// Rows of one length whose heads share no keys go forward by libtorch's flash kernel, which is as
// fast there.

#include <ATen/ATen.h>

#include <atomic>
#include <cmath>
#include <map>
#include <tuple>

#include "base/checked.h"
#include "engine/aten/aten.h"
#include "engine/cpu/attention_rows.h"
#include "engine/cpu/bf16_rows.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/rows.h"

namespace octavo::engine::cpu {
namespace {

constexpr int64_t kBlock = 256, kStep = 32;

// The GEMMs of a sequence's blocks, by [query block is the last][key block is the last]. `rows`
// are those of all heads of a group.
struct BlockGemms {
  const Gemm* scores[2][2];
  const Gemm* weighted[2][2]
                      [2];  // [rows, keys] x [keys, dim]; the last index: adds to what is there
  const Gemm* transposed[2][2];  // [rows, keys]^T x [rows, dim], adds
  size_t scratch = 0;
};

// One sequence cut into blocks; the last has `last` rows, of which `real` are the sequence's.
struct Blocks {
  explicit Blocks(int64_t sequence)
      : length(sequence),
        count(ceil_div(sequence, kBlock)),
        real(sequence - (count - 1) * kBlock),
        last(round_up(real, kStep)) {}
  int64_t length, count, real, last;
  int64_t padded() const { return (count - 1) * kBlock + last; }
  int64_t rows(int64_t block) const { return block + 1 == count ? last : kBlock; }
  int64_t real_rows(int64_t block) const { return block + 1 == count ? real : kBlock; }
  int is_last(int64_t block) const { return block + 1 == count ? 1 : 0; }
};

// One thread's working memory, carved out of one tensor so that it comes from the keeping
// allocator.
class Workspace {
 public:
  explicit Workspace(size_t bytes) : memory_(at::empty({static_cast<int64_t>(bytes)}, at::kByte)) {}
  template <typename T>
  T* take(int64_t count) {
    T* part = reinterpret_cast<T*>(static_cast<std::byte*>(memory_.mutable_data_ptr()) + used_);
    used_ += round_up(static_cast<size_t>(count) * sizeof(T), size_t{64});
    OCTAVO_ASSERT(used_ <= static_cast<size_t>(memory_.numel()));
    return part;
  }

 private:
  at::Tensor memory_;
  size_t used_ = 0;
};

// `real` dense rows, and zeros behind them up to `rows`.
void copy_rows(const uint16_t* from, int64_t stride, int64_t real, int64_t rows, int64_t columns,
               uint16_t* to) {
  for (int64_t r = 0; r < real; ++r) std::copy_n(from + r * stride, columns, to + r * columns);
  std::fill(to + real * columns, to + rows * columns, uint16_t{0});
}

// Tasks are handed out one by one: on a shared machine cores are not equally fast.
template <class Body>
void for_tasks(int64_t tasks, const Body& body_of_thread) {
  std::atomic<int64_t> next{0};
  parallel_for(0, std::min<int64_t>(at::get_num_threads(), tasks), 1, [&](int64_t, int64_t) {
    body_of_thread([&] {
      const int64_t task = next++;
      return task < tasks ? task : -1;
    });
  });
}

// One sequence and one key head with the queries of its group. Stacked: block by block, in each the
// rows of one head behind the other's.
struct Group {
  const Attention::Shape& shape;
  const BlockGemms& gemms;
  Blocks blocks;
  int64_t key_head, first;  // row of qkv where the sequence begins

  int64_t dim() const { return shape.dim; }
  int64_t heads() const { return shape.group(); }
  int64_t head(int64_t i) const { return key_head * heads() + i; }
  int64_t key_column() const { return shape.width() + key_head * dim(); }
  int64_t value_column() const { return key_column() + shape.kv_heads * dim(); }
  // Where the rows of a head of a block begin in stacked memory.
  int64_t stacked(int64_t block, int64_t i) const {
    return (block * kBlock * heads() + i * blocks.rows(block)) * dim();
  }
  float scale() const {
    return shape.scale > 0 ? static_cast<float>(shape.scale)
                           : 1.0f / std::sqrt(static_cast<float>(dim()));
  }
  // The first block of keys that a block of queries sees any of.
  int64_t first_block(int64_t i) const {
    return shape.window > 0 ? std::max<int64_t>(0, i * kBlock - shape.window + 1) / kBlock : 0;
  }
  SeenKeys seen(int64_t i, int64_t j) const {
    const int64_t from = shape.window > 0 ? (i - j) * kBlock - shape.window + 1 : -kBlock;
    return {.diagonal = i == j, .first = from};
  }

  // The group's columns of rows of `stride`, stacked.
  void stack(const uint16_t* rows, int64_t stride, uint16_t* to) const {
    for (int64_t b = 0; b < blocks.count; ++b)
      for (int64_t i = 0; i < heads(); ++i)
        copy_rows(rows + (first + b * kBlock) * stride + head(i) * dim(), stride,
                  blocks.real_rows(b), blocks.rows(b), dim(), to + stacked(b, i));
  }
  void dense(const uint16_t* qkv, int64_t column, uint16_t* to) const {
    copy_rows(qkv + first * shape.row() + column, shape.row(), blocks.length, blocks.padded(),
              dim(), to);
  }
};

class CpuAttention final : public Attention {
 public:
  explicit CpuAttention(GemmOperands operands) : cache_(operands) {}

  Forward forward(const at::Tensor& qkv, const Shape& shape) override {
    if (shape.group() == 1 && shape.in_rows() && shape.window == 0)
      return rows_->forward(qkv, shape);
    Forward result{at::empty({qkv.size(0), shape.width()}, qkv.options()),
                   at::empty({shape.heads, qkv.size(0)}, qkv.options().dtype(at::kFloat))};
    for_groups(shape, [&](const Group& group, Space& space) {
      forward_group(group, data<uint16_t>(qkv), mutable_data<uint16_t>(result.out),
                    mutable_data<float>(result.lse), qkv.size(0), space);
    });
    return result;
  }

  at::Tensor extend(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                    const Shape& shape) override {
    return rows_->extend(q, keys, values, shape);
  }

  at::Tensor backward(const at::Tensor& d_out, const at::Tensor& qkv, const Forward& saved,
                      const Shape& shape) override {
    at::Tensor d_qkv = at::empty_like(qkv);
    const Rows rows{.qkv = data<uint16_t>(qkv),
                    .out = data<uint16_t>(saved.out),
                    .d_out = data<uint16_t>(d_out),
                    .lse = data<float>(saved.lse),
                    .lse_stride = qkv.size(0),
                    .d_qkv = mutable_data<uint16_t>(d_qkv)};
    for_groups(shape,
               [&](const Group& group, Space& space) { backward_group(group, rows, space); });
    return d_qkv;
  }

 private:
  struct Rows {
    const uint16_t *qkv, *out, *d_out;
    const float* lse;
    int64_t lse_stride;
    uint16_t* d_qkv;
  };

  // One thread's memory for sequences of up to `rows` rows and groups of `heads`.
  struct Space : Workspace {
    Space(int64_t rows, int64_t heads, int64_t dim, size_t scratch_size)
        : Workspace(static_cast<size_t>(rows * dim * (8 * heads + 12) +
                                        heads * kBlock * (12 * kBlock + 12)) +
                    scratch_size + 64 * 20) {
      q = take<uint16_t>(rows * heads * dim);
      d_out = take<uint16_t>(rows * heads * dim);
      dq = take<float>(rows * heads * dim);
      k = take<uint16_t>(rows * dim);
      v = take<uint16_t>(rows * dim);
      dk = take<float>(rows * dim);
      dv = take<float>(rows * dim);
      scores = take<float>(heads * kBlock * kBlock);
      d_probs = take<float>(heads * kBlock * kBlock);
      probs = take<uint16_t>(heads * kBlock * kBlock);
      d_scores = take<uint16_t>(heads * kBlock * kBlock);
      delta = take<float>(heads * kBlock);
      most = take<float>(heads * kBlock);
      sums = take<float>(heads * kBlock);
      scratch = take<std::byte>(static_cast<int64_t>(scratch_size));
    }
    uint16_t *q, *d_out, *k, *v, *probs, *d_scores;
    float *dq, *dk, *dv, *scores, *d_probs, *delta, *most, *sums;
    std::byte* scratch;
  };

  template <class Body>
  void for_groups(const Shape& shape, const Body& body) {
    const auto sequences = static_cast<int64_t>(shape.bounds.size()) - 1;
    const auto bound = [&](int64_t i) { return shape.bounds[static_cast<size_t>(i)]; };
    int64_t longest = 0;
    for (int64_t i = 0; i < sequences; ++i) {
      const Blocks blocks(bound(i + 1) - bound(i));
      longest = std::max(longest, blocks.padded());
      make_ready(shape, blocks);
    }
    for_tasks(sequences * shape.kv_heads, [&](const auto& next_task) {
      Space space(longest, shape.group(), shape.dim, scratch_);
      for (int64_t task = next_task(); task >= 0; task = next_task()) {
        const int64_t first = bound(task / shape.kv_heads);
        const Blocks blocks(bound(task / shape.kv_heads + 1) - first);
        body(Group{shape, *gemms_.at(key_of(shape, blocks)), blocks, task % shape.kv_heads, first},
             space);
      }
    });
  }

  static void forward_group(const Group& g, const uint16_t* qkv, uint16_t* out, float* lse,
                            int64_t lse_stride, Space& w) {
    g.stack(qkv, g.shape.row(), w.q);
    g.dense(qkv, g.key_column(), w.k);
    g.dense(qkv, g.value_column(), w.v);
    for (int64_t i = 0; i < g.blocks.count; ++i) {
      float* sum = w.dq;  // of one block
      for (int64_t j = g.first_block(i); j <= i; ++j) forward_block(g, i, j, sum, w);
      for (int64_t h = 0; h < g.heads(); ++h) {
        const int64_t row = g.first + i * kBlock, stacked = h * g.blocks.rows(i);
        finish_rows(sum + stacked * g.dim(), w.most + stacked, w.sums + stacked,
                    static_cast<size_t>(g.blocks.real_rows(i)), static_cast<size_t>(g.dim()),
                    out + row * g.shape.width() + g.head(h) * g.dim(),
                    static_cast<size_t>(g.shape.width()), lse + g.head(h) * lse_stride + row);
      }
    }
  }

  static void forward_block(const Group& g, int64_t i, int64_t j, float* sum, Space& w) {
    const int li = g.blocks.is_last(i), lj = g.blocks.is_last(j);
    const int64_t rows = g.blocks.rows(i), keys = g.blocks.rows(j);
    run(*g.gemms.scores[li][lj], w.q + g.stacked(i, 0), w.k + j * kBlock * g.dim(), nullptr,
        w.scores, w.scratch);
    for (int64_t h = 0; h < g.heads(); ++h)
      softmax_forward_rows(w.scores + h * rows * keys, static_cast<size_t>(rows),
                           static_cast<size_t>(g.blocks.real_rows(i)), static_cast<size_t>(keys),
                           g.seen(i, j), j == g.first_block(i), g.scale(),
                           w.probs + h * rows * keys, w.most + h * rows, w.sums + h * rows,
                           sum + h * rows * g.dim(), static_cast<size_t>(g.dim()));
    run(*g.gemms.weighted[li][lj][j > g.first_block(i) ? 1 : 0], w.probs,
        w.v + j * kBlock * g.dim(), nullptr, sum, w.scratch);
  }

  static void backward_group(const Group& g, const Rows& rows, Space& w) {
    g.stack(rows.qkv, g.shape.row(), w.q);
    g.stack(rows.d_out, g.shape.width(), w.d_out);
    g.dense(rows.qkv, g.key_column(), w.k);
    g.dense(rows.qkv, g.value_column(), w.v);
    std::fill_n(w.dk, g.blocks.padded() * g.dim(), 0.0f);
    std::fill_n(w.dv, g.blocks.padded() * g.dim(), 0.0f);
    for (int64_t i = 0; i < g.blocks.count; ++i) {
      const int64_t row = g.first + i * kBlock;
      for (int64_t h = 0; h < g.heads(); ++h) {
        const int64_t at = row * g.shape.width() + g.head(h) * g.dim();
        row_dots(rows.d_out + at, rows.out + at, static_cast<size_t>(g.blocks.real_rows(i)),
                 static_cast<size_t>(g.dim()), static_cast<size_t>(g.shape.width()),
                 w.delta + h * g.blocks.rows(i));
      }
      for (int64_t j = g.first_block(i); j <= i; ++j) backward_block(g, i, j, rows, w);
      for (int64_t h = 0; h < g.heads(); ++h)
        store_rows(g, w.dq + g.stacked(i, h), g.blocks.real_rows(i),
                   rows.d_qkv + row * g.shape.row() + g.head(h) * g.dim());
    }
    uint16_t* to = rows.d_qkv + g.first * g.shape.row();
    store_rows(g, w.dk, g.blocks.length, to + g.key_column());
    store_rows(g, w.dv, g.blocks.length, to + g.value_column());
  }

  static void store_rows(const Group& g, const float* from, int64_t rows, uint16_t* to) {
    to_bf16_rows(from, static_cast<size_t>(rows), static_cast<size_t>(g.dim()), to,
                 static_cast<size_t>(g.shape.row()));
  }

  static void backward_block(const Group& g, int64_t i, int64_t j, const Rows& rows, Space& w) {
    const int64_t query = g.stacked(i, 0), key = j * kBlock * g.dim(), count = g.blocks.rows(i),
                  keys = g.blocks.rows(j);
    const int li = g.blocks.is_last(i), lj = g.blocks.is_last(j);
    run(*g.gemms.scores[li][lj], w.q + query, w.k + key, nullptr, w.scores, w.scratch);
    run(*g.gemms.scores[li][lj], w.d_out + query, w.v + key, nullptr, w.d_probs, w.scratch);
    for (int64_t h = 0; h < g.heads(); ++h)
      softmax_backward_rows(w.scores + h * count * keys, w.d_probs + h * count * keys,
                            rows.lse + g.head(h) * rows.lse_stride + g.first + i * kBlock,
                            w.delta + h * count, static_cast<size_t>(count),
                            static_cast<size_t>(g.blocks.real_rows(i)), static_cast<size_t>(keys),
                            g.seen(i, j), g.scale(), w.probs + h * count * keys,
                            w.d_scores + h * count * keys);
    run(*g.gemms.weighted[li][lj][j > g.first_block(i) ? 1 : 0], w.d_scores, w.k + key, nullptr,
        w.dq + query, w.scratch);
    run(*g.gemms.transposed[li][lj], w.d_scores, w.q + query, nullptr, w.dk + key, w.scratch);
    run(*g.gemms.transposed[li][lj], w.probs, w.d_out + query, nullptr, w.dv + key, w.scratch);
  }

  // Width of a head, heads of a group, rows of the last block, whether it is the only one.
  using Key = std::tuple<int64_t, int64_t, int64_t, bool>;
  static Key key_of(const Shape& shape, const Blocks& blocks) {
    return {shape.dim, shape.group(), blocks.last, blocks.count == 1};
  }

  // Made before the threads start: at most 2 kBlock / kStep of them for a model.
  void make_ready(const Shape& shape, const Blocks& blocks) {
    auto& entry = gemms_[key_of(shape, blocks)];
    if (entry == nullptr)
      entry = std::make_unique<BlockGemms>(make_gemms(shape, blocks.last, blocks.count == 1));
    scratch_ = std::max(scratch_, entry->scratch);
  }

  // Compiling a GEMM takes milliseconds: a single block needs three of the sixteen.
  BlockGemms make_gemms(const Shape& shape_of_all, int64_t last, bool single) {
    const int64_t dim = shape_of_all.dim, heads = shape_of_all.group();
    BlockGemms made{};
    const auto get = [&](GemmShape shape) {
      shape.one_thread = true;
      shape.fp32_result = true;
      const Gemm& gemm = cache_.get(shape);
      made.scratch = std::max(made.scratch, scratch_bytes(gemm));
      return &gemm;
    };
    for (int li = single ? 1 : 0; li < 2; ++li)
      for (int lj = single ? 1 : 0; lj < 2; ++lj) {
        const int64_t rows = heads * (li != 0 ? last : kBlock), keys = lj != 0 ? last : kBlock;
        made.scores[li][lj] = get({.m = rows,
                                   .n = keys,
                                   .k = dim,
                                   .lda = dim,
                                   .ldb = dim,
                                   .ldc = keys,
                                   .b_transposed = true});
        for (const bool add : {false, true}) {
          if (single && add) continue;
          made.weighted[li][lj][add ? 1 : 0] = get(
              {.m = rows, .n = dim, .k = keys, .lda = keys, .ldb = dim, .ldc = dim, .add = add});
        }
        made.transposed[li][lj] = get({.m = keys,
                                       .n = dim,
                                       .k = rows,
                                       .lda = keys,
                                       .ldb = dim,
                                       .ldc = dim,
                                       .a_transposed = true,
                                       .add = true});
      }
    return made;
  }

  std::unique_ptr<Attention> rows_ = aten::make_attention();
  GemmCache cache_;
  std::map<Key, std::unique_ptr<BlockGemms>> gemms_;
  size_t scratch_ = 0;
};

}  // namespace

std::unique_ptr<Attention> make_attention(GemmOperands operands) {
  return std::make_unique<CpuAttention>(operands);
}

}  // namespace octavo::engine::cpu
