#include "nn/linear.h"

#include <ATen/ATen.h>

#include "engine/range.h"
#include "nn/fp8_layer.h"
#include "nn/probes.h"

namespace octavo::nn {
namespace {

using at::Tensor;

Tensor bias_of(const Linear& layer) {
  return layer.bias ? layer.bias->compute : Tensor();
}

Tensor result_of(const Engine& engine, int64_t rows, int64_t columns) {
  return at::empty({rows, columns},
                   at::TensorOptions(engine.target.device).dtype(engine.target.compute));
}

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors)
    if (t.defined()) bytes += static_cast<int64_t>(t.nbytes());
  return bytes;
}

// Tells the layer's probe when an operand that was quantized meanwhile had an infinity.
class InfinityWatch {
 public:
  InfinityWatch(const Engine& engine, Linear& layer, Pass pass)
      : fp8_(*engine.fp8_linear), layer_(layer), pass_(pass), before_(fp8_.infinite_operands()) {}
  InfinityWatch(const InfinityWatch&) = delete;
  InfinityWatch& operator=(const InfinityWatch&) = delete;
  ~InfinityWatch() {
    if (fp8_.infinite_operands() != before_) note_infinity(layer_, pass_);
  }

 private:
  const engine::Fp8Linear& fp8_;
  Linear& layer_;
  Pass pass_;
  int64_t before_;
};

}  // namespace

Linear::Linear() = default;
Linear::~Linear() = default;

std::string_view name_of(Gemm gemm) {
  switch (gemm) {
    case Gemm::kForward:
      return "forward";
    case Gemm::kInputGradient:
      return "input gradient";
    case Gemm::kWeightGradient:
      break;
  }
  return "weight gradient";
}

LinearPtr make_linear(std::string name, int64_t block, ParamPtr weight, ParamPtr bias) {
  auto layer = c10::make_intrusive<Linear>();
  layer->name = std::move(name);
  layer->block = block;
  layer->weight = std::move(weight);
  layer->bias = std::move(bias);
  return layer;
}

Tensor trained_leaf(const Linear& layer) {
  if (!layer.adapters.empty()) return layer.adapters.front().a->leaf;
  return layer.weight->leaf;
}

Tensor linear_forward(const Engine& engine, Linear& layer, const LinearOperand& operand,
                      std::vector<Tensor>* kept) {
  const engine::Range range(layer.name.c_str());
  const Tensor& x = operand.values;
  if (layer.observer != nullptr && kept != nullptr) layer.observer->on_input(layer, x);
  Tensor y = result_of(engine, operand.rows(), layer.weight->sizes()[0]);
  const bool keeps = kept != nullptr && layer.weight->trainable;  // only dw reads x
  layer.count(Gemm::kForward, layer.fp8 != nullptr);
  if (layer.fp8 != nullptr) {
    const InfinityWatch watch(engine, layer, Pass::kForward);
    const engine::Fp8Matrix quantized =
        operand.quantized ? *operand.quantized : layer.fp8->input(x, kept != nullptr, keeps);
    engine.fp8_linear->forward(quantized, layer.fp8->weight(*layer.weight, false), bias_of(layer),
                               y);
    if (keeps) *kept = {quantized.column.codes, quantized.column.scales};
    layer.fp8->release_weight(fp8::Direction::kRow, kept != nullptr);
  } else {
    engine.matmul->forward(x, layer.weight->weights(), bias_of(layer), y);
    if (keeps) *kept = {x};
  }
  if (!layer.adapters.empty()) {
    std::vector<Tensor> theirs;
    adapters_forward(engine, layer, x, y, kept != nullptr ? &theirs : nullptr);
    if (kept != nullptr) kept->insert(kept->end(), theirs.begin(), theirs.end());
  }
  if (kept != nullptr) layer.saved_bytes = bytes_of(*kept);
  if (kept != nullptr) note_result(layer, Pass::kForward, y);  // nobody asks after an evaluation
  return y;
}

