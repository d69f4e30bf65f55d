#pragma once
// A linear layer, y = x w^T + b, in BF16 (or FP32) or in FP8, with or without adapters.

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "nn/adapter.h"
#include "nn/param.h"

namespace octavo::nn {

using engine::Engine;
class Fp8Layer;

enum class Gemm : uint8_t { kForward, kInputGradient, kWeightGradient };
inline constexpr std::array<Gemm, 3> kGemms = {Gemm::kForward, Gemm::kInputGradient,
                                               Gemm::kWeightGradient};
std::string_view name_of(Gemm gemm);

struct Linear;

// Sees the operands of a layer's GEMMs in a training pass, as numbers: of a step that takes
// statistics (Fp8Shared::measuring), since fused passes never write them.
struct LinearObserver {
  virtual ~LinearObserver() = default;
  virtual void on_input(Linear& layer, const at::Tensor& x) = 0;
  virtual void on_gradient(Linear& layer, const at::Tensor& dy) = 0;
};

struct Linear : torch::CustomClassHolder {
  Linear();
  ~Linear() override;

  std::string name;               // "h.0.attn.c_attn": the weight's name without ".weight"
  int64_t block = 0;              // of the transformer
  ParamPtr weight, bias;          // bias may be null
  bool expert = false;            // of a mixture (mixture.h)
  double share = 1;               // of the tokens, that it sees: of an expert not all
  std::unique_ptr<Fp8Layer> fp8;  // null: the compute dtype
  std::vector<Adapter> adapters;  // LoRA; then the weight is frozen
  const AdapterShared* adapter_shared = nullptr;
  LinearObserver* observer = nullptr;  // null in training
  at::Tensor probe;                    // two slots (nn/probes.h); undefined: nobody looks

  // What really ran, for the receipt: how often each GEMM ran in FP8 and otherwise.
  struct GemmCounts {
    int64_t fp8 = 0, other = 0;
  };
  std::array<GemmCounts, 3> gemm_counts;
  int64_t saved_bytes = 0;  // kept for the backward pass by the last forward pass

  void count(Gemm gemm, bool in_fp8) {
    GemmCounts& r = gemm_counts[static_cast<size_t>(gemm)];
    ++(in_fp8 ? r.fp8 : r.other);
  }
};
using LinearPtr = c10::intrusive_ptr<Linear>;
using LinearList = std::vector<LinearPtr>;

LinearPtr make_linear(std::string name, int64_t block, ParamPtr weight, ParamPtr bias);

// What keeps a layer in autograd's graph when its input has no gradient: the leaf of a parameter,
// that of a trained one when the layer has any.
at::Tensor trained_leaf(const Linear& layer);

// What a GEMM reads: numbers, or what a fused pass has quantized for the layer already.
struct LinearOperand {
  at::Tensor values;  // undefined when `quantized` is there
  std::optional<engine::Fp8Matrix> quantized;
  int64_t rows() const { return quantized ? quantized->rows : values.size(0); }
};

// The forward GEMM. `kept` receives what linear_backward needs of x: x itself, or its codes and
// scales; nothing of it when the weight is frozen; then what the adapters need. `kept` null says
// that this is no training step.
at::Tensor linear_forward(const Engine& engine, Linear& layer, const LinearOperand& x,
                          std::vector<at::Tensor>* kept);
inline at::Tensor linear_forward(const Engine& engine, Linear& layer, const at::Tensor& x,
                                 std::vector<at::Tensor>* kept) {
  return linear_forward(engine, layer, LinearOperand{x, {}}, kept);
}
// The GELU behind `up`, and before `down`, is part of their GEMMs.
bool fuses_gelu(const Engine& engine, const Linear& up, const Linear& down);
// linear_forward(), of which `h` becomes the result; returns gelu(h).
at::Tensor linear_gelu_forward(const Engine& engine, Linear& layer, const at::Tensor& x,
                               std::vector<at::Tensor>* kept, at::Tensor& h);
// A GEMM or a quantizer sums the bias's gradient too: linear_backward() does it.
bool sums_bias(const Engine& engine, const Linear& layer);
// Adds to the bias's gradient, if there is one, it is trained, and no GEMM does it.
void add_bias_gradient(const Engine& engine, Linear& layer, const at::Tensor& dy);
// Adds to the weight's gradient, and to the bias's when sums_bias() (of dy that was quantized
// already whoever did that has summed it); otherwise that is the caller's. Returns the input's when
// it is wanted; with `gelu_input` (see fuses_gelu()) that of the GELU before the layer.
at::Tensor linear_backward(const Engine& engine, Linear& layer, const LinearOperand& dy,
                           const std::vector<at::Tensor>& kept, bool want_dx,
                           const at::Tensor* gelu_input = nullptr);
inline at::Tensor linear_backward(const Engine& engine, Linear& layer, const at::Tensor& dy,
                                  const std::vector<at::Tensor>& kept, bool want_dx,
                                  const at::Tensor* gelu_input = nullptr) {
  return linear_backward(engine, layer, LinearOperand{dy, {}}, kept, want_dx, gelu_input);
}

}  // namespace octavo::nn
