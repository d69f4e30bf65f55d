// Causal attention on CPUs. One task per (sequence, head); a task works on blocks of query rows
// against all keys up to their end, so that scores stay in the second-level cache and the upper
// triangle beyond a block is never computed.
//
// forward, per block:  S = Q K^T;  P = softmax(scale S), lse kept;  O = P V
// backward, per block: P = exp(scale S - lse);  dP = dO V^T;  dS = scale P (dP - rowsum(dO O))
//                      dQ = dS K;  dK += dS^T Q;  dV += P^T dO   (dK, dV in FP32 until the last
//                      block)

#include <ATen/ATen.h>

#include <cmath>
#include <mutex>
#include <vector>

#include "engine/cpu/cpu.h"
#include "engine/cpu/product.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include <hwy/contrib/math/math-inl.h>

#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

// Row r of the block sees keys [0, first + r]. p gets the probabilities, zero beyond; lse[r] = log
// sum exp(scale s).
void softmax_rows(const float* s, size_t rows, size_t keys, size_t first, float scale, uint16_t* p,
                  float* lse) {
  const F32 d;
  const VF scale_v = hn::Set(d, scale);
  std::vector<float> exps(keys + hn::Lanes(d));
  for (size_t r = 0; r < rows; ++r, s += keys, p += keys) {
    const size_t seen = first + r + 1;
    VF largest = hn::Set(d, -INFINITY);
    for_vectors(seen, [&](size_t i, size_t count) {
      largest = hn::Max(largest, load_any(d, s + i, count, -INFINITY));
    });
    const float max = hn::GetLane(hn::MaxOfLanes(d, largest)) * scale;
    const VF max_v = hn::Set(d, max);
    VF total = hn::Zero(d);
    for_vectors(seen, [&](size_t i, size_t count) {
      const VF x = hn::MulSub(load_any(d, s + i, count, -INFINITY), scale_v, max_v);
      const VF e = unless_nan(x, hn::Exp(d, x));
      hn::StoreU(e, d, exps.data() + i);
      total = hn::Add(total, e);
    });
    const float sum = sum_lanes(d, total);
    const VF inverse = hn::Set(d, 1.0f / sum);
    for_vectors(seen, [&](size_t i, size_t count) {
      store_any(hn::Mul(load_any(d, exps.data() + i, count), inverse), d, p + i, count);
    });
    std::fill(p + seen, p + keys, uint16_t{0});
    lse[r] = max + std::log(sum);
  }
}

// p = exp(scale s - lse), ds = scale p (dp - delta), both BF16 and zero beyond the diagonal.
void softmax_backward_rows(const float* s, const float* dp, const float* lse, const float* delta,
                           size_t rows, size_t keys, size_t first, float scale, uint16_t* p,
                           uint16_t* ds) {
  const F32 d;
  const VF scale_v = hn::Set(d, scale);
  for (size_t r = 0; r < rows; ++r, s += keys, dp += keys, p += keys, ds += keys) {
    const size_t seen = first + r + 1;
    const VF lse_v = hn::Set(d, lse[r]), delta_v = hn::Set(d, delta[r]);
    for_vectors(seen, [&](size_t i, size_t count) {
      const VF x = hn::MulSub(load_any(d, s + i, count), scale_v, lse_v);
      const VF prob = unless_nan(x, hn::Exp(d, x));
      store_any(prob, d, p + i, count);
      store_any(hn::Mul(hn::Mul(prob, scale_v), hn::Sub(load_any(d, dp + i, count), delta_v)), d,
                ds + i, count);
    });
    std::fill(p + seen, p + keys, uint16_t{0});
    std::fill(ds + seen, ds + keys, uint16_t{0});
  }
}

// out[r] = sum over columns of a * b
void row_dots(const uint16_t* a, const uint16_t* b, size_t rows, size_t columns, size_t stride,
              float* out) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, a += stride, b += stride) {
    VF sum = hn::Zero(d);
    for_vectors(columns, [&](size_t i, size_t count) {
      sum = hn::MulAdd(load_any(d, a + i, count), load_any(d, b + i, count), sum);
    });
    out[r] = sum_lanes(d, sum);
  }
}

void to_bf16_rows(const float* x, size_t rows, size_t columns, uint16_t* out, size_t stride) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, x += columns, out += stride)
    for_vectors(columns, [&](size_t i, size_t count) {
      store_any(load_any(d, x + i, count), d, out + i, count);
    });
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(softmax_rows);
HWY_EXPORT(softmax_backward_rows);
HWY_EXPORT(row_dots);
HWY_EXPORT(to_bf16_rows);

