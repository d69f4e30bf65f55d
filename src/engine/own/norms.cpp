// Norms in one launch each way: the residual addition is in the forward pass, the residual's
// gradient and the sums for gamma and beta are in the backward one.

#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/own/scratch.h"
#include "engine/traffic.h"

namespace octavo::engine::own {
namespace {

using at::Tensor;
using kernels::Bf16;

// Rows that are narrower leave most threads of a block without work.
constexpr int64_t kLeastColumns = 257;

const Bf16* values_of(const Tensor& t) {
  return t.defined() ? static_cast<const Bf16*>(t.const_data_ptr()) : nullptr;
}

void check_matrix(const Tensor& t, const Tensor& like) {
  OCTAVO_ASSERT(!t.defined() || (t.dim() == 2 && t.scalar_type() == at::kBFloat16 &&
                                 t.is_contiguous() && t.sizes() == like.sizes()));
}
void check_vector(const Tensor& t, const Tensor& x) {
  OCTAVO_ASSERT(!t.defined() ||
                (t.scalar_type() == at::kBFloat16 && t.is_contiguous() && t.numel() == x.size(1)));
}

// A gradient that the kernel writes or adds to: FP32. An operation of libtorch or Transformer
// Engine may have left one in BF16 in its place.
void prepare_gradient(Tensor& gradient, const Tensor& x, Accumulate mode) {
  if (!gradient.defined()) return;
  if (gradient.scalar_type() != at::kFloat || !gradient.is_contiguous())
    gradient = mode == Accumulate::kAdd ? gradient.to(at::kFloat).contiguous()
                                        : at::empty({x.size(1)}, x.options().dtype(at::kFloat));
  OCTAVO_ASSERT(gradient.numel() == x.size(1));
}

struct Gradients {
  const Tensor &d_normed, &d_sum, &sum, &gamma, &mean, &rstd;
};

// mean and dbeta undefined: an RMS norm.
Tensor backward(const OctavoKernels& kernels, const Gradients& g, Tensor& dgamma, Tensor& dbeta,
                Accumulate mode) {
  const at::NoGradGuard no_grad;
  const Tensor dx = at::empty_like(g.d_normed);
  prepare_gradient(dgamma, g.sum, mode);
  prepare_gradient(dbeta, g.sum, mode);
  if (dx.numel() == 0) {
    if (mode == Accumulate::kOverwrite)
      for (const Tensor& t : {dgamma, dbeta})
        if (t.defined()) t.zero_();
    return dx;
  }
  for (const Tensor& t : {g.d_normed, g.d_sum, g.sum}) check_matrix(t, dx);
  check_vector(g.gamma, dx);
  const bool is_layer_norm = g.mean.defined();
  OCTAVO_ASSERT(g.gamma.defined() && is_layer_norm == dbeta.defined());
  const ScratchMemory scratch =
      scratch_for(dx, kernels::norm_backward_scratch(is_layer_norm, dx.size(0), dx.size(1)));
  const kernels::NormBackwardArguments arguments{.d_normed = values_of(g.d_normed),
                                                 .d_sum = values_of(g.d_sum),
                                                 .sum = values_of(g.sum),
                                                 .gamma = values_of(g.gamma),
                                                 .mean = pointer_to<float>(g.mean),
                                                 .rstd = pointer_to<float>(g.rstd),
                                                 .dx = pointer_to<Bf16>(dx),
                                                 .dgamma = pointer_to<float>(dgamma),
                                                 .dbeta = pointer_to<float>(dbeta),
                                                 .parts = scratch.parts_data(),
                                                 .tickets = scratch.tickets_data(),
                                                 .rows = dx.size(0),
                                                 .columns = static_cast<int32_t>(dx.size(1)),
                                                 .adds = mode == Accumulate::kAdd};
  launch_for(dx, kernels, "a norm's gradient", [&](const OctavoKernels& all, void* stream) {
    return all.norm_backward(is_layer_norm, arguments, stream);
  });
  const Tensor parts = dgamma.defined() ? scratch.parts : Tensor();
  note_traffic("octavo_norm_backward", {g.d_normed, g.d_sum, g.sum, g.rstd, parts},
               {dx, dgamma, dbeta, parts});
  return dx;
}

bool serves(const Tensor& x, int64_t most) {
  return x.size(1) >= kLeastColumns && x.size(1) <= most;
}

class OwnLayerNorm final : public LayerNorm {
 public:
  OwnLayerNorm(const OctavoKernels& kernels, std::unique_ptr<LayerNorm> others)
      : kernels_(kernels), others_(std::move(others)) {}

  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, const Tensor& beta,
                  double eps) override {
    if (!serves(x, kernels::kMostNormColumns)) return others_->forward(x, delta, gamma, beta, eps);
    NormOutput out = prepare_norm(x, delta, /*is_layer_norm=*/true);
    out.normed = at::empty_like(x);
    add_norm(kernels_, {x, delta, gamma, beta, eps}, out);
    return {out.sum, out.normed, out.mean, out.rstd};
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Tensor& dbeta, Accumulate mode) override {
    if (!serves(d_normed, kernels::kMostNormBackwardColumns))
      return others_->backward(d_normed, d_sum, saved, gamma, dgamma, dbeta, mode);
    return own::backward(kernels_, {d_normed, d_sum, saved.sum, gamma, saved.mean, saved.rstd},
                         dgamma, dbeta, mode);
  }

