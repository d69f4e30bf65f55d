// The operations that came with Llama, and attention, whose heads may share keys.

#include <ATen/ATen.h>

#include <cmath>

#include "engine/reference/reference.h"

namespace octavo::engine::reference {
namespace {

using at::Tensor;

Tensor wide(const Tensor& t) {
  return t.to(at::kDouble);
}

struct PlainRmsNorm final : RmsNorm {
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, double eps) override {
    const Tensor sum = delta.defined() ? (wide(x) + wide(delta)).to(x.scalar_type()) : x;
    const Tensor s = wide(sum);  // the norm sees the rounded sum, as every implementation must
    const Tensor rstd = (s.pow(2).mean(1, true) + eps).rsqrt();
    return {sum, (s * rstd * wide(gamma)).to(x.scalar_type()), rstd.squeeze(1).to(at::kFloat)};
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Accumulate mode) override {
    const Tensor rstd = wide(saved.rstd).unsqueeze(1), dn = wide(d_normed);
    const Tensor hat = wide(saved.sum) * rstd, g = dn * wide(gamma);
    if (dgamma.defined()) {
      const Tensor value = (dn * hat).sum(0);
      dgamma.copy_(mode == Accumulate::kAdd ? wide(dgamma) + value : value);
    }
    Tensor dx = rstd * (g - hat * (g * hat).mean(1, true));
    if (d_sum.defined()) dx += wide(d_sum);
    return dx.to(d_normed.scalar_type());
  }
};

struct PlainSwiGlu final : SwiGlu {
  Tensor forward(const Tensor& x) override {
    const auto parts = wide(x).chunk(2, 1);
    return (parts[0] * parts[0].sigmoid() * parts[1]).to(x.scalar_type());
  }
  Tensor backward(const Tensor& dy, const Tensor& x) override {
    const auto parts = wide(x).chunk(2, 1);
    const Tensor &gate = parts[0], &up = parts[1], s = gate.sigmoid(), d = wide(dy);
    const Tensor d_gate = d * up * s * (1 + gate * (-gate).sigmoid());
    return at::cat({d_gate, d * gate * s}, 1).to(x.scalar_type());
  }
};

struct PlainGeGlu final : GeGlu {
  static constexpr double kSlope = 0.7978845608028654, kCubic = 0.044715;
  static Tensor tanh_of(const Tensor& x) { return ((x + kCubic * x.pow(3)) * kSlope).tanh(); }
  Tensor forward(const Tensor& x) override {
    const auto parts = wide(x).chunk(2, 1);
    return (0.5 * parts[0] * (1 + tanh_of(parts[0])) * parts[1]).to(x.scalar_type());
  }
  Tensor backward(const Tensor& dy, const Tensor& x) override {
    const auto parts = wide(x).chunk(2, 1);
    const Tensor &gate = parts[0], &up = parts[1], t = tanh_of(gate), d = wide(dy);
    const Tensor slope =
        0.5 * (1 + t) + 0.5 * gate * (1 - t * t) * kSlope * (1 + 3 * kCubic * gate.pow(2));
    return at::cat({d * up * slope, d * 0.5 * gate * (1 + t)}, 1).to(x.scalar_type());
  }
};

struct PlainRope final : Rope {
  void rotate(Tensor& x, const Tensor& positions, const Tensor& table, int64_t heads,
              bool back) override {
    const int64_t dim = table.size(1);
    Tensor part = x.narrow(1, 0, heads * dim).unflatten(1, {heads, dim});
    const auto angles = wide(table).index_select(0, positions).unsqueeze(1).chunk(2, 2);
    const Tensor& c = angles[0];
    const Tensor s = back ? -angles[1] : angles[1];
    const auto halves = wide(part).chunk(2, 2);
    const Tensor &a = halves[0], &b = halves[1];
    part.copy_(at::cat({a * c - b * s, b * c + a * s}, 2));
  }
};

struct PlainAttention final : Attention {
  struct Parts {
    Tensor q, k, v, p;  // of one sequence, FP64: [G,R,S,D], [G,1,S,D] and the probabilities
    double scale = 1;
  };
  // Of `count` queries, the last of `length` keys.
  static Tensor unseen(int64_t count, int64_t length, int64_t window,
                       const at::TensorOptions& options) {
    const Tensor all = at::ones({count, length}, options);
    Tensor mask = all.triu(length - count + 1);
    if (window > 0) mask += all.tril(length - count - window);
    return mask.to(at::kBool);
  }
  static Parts parts(const Tensor& qkv, const Shape& h) {
    const int64_t length = qkv.size(0), g = h.kv_heads;
    const auto split = wide(qkv).split_with_sizes({h.width(), g * h.dim, g * h.dim}, 1);
    const auto by_head = [&](const Tensor& t) {
      return t.view({length, g, -1, h.dim}).permute({1, 2, 0, 3});
    };
    Parts r{by_head(split[0]), by_head(split[1]), by_head(split[2]), {}, h.softmax_scale()};
    const Tensor mask = unseen(length, length, h.window, r.q.options());
    r.p = (at::matmul(r.q, r.k.transpose(2, 3)) * r.scale).masked_fill(mask, -INFINITY).softmax(-1);
    return r;
  }
  static Tensor by_row(const Tensor& t) { return t.permute({2, 0, 1, 3}).flatten(1); }