namespace {

// The gradients of the layer without its adapters.
Tensor base_backward(const Engine& engine, Linear& layer, const LinearOperand& operand,
                     const std::vector<Tensor>& kept, bool want_dx, const Tensor* gelu_input) {
  const Tensor& dy = operand.values;
  Param& weight = *layer.weight;
  const bool in_fp8 = layer.fp8 != nullptr;
  const int64_t inputs = weight.sizes()[1];
  if (weight.trainable) layer.count(Gemm::kWeightGradient, in_fp8);
  if (want_dx) layer.count(Gemm::kInputGradient, in_fp8);
  Tensor dx;
  if (want_dx) dx = result_of(engine, operand.rows(), inputs);
  if (!in_fp8) {
    if (sums_bias(engine, layer))
      engine.matmul->weight_bias_gradient(dy, kept[0], weight.grad, weight.next_write(),
                                          layer.bias->grad, layer.bias->next_write());
    else if (weight.trainable)
      engine.matmul->weight_gradient(dy, kept[0], weight.grad, weight.next_write());
    if (want_dx && gelu_input != nullptr)
      engine.matmul->input_gradient_gelu(dy, weight.weights(), *gelu_input, dx);
    else if (want_dx)
      engine.matmul->input_gradient(dy, weight.weights(), dx);
    return dx;
  }
  const InfinityWatch watch(engine, layer, Pass::kBackward);
  const engine::Fp8Matrix gradient =
      operand.quantized
          ? *operand.quantized
          : layer.fp8->gradient(dy, want_dx, weight.trainable,
                                sums_bias(engine, layer) ? layer.bias.get() : nullptr);
  if (weight.trainable)
    engine.fp8_linear->weight_gradient(gradient, layer.fp8->kept_input(gradient.rows, inputs, kept),
                                       weight.grad, weight.next_write());
  if (want_dx) {
    engine.fp8_linear->input_gradient(gradient, layer.fp8->weight(weight, true), dx);
    layer.fp8->release_weight(fp8::Direction::kColumn, true);
  }
  return dx;
}

}  // namespace

bool fuses_gelu(const Engine& engine, const Linear& up, const Linear& down) {
  // cuBLASLt wants rows of the GELU's input that begin at multiples of 16 bytes.
  return engine.matmul->fuses_gelu() && up.bias && up.weight->sizes()[0] % 8 == 0 &&
         up.fp8 == nullptr && down.fp8 == nullptr && up.adapters.empty() && down.adapters.empty();
}

Tensor linear_gelu_forward(const Engine& engine, Linear& layer, const Tensor& x,
                           std::vector<Tensor>* kept, Tensor& h) {
  const engine::Range range(layer.name.c_str());
  if (layer.observer != nullptr && kept != nullptr) layer.observer->on_input(layer, x);
  h = result_of(engine, x.size(0), layer.weight->sizes()[0]);
  Tensor activated = at::empty_like(h);
  layer.count(Gemm::kForward, false);
  engine.matmul->forward_gelu(x, layer.weight->weights(), bias_of(layer), h, activated);
  if (kept == nullptr) return activated;
  if (layer.weight->trainable) *kept = {x};
  layer.saved_bytes = bytes_of(*kept);
  note_result(layer, Pass::kForward, h);
  return activated;
}

bool sums_bias(const Engine& engine, const Linear& layer) {
  if (!layer.bias || !layer.bias->trainable) return false;
  if (layer.fp8 != nullptr) return engine.fp8_linear->sums_biases();
  return layer.weight->trainable && engine.matmul->sums_biases();
}

void add_bias_gradient(const Engine& engine, Linear& layer, const Tensor& dy) {
  if (layer.bias && layer.bias->trainable && !sums_bias(engine, layer))
    engine.column_sum->add(dy, layer.bias->grad, layer.bias->next_write());
}

Tensor linear_backward(const Engine& engine, Linear& layer, const LinearOperand& dy,
                       const std::vector<Tensor>& kept, bool want_dx, const Tensor* gelu_input) {
  const engine::Range range(layer.name.c_str());
  if (layer.observer != nullptr) layer.observer->on_gradient(layer, dy.values);
  Tensor dx = base_backward(engine, layer, dy, kept, want_dx, gelu_input);
  if (!layer.adapters.empty()) {
    const auto theirs = static_cast<std::ptrdiff_t>(2 + layer.adapters.size());
    adapters_backward(engine, layer, dy.values, {kept.end() - theirs, kept.end()}, dx);
  }
  note_result(layer, Pass::kBackward, dx);
  return dx;
}

}  // namespace octavo::nn
