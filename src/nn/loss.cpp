#include "nn/loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/weight_gatherer.h"

namespace octavo::nn {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A CPU's caches like few rows, a GPU few launches; the largest vocabularies then take 2 GiB.
int64_t chunk_of(const LossOptions& options, const Tensor& x, int64_t columns) {
  if (options.chunk_rows > 0) return options.chunk_rows;
  constexpr int64_t kCpuRows = 1024, kGpuElements = int64_t{1} << 29;
  return x.is_cpu() ? kCpuRows : std::max<int64_t>(1, kGpuElements / columns);
}

// Runs the head over all rows; fills dx, and each (as Loss has it), when they are defined.
Tensor run_head(const engine::Engine& engine, const Tensor& x, Param& weight, const Tensor& targets,
                const LossOptions& options, Tensor dx, const Tensor& each) {
  engine::CrossEntropy::Options entropy{.classes = options.classes,
                                        .grad_scale = static_cast<float>(options.gradient_scale),
                                        .z_weight = static_cast<float>(options.z_weight),
                                        .want_gradient = dx.defined()};
  Tensor sums = at::zeros({2}, x.options().dtype(at::kDouble));
  const int64_t rows = x.size(0), columns = weight.sizes()[0],
                step = std::min(rows, chunk_of(options, x, columns));
  Tensor logits = at::empty({step, columns}, x.options());
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    const Tensor part = x.narrow(0, first, count);
    Tensor block = logits.narrow(0, 0, count);
    engine.matmul->forward(part, weight.compute, Tensor(), block);
    if (each.defined()) entropy.each = each.narrow(0, first, count);
    sums += engine.cross_entropy->run(block, targets.narrow(0, first, count), entropy);
    if (!dx.defined()) continue;
    Tensor dx_part = dx.narrow(0, first, count);
    engine.matmul->input_gradient(block, weight.compute, dx_part);
    if (weight.trainable)
      engine.matmul->weight_gradient(block, part, weight.grad, weight.next_write());
  }
  return sums;
}

struct HeadNode : Function<HeadNode> {
  static Tensor forward(AutogradContext* context, const Tensor& /*x: connects the graph*/,
                        const Tensor& dx) {
    context->save_for_backward({dx});
    return at::zeros({}, dx.options().dtype(at::kFloat));
  }
  static variable_list backward(AutogradContext* context, variable_list) {
    return {context->get_saved_variables()[0], Tensor()};
  }
};

}  // namespace

Loss head_loss(const engine::Engine& engine, const Tensor& x, const ParamPtr& weight,
               const Tensor& targets, const LossOptions& options) {
  Loss loss;
  Tensor dx;
  {
    const at::NoGradGuard no_grad;
    const GatherScope visit(*weight);
    if (options.want_gradient) dx = at::empty_like(x);
    if (options.want_each) loss.each = at::empty({x.size(0), 2}, x.options().dtype(at::kDouble));
    loss.sums = run_head(engine, x.detach(), *weight, targets, options, dx, loss.each);
    // The gradient of the weight is made here, but for that of an embedding that is the head too.
    if (options.want_gradient && weight->gatherer != nullptr)
      weight->gatherer->after_backward(weight->unit);
  }
  if (options.want_gradient) loss.root = HeadNode::apply(x, dx);
  return loss;
}

Tensor head_logits(const engine::Engine& engine, const Tensor& x, const ParamPtr& weight,
                   int64_t classes) {
  const at::NoGradGuard no_grad;
  const GatherScope visit(*weight);
  Tensor logits = at::empty({x.size(0), weight->sizes()[0]}, x.options());
  engine.matmul->forward(x, weight->compute, Tensor(), logits);
  return logits.narrow(1, 0, classes).to(at::kFloat);
}

}  // namespace octavo::nn
