#pragma once
// The halves of a transformer's block, each one node of autograd's graph: what is between a norm
// and the GEMM that reads it, or between the two GEMMs of an MLP, never leaves the node, so
// that an engine may quantize it in the pass that makes it.

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "engine/engine.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace octavo::nn {

// {x + delta, layer(norm(x + delta))}; delta may be undefined, and a norm without gamma is none.
std::pair<at::Tensor, at::Tensor> norm_linear(const Engine& engine, const at::Tensor& x,
                                              const at::Tensor& delta, const Norm& norm,
                                              const LinearPtr& layer);

struct Mlp {
  LinearPtr up;  // of SwiGLU and GeGLU: gate and up side by side
  engine::Activation activation = engine::Activation::kGelu;
  LinearPtr down;
};

// The passes of an MLP by themselves, for a node that has several of them (mixture.h).
class MlpPasses {
 public:
  MlpPasses(const Engine& engine, const Mlp& mlp, bool training);
  ~MlpPasses();
  MlpPasses(MlpPasses&&) noexcept;
  MlpPasses& operator=(MlpPasses&&) noexcept;

  at::Tensor forward(const at::Tensor& x);
  at::Tensor backward(const at::Tensor& dy);  // after forward(), once
  // Of an expert without rows: a row of zeros makes its gradients and its part of the FP8
  // statistics on every rank, as those of other ranks want them. `like`: a matrix as wide as those
  // rows.
  void idle_forward(const at::Tensor& like);
  void idle_backward(const at::Tensor& like);

 private:
  class Layers;
  std::unique_ptr<Layers> layers_;
};

// {x + delta, down(activation(up(norm(x + delta))))}; delta may be undefined.
std::pair<at::Tensor, at::Tensor> norm_mlp(const Engine& engine, const at::Tensor& x,
                                           const at::Tensor& delta, const Norm& norm,
                                           const Mlp& mlp);

}  // namespace octavo::nn
