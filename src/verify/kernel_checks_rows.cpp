// Operations that work row by row: norms, activations, rotations.

#include "verify/kernel_checks.h"

namespace octavo::verify {
namespace {

using engine::Accumulate;

constexpr int64_t kRows = 100, kWidth = 512;

}  // namespace

void check(engine::LayerNorm& op, engine::LayerNorm& oracle, Bench& bench) {
  constexpr double kEps = 1e-5;
  const at::Tensor x = bench.random({kRows, kWidth}, 2), delta = bench.random({kRows, kWidth}),
                   d_normed = bench.random({kRows, kWidth}), d_sum = bench.random({kRows, kWidth}),
                   gamma = bench.random_parameter({kWidth}),
                   beta = bench.random_parameter({kWidth});
  const at::Tensor there_gamma = bench.parameter_to_device(gamma);
  const auto wanted = oracle.forward(x, delta, gamma, beta, kEps);
  const auto found = op.forward(bench.to_device(x), bench.to_device(delta), there_gamma,
                                bench.parameter_to_device(beta), kEps);
  bench.same_values("sum", found.sum, wanted.sum);
  bench.same_values("norm", found.normed, wanted.normed);
  at::Tensor dgamma = at::randn({kWidth}), dbeta = at::randn({kWidth});
  at::Tensor found_dgamma = bench.to_device(dgamma), found_dbeta = bench.to_device(dbeta);
  const at::Tensor dx =
      oracle.backward(d_normed, d_sum, wanted, gamma, dgamma, dbeta, Accumulate::kAdd);
  const at::Tensor found_dx = op.backward(bench.to_device(d_normed), bench.to_device(d_sum), found,
                                          there_gamma, found_dgamma, found_dbeta, Accumulate::kAdd);
  bench.same_values("gradient", found_dx, dx);
  bench.same_values("gradient of gamma", found_dgamma, dgamma);
  bench.same_values("gradient of beta", found_dbeta, dbeta);
}

void check(engine::RmsNorm& op, engine::RmsNorm& oracle, Bench& bench) {
  constexpr double kEps = 1e-6;
  const at::Tensor x = bench.random({kRows, kWidth}, 2), delta = bench.random({kRows, kWidth}),
                   d_normed = bench.random({kRows, kWidth}), d_sum = bench.random({kRows, kWidth}),
                   gamma = bench.random_parameter({kWidth});
  const at::Tensor there_gamma = bench.parameter_to_device(gamma);
  const auto wanted = oracle.forward(x, delta, gamma, kEps);
  const auto found = op.forward(bench.to_device(x), bench.to_device(delta), there_gamma, kEps);
  bench.same_values("sum", found.sum, wanted.sum);
  bench.same_values("norm", found.normed, wanted.normed);
  at::Tensor dgamma = at::randn({kWidth}), found_dgamma = bench.to_device(dgamma);
  const at::Tensor dx = oracle.backward(d_normed, d_sum, wanted, gamma, dgamma, Accumulate::kAdd);
  const at::Tensor found_dx = op.backward(bench.to_device(d_normed), bench.to_device(d_sum), found,
                                          there_gamma, found_dgamma, Accumulate::kAdd);
  bench.same_values("gradient", found_dx, dx);
  bench.same_values("gradient of gamma", found_dgamma, dgamma);
}

void check(engine::Gelu& op, engine::Gelu& oracle, Bench& bench) {
  const at::Tensor x = bench.random({kRows, kWidth}, 3), device_x = bench.to_device(x);
  bench.same_values("forward", op.forward(device_x), oracle.forward(x));
  at::Tensor dy = bench.random({kRows, kWidth}), found = bench.to_device(dy),
             dbias = at::randn({kWidth}), found_dbias = bench.to_device(dbias);
  oracle.backward(dy, x, dbias, Accumulate::kAdd);
  op.backward(found, device_x, found_dbias, Accumulate::kAdd);
  bench.same_values("gradient", found, dy);
  // The sum of what flows on, as it was rounded there: each of the rows by up to 2^-8.
  bench.same_within("gradient of the bias", found_dbias, dbias,
                    (bench.tolerance().of_sum + (bench.compute() == at::kBFloat16 ? 0x1p-7 : 0)) *
                        (dy.to(at::kDouble).abs().sum(0) + 1));
}

namespace {

template <class Op>
void check_gated(Op& op, Op& oracle, Bench& bench) {
  const at::Tensor x = bench.random({kRows, 2 * kWidth}, 3), dy = bench.random({kRows, kWidth}),
                   device_x = bench.to_device(x);
  bench.same_values("forward", op.forward(device_x), oracle.forward(x));
  bench.same_values("gradient", op.backward(bench.to_device(dy), device_x), oracle.backward(dy, x));
}

}  // namespace

void check(engine::SwiGlu& op, engine::SwiGlu& oracle, Bench& bench) {
  check_gated(op, oracle, bench);
}

void check(engine::GeGlu& op, engine::GeGlu& oracle, Bench& bench) {
  check_gated(op, oracle, bench);
}

void check(engine::Rope& op, engine::Rope& oracle, Bench& bench) {
  constexpr int64_t kHeads = 3, kDim = 64;
  const at::Tensor angles = at::rand({128, kDim / 2}, at::kDouble) * 6,
                   table = at::cat({angles.cos(), angles.sin()}, 1).to(at::kFloat),
                   positions = at::randint(128, {kRows}, at::kInt);
  for (const bool back : {false, true}) {
    // The last head of a row is not rotated.
    at::Tensor x = bench.random({kRows, (kHeads + 1) * kDim}), found = bench.to_device(x);
    oracle.rotate(x, positions, table, kHeads, back);
    op.rotate(found, bench.to_device(positions), bench.to_device(table), kHeads, back);
    bench.same_values(back ? "backward" : "forward", found, x);
  }
  if (!op.packs()) return;
  const at::Tensor dq = bench.random({kRows, 2 * kDim}), dk = bench.random({kRows, kDim}),
                   dv = bench.random({kRows, kDim});
  at::Tensor packed = at::cat({dq, dk, dv}, 1);
  oracle.rotate(packed, positions, table, kHeads, /*back=*/true);
  bench.same_values("gradients of q, k and v, packed",
                    op.packed_back(bench.to_device(dq), bench.to_device(dk), bench.to_device(dv),
                                   bench.to_device(positions), bench.to_device(table)),
                    packed);
}

}  // namespace octavo::verify
