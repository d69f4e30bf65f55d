#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/adamw_storage.h"
#include "verify/kernel_checks.h"

namespace octavo::verify {
namespace {

using engine::AdamW;

constexpr int64_t kElements = 4096;

AdamW::Moment moment_of(at::ScalarType type) {
  return {at::zeros({kElements}, type),
          type == at::kByte
              ? at::zeros({adamw::block_count(kElements)}, at::TensorOptions(at::kFloat))
              : at::Tensor()};
}

AdamW::Update copied(const AdamW::Update& u, const Bench& bench) {
  return {bench.to_device(u.master),
          {bench.to_device(u.m.values), bench.to_device(u.m.scales)},
          {bench.to_device(u.v.values), bench.to_device(u.v.scales)},
          bench.to_device(u.grad),
          bench.to_device(u.compute),
          u.hyper};
}

void compare(Bench& bench, const char* what, const AdamW::Update& found,
             const AdamW::Update& wanted) {
  if (bench.tolerance().same_bits) {
    bench.same_bits(what, found.master, wanted.master);
    bench.same_bits(what, found.m.values, wanted.m.values);
    bench.same_bits(what, found.v.values, wanted.v.values);
    return;
  }
  // Others: what is rounded may be the other neighbour of the exact value.
  const bool rounds = wanted.master.scalar_type() == at::kBFloat16;
  bench.same_within(what, found.master, wanted.master,
                    (rounds ? 0x1p-7 : 0x1p-18) * (wanted.master.to(at::kDouble).abs() + 0x1p-10));
  if (wanted.m.values.scalar_type() == at::kFloat) {
    bench.same_values(what, found.m.values, wanted.m.values);
    bench.same_values(what, found.v.values, wanted.v.values);
  }
}

}  // namespace

void check(AdamW& op, AdamW& oracle, Bench& bench) {
  struct State {
    const char* name;
    at::ScalarType master, moments;
  };
  constexpr State kStates[] = {{"FP32 state", at::kFloat, at::kFloat},
                               {"BF16 state", at::kBFloat16, at::kBFloat16},
                               {"BF16 weights, FP8 moments", at::kBFloat16, at::kByte}};
  for (const State& state : kStates) {
    const bool copies = state.master == at::kFloat;
    AdamW::Update wanted{at::randn({kElements}).to(state.master),
                         moment_of(state.moments),
                         moment_of(state.moments),
                         at::randn({kElements}) * 0.1,
                         copies ? at::zeros({kElements}, at::kBFloat16) : at::Tensor(),
                         {.lr = 1e-2f, .weight_decay = 0.1f, .step = 3, .grad_scale = 0.5f}};
    std::vector<AdamW::Update> found = {copied(wanted, bench)};
    oracle.step(wanted.master, wanted.m, wanted.v, wanted.grad, wanted.compute, wanted.hyper);
    op.step_all(found);
    compare(bench, state.name, found[0], wanted);
  }
  const at::Tensor grad = at::randn({kElements});
  const at::Tensor sums = at::tensor({op.sum_of_squares(bench.to_device(grad))}, at::kDouble),
                   wanted_sums = at::tensor({oracle.sum_of_squares(grad)}, at::kDouble);
  bench.same_sums("sum of squares", sums.to(at::kFloat), wanted_sums.to(at::kFloat), wanted_sums);
  // By these sums a step knows of a gradient that is not finite.
  at::Tensor infinite = grad.clone();
  infinite[kElements / 2] = std::numeric_limits<float>::infinity();
  const at::Tensor of_each =
      op.sums_of_squares({bench.to_device(grad * 1e15), bench.to_device(infinite)});
  bench.same_bits("finite sums of squares", at::isfinite(of_each.cpu()).to(at::kInt),
                  at::tensor({1, 0}, at::kInt));
}

}  // namespace octavo::verify