  Forward forward(const Tensor& qkv, const Shape& h) override {
    Tensor out = at::empty({qkv.size(0), h.width()}, qkv.options());
    for (size_t i = 0; i + 1 < h.bounds.size(); ++i) {
      const Parts r = parts(qkv.slice(0, h.bounds[i], h.bounds[i + 1]), h);
      out.slice(0, h.bounds[i], h.bounds[i + 1]).copy_(by_row(at::matmul(r.p, r.v)));
    }
    return {out, Tensor()};
  }
  Tensor backward(const Tensor& d_out, const Tensor& qkv, const Forward&, const Shape& h) override {
    Tensor d_qkv = at::empty_like(qkv);
    for (size_t i = 0; i + 1 < h.bounds.size(); ++i) {
      const int64_t begin = h.bounds[i], end = h.bounds[i + 1];
      const Parts r = parts(qkv.slice(0, begin, end), h);
      const Tensor go = wide(d_out.slice(0, begin, end))
                            .view({end - begin, h.kv_heads, h.group(), h.dim})
                            .permute({1, 2, 0, 3});
      const Tensor dv = at::matmul(r.p.transpose(2, 3), go).sum(1, true);
      const Tensor dp = at::matmul(go, r.v.transpose(2, 3));
      const Tensor ds = r.p * (dp - (dp * r.p).sum(-1, true)) * r.scale;
      const Tensor dq = at::matmul(ds, r.k);
      const Tensor dk = at::matmul(ds.transpose(2, 3), r.q).sum(1, true);
      d_qkv.slice(0, begin, end).copy_(at::cat({by_row(dq), by_row(dk), by_row(dv)}, 1));
    }
    return d_qkv;
  }
  Tensor extend(const Tensor& q, const Tensor& keys, const Tensor& values,
                const Shape& h) override {
    const int64_t count = q.size(0), length = keys.size(0);
    const auto by_head = [&](const Tensor& t) {
      return wide(t).reshape({t.size(0), h.kv_heads, -1, h.dim}).permute({1, 2, 0, 3});
    };
    const Tensor score = at::matmul(by_head(q), by_head(keys).transpose(2, 3)) * h.softmax_scale();
    const Tensor mask = unseen(count, length, h.window, score.options());
    const Tensor p = score.masked_fill(mask, -INFINITY).softmax(-1);
    return by_row(at::matmul(p, by_head(values))).to(q.scalar_type());
  }
};

}  // namespace

std::unique_ptr<RmsNorm> make_rms_norm() {
  return std::make_unique<PlainRmsNorm>();
}
std::unique_ptr<SwiGlu> make_swiglu() {
  return std::make_unique<PlainSwiGlu>();
}
std::unique_ptr<GeGlu> make_geglu() {
  return std::make_unique<PlainGeGlu>();
}
std::unique_ptr<Rope> make_rope() {
  return std::make_unique<PlainRope>();
}
std::unique_ptr<Attention> make_attention() {
  return std::make_unique<PlainAttention>();
}

}  // namespace octavo::engine::reference