constexpr int64_t kBlockRows = 256;

// Sizes of one call, and the products of each block of query rows.
struct Plan {
  int64_t batch, heads, length, dim, row;  // row: elements between rows of qkv
  float scale;
  struct Block {
    int64_t first, rows, keys;
    const Product *scores, *out, *d_probs, *d_query, *d_key, *d_value;
  };
  std::vector<Block> blocks;
  size_t scratch = 0;
  int64_t width() const { return heads * dim; }
};

class CpuAttention final : public Attention {
 public:
  Forward forward(const at::Tensor& qkv, int64_t batch, int64_t heads) override {
    const Plan plan = make_plan(qkv, batch, heads, false);
    Forward result{at::empty({qkv.size(0), plan.width()}, qkv.options()),
                   at::empty({batch, heads, plan.length}, qkv.options().dtype(at::kFloat))};
    const auto* in = data<uint16_t>(qkv);
    auto* out = mutable_data<uint16_t>(result.out);
    auto* lse = result.lse.mutable_data_ptr<float>();
    at::parallel_for(0, batch * heads, 1, [&](int64_t begin, int64_t end) {
      Buffers buffers(plan);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t sequence = task / heads, head = task % heads;
        const uint16_t* q = in + sequence * plan.length * plan.row + head * plan.dim;
        forward_head(plan, q, out + sequence * plan.length * plan.width() + head * plan.dim,
                     lse + task * plan.length, buffers);
      }
    });
    return result;
  }

  at::Tensor backward(const at::Tensor& d_out, const at::Tensor& qkv, const Forward& saved,
                      int64_t batch, int64_t heads) override {
    const Plan plan = make_plan(qkv, batch, heads, true);
    at::Tensor d_qkv = at::empty_like(qkv);
    at::parallel_for(0, batch * heads, 1, [&](int64_t begin, int64_t end) {
      Buffers buffers(plan);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t sequence = task / heads, head = task % heads;
        const int64_t in = sequence * plan.length * plan.row + head * plan.dim;
        const int64_t out = sequence * plan.length * plan.width() + head * plan.dim;
        backward_head(plan, data<uint16_t>(qkv) + in, data<uint16_t>(saved.out) + out,
                      data<uint16_t>(d_out) + out, data<float>(saved.lse) + task * plan.length,
                      mutable_data<uint16_t>(d_qkv) + in, buffers);
      }
    });
    return d_qkv;
  }

 private:
  // One thread's working memory.
  struct Buffers {
    explicit Buffers(const Plan& plan) {
      const Plan::Block& last = plan.blocks.back();
      const auto cells = static_cast<size_t>(std::min(kBlockRows, plan.length) * last.keys);
      scores.resize(cells);
      d_probs.resize(cells);
      probs.resize(cells);
      d_scores.resize(cells);
      d_key.resize(static_cast<size_t>(plan.length * plan.dim));
      d_value.resize(static_cast<size_t>(plan.length * plan.dim));
      delta.resize(static_cast<size_t>(kBlockRows));
      scratch.resize(plan.scratch + 64);
    }
    std::byte* aligned_scratch() {
      void* p = scratch.data();
      size_t space = scratch.size();
      return static_cast<std::byte*>(std::align(64, scratch.size() - 64, p, space));
    }
    std::vector<float> scores, d_probs, d_key, d_value, delta;
    std::vector<uint16_t> probs, d_scores;
    std::vector<std::byte> scratch;
  };

  static void forward_head(const Plan& plan, const uint16_t* q, uint16_t* out, float* lse,
                           Buffers& b) {
    const uint16_t *k = q + plan.width(), *v = k + plan.width();
    std::byte* scratch = b.aligned_scratch();
    for (const auto& block : plan.blocks) {
      run(*block.scores, q + block.first * plan.row, k, nullptr, b.scores.data(), scratch);
      HWY_DYNAMIC_DISPATCH(softmax_rows)
      (b.scores.data(), static_cast<size_t>(block.rows), static_cast<size_t>(block.keys),
       static_cast<size_t>(block.first), plan.scale, b.probs.data(), lse + block.first);
      run(*block.out, b.probs.data(), v, nullptr, out + block.first * plan.width(), scratch);
    }
  }

  static void backward_head(const Plan& plan, const uint16_t* q, const uint16_t* out,
                            const uint16_t* d_out, const float* lse, uint16_t* dq, Buffers& b) {
    const uint16_t *k = q + plan.width(), *v = k + plan.width();
    std::byte* scratch = b.aligned_scratch();
    std::fill(b.d_key.begin(), b.d_key.end(), 0.0f);
    std::fill(b.d_value.begin(), b.d_value.end(), 0.0f);
    for (const auto& block : plan.blocks) {
      const uint16_t *q_rows = q + block.first * plan.row, *go = d_out + block.first * plan.width();
      const auto rows = static_cast<size_t>(block.rows), keys = static_cast<size_t>(block.keys);
      run(*block.scores, q_rows, k, nullptr, b.scores.data(), scratch);
      run(*block.d_probs, go, v, nullptr, b.d_probs.data(), scratch);
      HWY_DYNAMIC_DISPATCH(row_dots)
      (go, out + block.first * plan.width(), rows, static_cast<size_t>(plan.dim),
       static_cast<size_t>(plan.width()), b.delta.data());
      HWY_DYNAMIC_DISPATCH(softmax_backward_rows)
      (b.scores.data(), b.d_probs.data(), lse + block.first, b.delta.data(), rows, keys,
       static_cast<size_t>(block.first), plan.scale, b.probs.data(), b.d_scores.data());
      run(*block.d_query, b.d_scores.data(), k, nullptr, dq + block.first * plan.row, scratch);
      run(*block.d_key, b.d_scores.data(), q_rows, nullptr, b.d_key.data(), scratch);
      run(*block.d_value, b.probs.data(), go, nullptr, b.d_value.data(), scratch);
    }
    const auto length = static_cast<size_t>(plan.length), dim = static_cast<size_t>(plan.dim);
    const auto stride = static_cast<size_t>(plan.row);
    HWY_DYNAMIC_DISPATCH(to_bf16_rows)(b.d_key.data(), length, dim, dq + plan.width(), stride);
    HWY_DYNAMIC_DISPATCH(to_bf16_rows)
    (b.d_value.data(), length, dim, dq + 2 * plan.width(), stride);
  }

  Plan make_plan(const at::Tensor& qkv, int64_t batch, int64_t heads, bool backward) {
    Plan plan{.batch = batch,
              .heads = heads,
              .length = qkv.size(0) / batch,
              .dim = qkv.size(1) / 3 / heads,
              .row = qkv.size(1),
              .scale = 0,
              .blocks = {}};
    plan.scale = 1.0f / std::sqrt(static_cast<float>(plan.dim));
    const int64_t dim = plan.dim, row = plan.row, width = plan.width();
    for (int64_t first = 0; first < plan.length; first += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, plan.length - first), keys = first + rows;
      Plan::Block b{.first = first,
                    .rows = rows,
                    .keys = keys,
                    .scores = nullptr,
                    .out = nullptr,
                    .d_probs = nullptr,
                    .d_query = nullptr,
                    .d_key = nullptr,
                    .d_value = nullptr};
      const auto get = [&](ProductShape shape) {
        shape.one_thread = true;
        const Product& product = products_.get(shape);
        plan.scratch = std::max(plan.scratch, scratch_bytes(product));
        return &product;
      };
      // Queries, keys and values have rows of `row` elements, outputs of `width`, scores of `keys`.
      b.scores = get({.m = rows,
                      .n = keys,
                      .k = dim,
                      .lda = row,
                      .ldb = row,
                      .ldc = keys,
                      .b_transposed = true,
                      .fp32_result = true});
      if (!backward) {
        b.out = get({.m = rows, .n = dim, .k = keys, .lda = keys, .ldb = row, .ldc = width});
      } else {
        b.d_probs = get({.m = rows,
                         .n = keys,
                         .k = dim,
                         .lda = width,
                         .ldb = row,
                         .ldc = keys,
                         .b_transposed = true,
                         .fp32_result = true});
        b.d_query = get({.m = rows, .n = dim, .k = keys, .lda = keys, .ldb = row, .ldc = row});
        b.d_key = get({.m = keys,
                       .n = dim,
                       .k = rows,
                       .lda = keys,
                       .ldb = row,
                       .ldc = dim,
                       .a_transposed = true,
                       .fp32_result = true,
                       .add = true});
        b.d_value = get({.m = keys,
                         .n = dim,
                         .k = rows,
                         .lda = keys,
                         .ldb = width,
                         .ldc = dim,
                         .a_transposed = true,
                         .fp32_result = true,
                         .add = true});
      }
      plan.blocks.push_back(b);
    }
    return plan;
  }

  ProductCache products_;
};

}  // namespace

std::unique_ptr<Attention> make_attention() {
  return std::make_unique<CpuAttention>();
}

}  // namespace octavo::engine::cpu
#endif
