// GELU, SwiGLU, GeGLU and the sums of columns that their layers' biases want.

#include <ATen/ATen.h>

#include "engine/aten/aten.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

// The gradient may be another's, in the compute dtype: sums are in FP32.
void add_columns(const Tensor& x, Tensor& sums, Accumulate mode) {
  if (sums.scalar_type() != at::kFloat) {
    const Tensor made = at::sum(x, 0, /*keepdim=*/false, at::kFloat);
    sums = mode == Accumulate::kAdd ? at::add(made, sums) : made;
  } else if (mode == Accumulate::kAdd)
    sums.add_(at::sum(x, 0, /*keepdim=*/false, at::kFloat));
  else
    at::sum_out(sums, x, 0, /*keepdim=*/false, at::kFloat);
}

struct AtenGelu final : Gelu {
  Tensor forward(const Tensor& x) override { return at::gelu(x, "tanh"); }
  void backward(Tensor& dy, const Tensor& x, Tensor& dbias, Accumulate mode) override {
    at::gelu_backward_out(dy, dy, x, "tanh");
    if (dbias.defined()) add_columns(dy, dbias, mode);
  }
};

struct AtenSwiGlu final : SwiGlu {
  Tensor forward(const Tensor& x) override {
    const int64_t width = x.size(1) / 2;
    return at::silu(x.narrow(1, 0, width)).mul_(x.narrow(1, width, width));
  }
  Tensor backward(const Tensor& dy, const Tensor& x) override {
    const int64_t width = x.size(1) / 2;
    const Tensor gate = x.narrow(1, 0, width), up = x.narrow(1, width, width);
    Tensor dx = at::empty_like(x);
    Tensor d_gate = dx.narrow(1, 0, width), d_up = dx.narrow(1, width, width);
    at::silu_out(d_up, gate).mul_(dy);
    at::silu_backward_out(d_gate, at::mul(dy, up), gate);
    return dx;
  }
};

struct AtenGeGlu final : GeGlu {
  Tensor forward(const Tensor& x) override {
    const int64_t width = x.size(1) / 2;
    return at::gelu(x.narrow(1, 0, width), "tanh").mul_(x.narrow(1, width, width));
  }
  Tensor backward(const Tensor& dy, const Tensor& x) override {
    const int64_t width = x.size(1) / 2;
    const Tensor gate = x.narrow(1, 0, width), up = x.narrow(1, width, width);
    Tensor dx = at::empty_like(x);
    dx.narrow(1, 0, width).copy_(at::gelu_backward(at::mul(dy, up), gate, "tanh"));
    dx.narrow(1, width, width).copy_(at::gelu(gate, "tanh").mul_(dy));
    return dx;
  }
};

struct AtenColumnSum final : ColumnSum {
  void add(const Tensor& x, Tensor& sums, Accumulate mode) override { add_columns(x, sums, mode); }
};

}  // namespace

std::unique_ptr<Gelu> make_gelu() {
  return std::make_unique<AtenGelu>();
}
std::unique_ptr<SwiGlu> make_swiglu() {
  return std::make_unique<AtenSwiGlu>();
}
std::unique_ptr<GeGlu> make_geglu() {
  return std::make_unique<AtenGeGlu>();
}
std::unique_ptr<ColumnSum> make_column_sum() {
  return std::make_unique<AtenColumnSum>();
}

}  // namespace octavo::engine::aten
