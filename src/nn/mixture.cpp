#include "nn/mixture.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

#include "base/error.h"
#include "engine/devices.h"
#include "engine/groups.h"
#include "engine/range.h"

namespace octavo::nn {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// What a router said of each token.
struct Choice {
  Tensor probabilities;  // [T, experts] FP32
  Tensor log_sums;       // [T, 1] FP32: logsumexp of the logits
  Tensor experts;        // [T, active] int64
  Tensor weights;        // [T, active] FP32
  Tensor chosen_sums;    // [T, 1]: of the chosen probabilities; undefined: weights are those
};

Choice choose(const Mixture& mixture, const Tensor& x) {
  const Tensor logits = at::mm(x.to(at::kFloat), mixture.router->weights().to(at::kFloat).t());
  Choice choice;
  choice.log_sums = at::logsumexp(logits, {1}, /*keepdim=*/true);
  choice.probabilities = at::softmax(logits, 1);
  std::tie(choice.weights, choice.experts) = at::topk(choice.probabilities, mixture.active, 1);
  if (mixture.renormalized) {
    choice.chosen_sums = choice.weights.sum(1, /*keepdim=*/true);
    choice.weights = choice.weights / choice.chosen_sums;
  }
  return choice;
}

// The gradient of the router's logits from that of its weights, and of the losses that even it out.
Tensor logit_gradient(const Choice& choice, Tensor d_weights, const Routing& routing) {
  if (choice.chosen_sums.defined())
    d_weights = (d_weights - (d_weights * choice.weights).sum(1, true)) / choice.chosen_sums;
  const Tensor& p = choice.probabilities;
  Tensor dp = at::zeros_like(p).scatter_(1, choice.experts, d_weights);
  if (routing.recording()) dp += routing.balance_gradient();
  Tensor gradient = p * (dp - (dp * p).sum(1, true));
  if (routing.recording()) gradient.add_(p * choice.log_sums, routing.z_gradient());
  return gradient;
}

void add_router_gradient(Param& router, const Tensor& d_logits, const Tensor& x) {
  if (!router.trainable) return;
  const Tensor gradient = at::mm(d_logits.t(), x.to(at::kFloat));
  if (router.next_write() == engine::Accumulate::kAdd)
    router.grad.add_(gradient);
  else
    router.grad.copy_(gradient);
}

// Rows of a token added up, in the order of its choices.
Tensor gathered(const Tensor& rows, const Tensor& places, int64_t active, const Tensor& weights) {
  const Tensor by_token = places.view({-1, active});
  Tensor sum;
  for (int64_t j = 0; j < active; ++j) {
    Tensor row = rows.index_select(0, by_token.select(1, j)).to(at::kFloat);
    if (weights.defined()) row.mul_(weights.narrow(1, j, 1));
    sum = sum.defined() ? sum.add_(row) : row;
  }
  return sum.to(rows.scalar_type());
}

// The mixture of one layer and, between the passes, what the backward one reads.
struct MixturePasses : torch::CustomClassHolder {
  const Engine* engine = nullptr;
  Mixture mixture;
  Routing* routing = nullptr;
  bool training = false;

  Choice choice;
  Dispatch rows;
  Tensor input, made;  // x, and what the experts made of their rows
  std::vector<MlpPasses> experts;

