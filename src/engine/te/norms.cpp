#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/te/te.h"
#include "engine/te/vectors.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;

Tensor with_residual(const Tensor& x, const Tensor& delta) {
  return delta.defined() ? at::add(x, delta) : x;
}

struct TeLayerNorm final : LayerNorm {
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, const Tensor& beta,
                  double eps) override {
    const auto floats = x.options().dtype(at::kFloat);
    const Forward out{with_residual(x, delta), at::empty_like(x), at::empty({x.size(0)}, floats),
                      at::empty({x.size(0)}, floats)};
    if (x.numel() == 0) return out;
    const OnDevice on(x);
    check_matrix("x", out.sum);
    check_vector("gamma", gamma, x);
    check_vector("beta", beta, x);
    norm_forward(out.sum, gamma, beta, eps, Handle(out.normed), out.mean, out.rstd, on);
    return out;
  }

  // The library has no way to add d_sum inside: the result is rounded to BF16 twice.
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Tensor& dbeta, Accumulate mode) override {
    Tensor dx = at::empty_like(d_normed);
    if (dx.numel() == 0) return dx;
    const OnDevice on(d_normed);
    check_matrix("the gradient", d_normed);
    check_matrix("the sum", saved.sum);
    check_vector("gamma", gamma, d_normed);
    const Tensor gamma_sums = vector_scratch(d_normed), beta_sums = vector_scratch(d_normed);
    const Handle dz(d_normed), x(saved.sum), mean(saved.mean), rstd(saved.rstd), scale(gamma),
        result(dx), d_scale(gamma_sums), d_shift(beta_sums);
    with_workspace(on.device, [&](const Handle& workspace) {
      library().nvte_layernorm_bwd(dz, x, mean, rstd, scale, result, d_scale, d_shift, workspace,
                                   on.facts.multiprocessors, false, on.stream);
    });
    take_vector(gamma_sums, dgamma, mode);
    take_vector(beta_sums, dbeta, mode);
    if (d_sum.defined()) dx.add_(d_sum);
    return dx;
  }
};

struct TeRmsNorm final : RmsNorm {
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, double eps) override {
    const Forward out{with_residual(x, delta), at::empty_like(x),
                      at::empty({x.size(0)}, x.options().dtype(at::kFloat))};
    if (x.numel() == 0) return out;
    const OnDevice on(x);
    check_matrix("x", out.sum);
    check_vector("gamma", gamma, x);
    norm_forward(out.sum, gamma, {}, eps, Handle(out.normed), {}, out.rstd, on);
    return out;
  }

  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Accumulate mode) override {
    Tensor dx = at::empty_like(d_normed);
    if (dx.numel() == 0) return dx;
    const OnDevice on(d_normed);
    check_matrix("the gradient", d_normed);
    check_matrix("the sum", saved.sum);
    check_vector("gamma", gamma, d_normed);
    const Tensor gamma_sums = vector_scratch(d_normed);
    const Handle dz(d_normed), x(saved.sum), rstd(saved.rstd), scale(gamma), result(dx),
        d_scale(gamma_sums);
    const int units = on.facts.multiprocessors;
    if (d_sum.defined()) {
      check_matrix("the sum's gradient", d_sum);
      const Handle add(d_sum);
      with_workspace(on.device, [&](const Handle& workspace) {
        library().nvte_rmsnorm_bwd_add(dz, x, add, rstd, scale, result, d_scale, workspace, units,
                                       false, on.stream);
      });
    } else {
      with_workspace(on.device, [&](const Handle& workspace) {
        library().nvte_rmsnorm_bwd(dz, x, rstd, scale, result, d_scale, workspace, units, false,
                                   on.stream);
      });
    }
    if (dgamma.defined()) take_vector(gamma_sums, dgamma, mode);
    return dx;
  }
};

}  // namespace

void check_matrix(const char* what, const Tensor& x) {
  if (x.dim() == 2 && x.scalar_type() == at::kBFloat16 && x.is_contiguous()) return;
  fail(ExitCode::kEnvironment, "te", what, ": wanted a contiguous BF16 matrix, found ",
       at::toString(x.scalar_type()), " of shape ", octavo::str(x.sizes()));
}

void check_vector(const char* what, const Tensor& vector, const Tensor& x) {
  const at::ScalarType type = x.is_cpu() ? at::kFloat : x.scalar_type();
  if (vector.defined() && vector.dim() == 1 && vector.size(0) == x.size(1) &&
      vector.scalar_type() == type && vector.is_contiguous())
    return;
  fail(ExitCode::kEnvironment, "te", what, ": wanted ", at::toString(type), " of ", x.size(1),
       ", found ",
       vector.defined()
           ? octavo::str(at::toString(vector.scalar_type()), " of shape ", vector.sizes())
           : std::string("none"));
}

Tensor vector_scratch(const Tensor& x) {
  return at::empty({x.size(1)}, x.options().dtype(x.is_cpu() ? at::kFloat : x.scalar_type()));
}

void store_vector(const Tensor& made, Tensor& gradient, Accumulate mode) {
  if (mode == Accumulate::kAdd)
    gradient.add_(made);
  else
    gradient.copy_(made);
}

void take_vector(const Tensor& made, Tensor& gradient, Accumulate mode) {
  if (!made.is_cuda())
    store_vector(made, gradient, mode);
  else
    gradient = mode == Accumulate::kOverwrite ? made : at::add(gradient.to(at::kFloat), made);
}

void norm_forward(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps,
                  const Handle& normed, const Tensor& mean, const Tensor& rstd,
                  const OnDevice& on) {
  const Handle in(x), scale(gamma), rstd_handle(rstd);
  const auto epsilon = static_cast<float>(eps);
  const int units = on.facts.multiprocessors;
  if (!beta.defined()) {
    with_workspace(on.device, [&](const Handle& workspace) {
      library().nvte_rmsnorm_fwd(in, scale, epsilon, normed, rstd_handle, workspace, units, false,
                                 on.stream);
    });
    return;
  }
  const Handle shift(beta), mean_handle(mean);
  with_workspace(on.device, [&](const Handle& workspace) {
    library().nvte_layernorm_fwd(in, scale, shift, epsilon, normed, mean_handle, rstd_handle,
                                 workspace, units, false, on.stream);
  });
}

std::unique_ptr<LayerNorm> make_layer_norm() {
  return std::make_unique<TeLayerNorm>();
}
std::unique_ptr<RmsNorm> make_rms_norm() {
  return std::make_unique<TeRmsNorm>();
}

}  // namespace octavo::engine::te
