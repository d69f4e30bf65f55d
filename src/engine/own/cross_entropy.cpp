// Cross-entropy over BF16 logits: one launch that reads them twice and writes the gradient over
// them, and a small one that adds up the rows.

#include <ATen/ATen.h>

#include <limits>

#include "base/error.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/traffic.h"

namespace octavo::engine::own {
namespace {

class OwnCrossEntropy final : public CrossEntropy {
 public:
  explicit OwnCrossEntropy(const OctavoKernels& kernels) : kernels_(kernels) {}

  at::Tensor run(at::Tensor& logits, const at::Tensor& targets, const Options& options) override {
    const at::NoGradGuard no_grad;
    OCTAVO_ASSERT(logits.scalar_type() == at::kBFloat16 && logits.is_contiguous());
    OCTAVO_ASSERT(targets.scalar_type() == at::kInt && targets.is_contiguous());
    OCTAVO_ASSERT(logits.size(1) <= std::numeric_limits<int32_t>::max());
    OCTAVO_ASSERT(options.classes > 0 && options.classes <= logits.size(1));
    const auto doubles = logits.options().dtype(at::kDouble);
    at::Tensor of_rows =
        options.each.defined() ? options.each : at::empty({logits.size(0), 2}, doubles);
    OCTAVO_ASSERT(of_rows.is_contiguous() && of_rows.numel() == 2 * logits.size(0));
    at::Tensor total = at::empty({2}, doubles);
    const kernels::CrossEntropyArguments arguments{
        .logits = static_cast<kernels::Bf16*>(logits.mutable_data_ptr()),
        .targets = targets.const_data_ptr<int32_t>(),
        .of_rows = static_cast<kernels::LossSums*>(of_rows.mutable_data_ptr()),
        .rows = logits.size(0),
        .columns = static_cast<int32_t>(logits.size(1)),
        .classes = static_cast<int32_t>(options.classes),
        .grad_scale = options.grad_scale,
        .z_weight = options.z_weight,
        .want_gradient = options.want_gradient};
    launch_for(logits, kernels_, "cross-entropy", [&](const OctavoKernels& all, void* stream) {
      return all.cross_entropy(arguments, static_cast<kernels::LossSums*>(total.mutable_data_ptr()),
                               stream);
    });
    // Twice: for the sum, and where they become their gradient.
    note_traffic("octavo_cross_entropy", {logits, logits, targets}, {logits, of_rows, total});
    return total;
  }

 private:
  const OctavoKernels& kernels_;
};

}  // namespace

std::unique_ptr<CrossEntropy> make_cross_entropy(const OctavoKernels& kernels) {
  return std::make_unique<OwnCrossEntropy>(kernels);
}
std::unique_ptr<CrossEntropy> make_cross_entropy() {
  return make_cross_entropy(found_kernels());
}

}  // namespace octavo::engine::own
