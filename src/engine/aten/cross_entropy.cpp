#include <ATen/ATen.h>

#include <limits>

#include "engine/aten/aten.h"
#include "engine/torch_version.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

// log(softmax) in FP32, in one temporary. Padding has no probability.
Tensor log_probabilities(const Tensor& logits, int64_t classes) {
  Tensor rows = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (classes < rows.size(1))
    rows.narrow(1, classes, rows.size(1) - classes).fill_(-std::numeric_limits<float>::infinity());
  return libtorch::log_softmax_in_place(rows);
}

struct AtenCrossEntropy final : CrossEntropy {
  Tensor run(Tensor& logits, const Tensor& targets, const Options& options) override {
    const Tensor ignored = targets.lt(0).unsqueeze(1),
                 ids = targets.clamp_min(0).to(at::kLong).unsqueeze(1);
    const Tensor logit = logits.gather(1, ids);
    Tensor p = log_probabilities(logits, options.classes);
    const Tensor loss = p.gather(1, ids).neg_();
    const Tensor lse = at::add(loss, logit);
    const Tensor each = at::cat({loss, lse.square()}, 1).masked_fill_(ignored, 0);
    if (options.want_gradient) {
      p.exp_();
      if (options.z_weight > 0) p.mul_(lse.mul(2 * options.z_weight).add_(1));
      p.scatter_(1, ids, -1, "add");
      at::mul_out(logits, p, ignored.logical_not().mul(options.grad_scale));
    }
    if (options.each.defined()) options.each.copy_(each);
    return each.sum(0, /*keepdim=*/false, at::kDouble);
  }
};

}  // namespace

std::unique_ptr<CrossEntropy> make_cross_entropy() {
  return std::make_unique<AtenCrossEntropy>();
}

}  // namespace octavo::engine::aten