 private:
  const OctavoKernels& kernels_;
  std::unique_ptr<LayerNorm> others_;
};

class OwnRmsNorm final : public RmsNorm {
 public:
  OwnRmsNorm(const OctavoKernels& kernels, std::unique_ptr<RmsNorm> others)
      : kernels_(kernels), others_(std::move(others)) {}

  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, double eps) override {
    if (!serves(x, kernels::kMostNormColumns)) return others_->forward(x, delta, gamma, eps);
    NormOutput out = prepare_norm(x, delta, /*is_layer_norm=*/false);
    out.normed = at::empty_like(x);
    add_norm(kernels_, {x, delta, gamma, {}, eps}, out);
    return {out.sum, out.normed, out.rstd};
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Accumulate mode) override {
    if (!serves(d_normed, kernels::kMostNormBackwardColumns))
      return others_->backward(d_normed, d_sum, saved, gamma, dgamma, mode);
    Tensor none;
    return own::backward(kernels_, {d_normed, d_sum, saved.sum, gamma, none, saved.rstd}, dgamma,
                         none, mode);
  }

 private:
  const OctavoKernels& kernels_;
  std::unique_ptr<RmsNorm> others_;
};

}  // namespace

NormOutput prepare_norm(const Tensor& x, const Tensor& delta, bool is_layer_norm) {
  const auto floats = x.options().dtype(at::kFloat);
  NormOutput out;
  out.sum = delta.defined() ? at::empty_like(x) : x;
  out.rstd = at::empty({x.size(0)}, floats);
  if (is_layer_norm) out.mean = at::empty({x.size(0)}, floats);
  return out;
}

void add_norm(const OctavoKernels& kernels, const NormInput& in, const NormOutput& out) {
  const at::NoGradGuard no_grad;
  if (in.x.numel() == 0) return;
  for (const Tensor& t : {in.x, in.delta, out.sum, out.normed}) check_matrix(t, in.x);
  for (const Tensor& t : {in.gamma, in.beta}) check_vector(t, in.x);
  const bool quantizes = out.codes.defined();
  OCTAVO_ASSERT(in.gamma.defined() && in.beta.defined() == out.mean.defined());
  OCTAVO_ASSERT(quantizes || (out.normed.defined() && !out.column_codes.defined()));
  for (const Tensor& t : {out.codes, out.column_codes})
    OCTAVO_ASSERT(!t.defined() || (t.numel() == in.x.numel() && t.is_contiguous()));
  const kernels::NormArguments arguments{
      .x = values_of(in.x),
      .delta = values_of(in.delta),
      .gamma = values_of(in.gamma),
      .beta = values_of(in.beta),
      .sum = in.delta.defined() ? pointer_to<Bf16>(out.sum) : nullptr,
      .normed = pointer_to<Bf16>(out.normed),
      .mean = pointer_to<float>(out.mean),
      .rstd = pointer_to<float>(out.rstd),
      .codes = pointer_to<uint8_t>(out.codes),
      .column_codes = pointer_to<uint8_t>(out.column_codes),
      .scale = quantizes ? out.scale.const_data_ptr<float>() : nullptr,
      .inverse = pointer_to<float>(out.inverse),
      .amax = pointer_to<uint32_t>(out.amax),
      .rows = in.x.size(0),
      .columns = static_cast<int32_t>(in.x.size(1)),
      .eps = static_cast<float>(in.eps)};
  launch_for(in.x, kernels, "a norm", [&](const OctavoKernels& all, void* stream) {
    return all.norm(in.beta.defined(), arguments, stream);
  });
  note_traffic(quantizes ? "octavo_norm_quantize" : "octavo_norm", {in.x, in.delta},
               {in.delta.defined() ? out.sum : Tensor(), out.normed, out.codes, out.column_codes});
}

std::unique_ptr<LayerNorm> make_layer_norm(const OctavoKernels& kernels,
                                           std::unique_ptr<LayerNorm> others) {
  return std::make_unique<OwnLayerNorm>(kernels, std::move(others));
}
std::unique_ptr<RmsNorm> make_rms_norm(const OctavoKernels& kernels,
                                       std::unique_ptr<RmsNorm> others) {
  return std::make_unique<OwnRmsNorm>(kernels, std::move(others));
}

}  // namespace octavo::engine::own
