#include "engine/reference/reference.h"

#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <numbers>

namespace octavo::engine::reference {
namespace {

using at::Tensor;

Tensor exact(const Tensor& t) {
  return t.to(at::kDouble);
}

void store(Tensor& gradient, const Tensor& value, Accumulate mode) {
  if (mode == Accumulate::kAdd)
    gradient.copy_(exact(gradient) + value);
  else
    gradient.copy_(value);
}

struct PlainMatmul final : Matmul {
  void forward(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y) override {
    Tensor result = at::mm(exact(x), exact(w).t());
    if (bias.defined()) result += exact(bias);
    y.copy_(result);
  }
  void input_gradient(const Tensor& dy, const Tensor& w, Tensor& dx) override {
    dx.copy_(at::mm(exact(dy), exact(w)));
  }
  void weight_gradient(const Tensor& dy, const Tensor& x, Tensor& dw, Accumulate mode) override {
    store(dw, at::mm(exact(dy).t(), exact(x)), mode);
  }
};

struct PlainLayerNorm final : LayerNorm {
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, const Tensor& beta,
                  double eps) override {
    const Tensor sum = delta.defined() ? (exact(x) + exact(delta)).to(x.scalar_type()) : x;
    const Tensor s = exact(sum);  // the norm sees the rounded sum, as every implementation must
    const Tensor mean = s.mean(1, true);
    const Tensor rstd = ((s - mean).pow(2).mean(1, true) + eps).rsqrt();
    const Tensor normed = (s - mean) * rstd * exact(gamma) + exact(beta);
    return {sum, normed.to(x.scalar_type()), mean.squeeze(1).to(at::kFloat),
            rstd.squeeze(1).to(at::kFloat)};
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Tensor& dbeta, Accumulate mode) override {
    const Tensor rstd = exact(saved.rstd).unsqueeze(1), dn = exact(d_normed);
    const Tensor hat = (exact(saved.sum) - exact(saved.mean).unsqueeze(1)) * rstd;
    store(dgamma, (dn * hat).sum(0), mode);
    store(dbeta, dn.sum(0), mode);
    const Tensor g = dn * exact(gamma);
    Tensor dx = rstd * (g - g.mean(1, true) - hat * (g * hat).mean(1, true));
    if (d_sum.defined()) dx += exact(d_sum);
    return dx.to(d_normed.scalar_type());
  }
};

struct PlainGelu final : Gelu {
  // 0.5 x (1 + tanh u) = x sigmoid(2u), without the cancellation of 1 + tanh for negative x.
  static constexpr double kA = 0.044715;
  static constexpr double kC = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  static Tensor two_u(const Tensor& v) { return kC * (v + kA * v.pow(3)); }

  Tensor forward(const Tensor& x) override {
    return (exact(x) * two_u(exact(x)).sigmoid()).to(x.scalar_type());
  }
  void backward(Tensor& dy, const Tensor& x, Tensor& dbias, Accumulate mode) override {
    const Tensor v = exact(x), u2 = two_u(v), s = u2.sigmoid();
    const Tensor slope = s + v * s * (-u2).sigmoid() * kC * (1 + 3 * kA * v * v);
    dy.copy_(exact(dy) * slope);
    store(dbias, exact(dy).sum(0), mode);  // of the rounded values: what flows on
  }
};

struct PlainColumnSum final : ColumnSum {
  void add(const Tensor& x, Tensor& sums, Accumulate mode) override {
    store(sums, exact(x).sum(0), mode);
  }
};

struct PlainCrossEntropy final : CrossEntropy {
  Tensor run(Tensor& logits, const Tensor& targets, const Options& options) override {
    const Tensor valid = exact(logits.narrow(1, 0, options.classes));
    const Tensor counted = targets >= 0, ids = targets.clamp_min(0).to(at::kLong);
    const Tensor lse = valid.logsumexp(1), weight = counted.to(at::kDouble);
    const Tensor nll = (lse - valid.gather(1, ids.unsqueeze(1)).squeeze(1)) * weight;
    const Tensor z = lse * lse * weight;
    if (options.want_gradient) {
      const Tensor p = (valid - lse.unsqueeze(1)).exp();
      Tensor gradient = p * (1 + 2 * options.z_weight * lse).unsqueeze(1);
      gradient.scatter_add_(1, ids.unsqueeze(1),
                            at::full({ids.size(0), 1}, -1.0, gradient.options()));
      logits.zero_();
      logits.narrow(1, 0, options.classes)
          .copy_(gradient * weight.unsqueeze(1) * options.grad_scale);
    }
    if (options.each.defined()) options.each.copy_(at::stack({nll, z}, 1));
    return at::stack({nll.sum(), z.sum()});
  }
};

struct PlainEmbedding final : Embedding {
  Tensor forward(const Tensor& ids, const Tensor& tokens, const Tensor& positions,
                 int64_t length) override {
    Tensor x = exact(tokens.index_select(0, ids));
    if (positions.defined())
      x += exact(positions.narrow(0, 0, length)).repeat({ids.size(0) / length, 1});
    return x.to(tokens.scalar_type());
  }
  void backward(const Tensor& ids, const Tensor& dx, Tensor& d_tokens, Tensor& d_positions,
                int64_t length) override {
    d_tokens.copy_(exact(d_tokens).index_add(0, ids, exact(dx)));
    if (!d_positions.defined()) return;
    Tensor used = d_positions.narrow(0, 0, length);
    used.copy_(exact(used) + exact(dx).view({-1, length, dx.size(1)}).sum(0));
  }
};

}  // namespace

std::unique_ptr<Matmul> make_matmul() {
  return std::make_unique<PlainMatmul>();
}
std::unique_ptr<LayerNorm> make_layer_norm() {
  return std::make_unique<PlainLayerNorm>();
}
std::unique_ptr<Gelu> make_gelu() {
  return std::make_unique<PlainGelu>();
}
std::unique_ptr<ColumnSum> make_column_sum() {
  return std::make_unique<PlainColumnSum>();
}
std::unique_ptr<CrossEntropy> make_cross_entropy() {
  return std::make_unique<PlainCrossEntropy>();
}
std::unique_ptr<Embedding> make_embedding() {
  return std::make_unique<PlainEmbedding>();
}

}  // namespace octavo::engine::reference