  Tensor forward(const Tensor& x);
  Tensor backward(const Tensor& dy);
  bool observed() const { return mixture.experts.front().up->observer != nullptr; }
  // work(e) of every expert.
  void for_experts(const std::function<void(size_t)>& work) const;
  Tensor filled(size_t expert, const Tensor& own) const;
  Tensor weight_gradient(const Tensor& dy) const;
};

Tensor MixturePasses::forward(const Tensor& x) {
  choice = choose(mixture, x);
  rows = dispatch(choice.experts, std::ssize(mixture.experts));
  if (routing->recording())
    routing->record(mixture.layer, {.tokens = x.size(0),
                                    .counts = rows.counts,
                                    .probabilities = choice.probabilities.sum(0),
                                    .squares = choice.log_sums.square().sum()});
  const Tensor sorted = x.index_select(0, rows.tokens);
  made = at::empty_like(sorted);
  for (const Mlp& mlp : mixture.experts) experts.emplace_back(*engine, mlp, training);
  for_experts([&](size_t e) {
    const int64_t first = rows.bounds[e], count = rows.bounds[e + 1] - first;
    if (count > 0)
      made.narrow(0, first, count)
          .copy_(experts[e].forward(filled(e, sorted.narrow(0, first, count))).narrow(0, 0, count));
    else if (training)
      experts[e].idle_forward(x);
  });
  const Tensor y = gathered(made, rows.places, mixture.active, choice.weights);
  if (training) {
    input = x.detach();
  } else {
    made.reset();
    experts.clear();
  }
  return y;
}

void MixturePasses::for_experts(const std::function<void(size_t)>& work) const {
  if (!observed()) return engine::for_each_group(engine->target, rows.bounds, work);
  // An observer is told by one thread, in the order of experts.
  for (size_t e = 0; e < mixture.experts.size(); ++e) work(e);
}

// Rows of zeros make no difference to the others, nor to a gradient that sums over rows.
Tensor MixturePasses::filled(size_t expert, const Tensor& own) const {
  const Mlp& mlp = mixture.experts[expert];
  if (mlp.up->fp8 != nullptr || mlp.down->fp8 != nullptr || observed()) return own;
  const int64_t count = own.size(0), all = engine::filled_rows(engine->target, count);
  return all == count ? own : at::constant_pad_nd(own, {0, 0, 0, all - count});
}

Tensor MixturePasses::weight_gradient(const Tensor& dy) const {
  const Tensor places = rows.places.view({-1, mixture.active}), d = dy.to(at::kFloat);
  std::vector<Tensor> columns;
  for (int64_t j = 0; j < mixture.active; ++j)
    columns.push_back((made.index_select(0, places.select(1, j)).to(at::kFloat) * d).sum(1));
  return at::stack(columns, 1);
}

Tensor MixturePasses::backward(const Tensor& dy) {
  const Tensor d_logits = logit_gradient(choice, weight_gradient(dy), *routing);
  made.reset();
  const Tensor weights = choice.weights.flatten().index_select(0, rows.order).unsqueeze(1);
  Tensor d_sorted = at::empty({rows.tokens.size(0), dy.size(1)}, dy.options());
  for_experts([&](size_t e) {
    const int64_t first = rows.bounds[e], count = rows.bounds[e + 1] - first;
    if (count == 0) {
      experts[e].idle_backward(dy);
      return;
    }
    const Tensor d_made =
        (dy.index_select(0, rows.tokens.narrow(0, first, count)) * weights.narrow(0, first, count))
            .to(dy.scalar_type());
    d_sorted.narrow(0, first, count)
        .copy_(experts[e].backward(filled(e, d_made)).narrow(0, 0, count));
  });
  experts.clear();
  add_router_gradient(*mixture.router, d_logits, input);
  const Tensor through_router = at::mm(d_logits, mixture.router->weights().to(at::kFloat));
  Tensor dx = gathered(d_sorted, rows.places, mixture.active, {});
  input.reset();
  return dx.add_(through_router.to(dx.scalar_type()));
}

struct MixtureNode : Function<MixtureNode> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const Tensor& /*connects the graph*/,
                        const c10::intrusive_ptr<MixturePasses>& passes) {
    context->saved_data["passes"] = c10::IValue::make_capsule(passes);
    return passes->forward(x);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto passes = c10::static_intrusive_pointer_cast<MixturePasses>(
        context->saved_data["passes"].toCapsule());
    return {passes->backward(grads[0].contiguous()), Tensor(), Tensor()};
  }
};

}  // namespace

Dispatch dispatch(const Tensor& chosen, int64_t experts) {
  const Tensor flat = chosen.flatten();
  const int64_t choices = flat.size(0);
  Dispatch made;
  Tensor sorted;
  std::tie(sorted, made.order) = at::sort(flat, /*stable=*/true, 0, /*descending=*/false);
  made.tokens = made.order.div(chosen.size(1), "floor");
  made.places = at::empty_like(made.order);
  made.places.index_copy_(0, made.order, at::arange(choices, made.order.options()));
  const Tensor edges = at::searchsorted(sorted, at::arange(experts + 1, flat.options()));
  made.counts = edges.diff();
  if (engine::is_fake(chosen.device())) {
    for (int64_t e = 0; e <= experts; ++e) made.bounds.push_back(choices * e / experts);
    return made;
  }
  const Tensor host = edges.cpu();  // the wait for the device
  const auto* first = host.const_data_ptr<int64_t>();
  made.bounds.assign(first, first + experts + 1);
  OCTAVO_ASSERT(made.bounds.front() == 0 && made.bounds.back() == choices);
  return made;
}

Tensor mixture(const Engine& engine, const Tensor& x, const Mixture& mixture, Routing& routing) {
  const engine::Range range("mixture", mixture.layer);
  const auto passes = c10::make_intrusive<MixturePasses>();
  passes->engine = &engine;
  passes->mixture = mixture;
  passes->routing = &routing;
  passes->training = at::GradMode::is_enabled();
  if (!passes->training) return passes->forward(x);
  return MixtureNode::apply(x, mixture.router->leaf, passes);
}

}  // namespace octavo::nn
