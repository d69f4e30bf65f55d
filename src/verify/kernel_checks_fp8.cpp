// The FP8 GEMMs: quantized on the device, multiplied there, compared with the reference, which
// quantizes and multiplies in plain loops.

#include "verify/kernel_checks_fp8.h"

#include <optional>

#include "base/error.h"
#include "engine/engine.h"
#include "fp8/recipe.h"

namespace octavo::verify {
namespace {

using engine::Accumulate;
using engine::Fp8Linear;
using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;
using fp8::Recipe;
using fp8::Role;

// Multiples of 128, so that every recipe takes them.
constexpr int64_t kTokens = 128, kIn = 256, kOut = 384;
// Delayed only: no power of two.
constexpr float kFactor = 37.3f;

QuantizeSpec order_for(Recipe recipe, Role role, Direction direction, const Bench* bench) {
  const fp8::FormatChoice choice = fp8::default_format(recipe);
  QuantizeSpec order{.side = fp8::side_of(recipe, choice, role, direction),
                     .wanted = true,
                     .keep = false,
                     .factor = {},
                     .amax = {}};
  // Rounded to nearest: nobody has the other's draws.
  order.rotate = is_rotated({.recipe = recipe, .format = choice}, role, direction);
  if (!fp8::uses_history(recipe)) return order;
  order.factor = at::full({1}, kFactor);
  order.amax = at::zeros({1});
  if (bench != nullptr) {
    order.factor = bench->to_device(order.factor);
    order.amax = bench->to_device(order.amax);
  }
  return order;
}

Fp8Matrix quantized(Fp8Linear& op, const at::Tensor& x, Recipe recipe, Role role,
                    const Bench* bench, at::Tensor* amax) {
  const Orders orders = orders_for(recipe, role, bench);
  *amax = orders.row.amax;
  return op.quantize(x, recipe, orders.row, orders.column);
}

void check_update(Fp8Linear& op, Fp8Linear& oracle, Bench& bench) {
  at::Tensor history = at::rand({16, 3}) * 10, factors = at::ones({3});
  history.select(1, 2).zero_();  // a layer that did not run keeps its factor
  at::Tensor found_history = bench.to_device(history), found_factors = bench.to_device(factors);
  const std::vector<fp8::Format> formats = {fp8::Format::kE4M3, fp8::Format::kE5M2,
                                            fp8::Format::kE4M3};
  oracle.update_factors(history, factors, formats, fp8::AmaxAlgo::kMax, 0, true);
  op.update_factors(found_history, found_factors, formats, fp8::AmaxAlgo::kMax, 0, true);
  bench.same_within("scaling factors", found_factors, factors, at::zeros({1}, at::kDouble));
}

// What every code is worth: GEMMs with the identity, in which nothing is summed. Codes next to each
// other are 2^-4 apart or more, so that rounding of the result hides none.
void check_codes(Fp8Linear& op, Fp8Linear& oracle, Recipe recipe, const at::Tensor& x,
                 const at::Tensor& w, const at::Tensor& dy, Bench& bench) {
  const auto both = [&](const at::Tensor& t, Role role) {
    at::Tensor amax;
    return Quantized{quantized(op, bench.to_device(t), recipe, role, &bench, &amax),
                     quantized(oracle, t, recipe, role, nullptr, &amax)};
  };
  const auto one = [&](int64_t size, Role role) { return both(at::eye(size).to(x.dtype()), role); };
  const auto compare = [&](const char* what, at::IntArrayRef shape, at::ScalarType type,
                           const auto& multiply) {
    at::Tensor wanted = at::zeros(shape, at::TensorOptions().dtype(type));
    at::Tensor found = bench.to_device(wanted);
    multiply(op, true, found);
    multiply(oracle, false, wanted);
    bench.same_within(what, found, wanted, 0x1p-7 * size_of(wanted));
  };
  const Quantized qx = both(x, Role::kInput), qw = both(w, Role::kWeight),
                  qdy = both(dy, Role::kGradient);
  const Quantized inputs = one(kIn, Role::kInput), inputs_w = one(kIn, Role::kWeight),
                  outputs_w = one(kOut, Role::kWeight), outputs_dy = one(kOut, Role::kGradient),
                  tokens = one(kTokens, Role::kInput), tokens_dy = one(kTokens, Role::kGradient);
  const auto of = [](const Quantized& q, bool found) -> const Fp8Matrix& {
    return found ? q.found : q.wanted;
  };
  const auto type = x.scalar_type();
  compare("codes of x", {kTokens, kIn}, type, [&](Fp8Linear& by, bool f, at::Tensor& y) {
    by.forward(of(qx, f), of(inputs_w, f), {}, y);
  });
  compare("codes of w", {kIn, kOut}, type, [&](Fp8Linear& by, bool f, at::Tensor& y) {
    by.forward(of(inputs, f), of(qw, f), {}, y);
  });
  compare("codes of dy", {kTokens, kOut}, type, [&](Fp8Linear& by, bool f, at::Tensor& y) {
    by.input_gradient(of(qdy, f), of(outputs_w, f), y);
  });
  compare("column codes of w", {kOut, kIn}, type, [&](Fp8Linear& by, bool f, at::Tensor& y) {
    by.input_gradient(of(outputs_dy, f), of(qw, f), y);
  });
  compare("column codes of x", {kTokens, kIn}, at::kFloat,
          [&](Fp8Linear& by, bool f, at::Tensor& y) {
            by.weight_gradient(of(tokens_dy, f), of(qx, f), y, Accumulate::kOverwrite);
          });
  compare("column codes of dy", {kOut, kTokens}, at::kFloat,
          [&](Fp8Linear& by, bool f, at::Tensor& y) {
            by.weight_gradient(of(qdy, f), of(tokens, f), y, Accumulate::kOverwrite);
          });
}

// How far sums may be from `wanted`, which `model` computed again with narrower ones.
at::Tensor slack_of(const at::Tensor& wanted, const at::Tensor& model) {
  const at::Tensor moved = (model.to(at::kDouble) - wanted.to(at::kDouble)).abs();
  return 2 * moved.max() + 0x1p-7 * size_of(wanted);
}

}  // namespace

void check_long_sums(Fp8Linear& op, Fp8Linear& oracle, Recipe recipe, Bench& bench) {
  constexpr int kHopper = 90;
  constexpr int64_t kRows = 32, kColumns = 128;
  std::optional<engine::Engine> hopper;
  if (fp8::traits_of(recipe).native.has(kHopper)) {
    engine::Target target;
    target.hopper_sums = true;
    hopper.emplace(target);
  }
  for (const int64_t terms : {4096, 14336}) {
    const at::Tensor x = bench.random({kRows, terms}), w = bench.random({kColumns, terms}, 0.1),
                     dy = bench.random({kRows, terms}, 1e-2),
                     v = bench.random({terms, kColumns}, 0.1);
    at::Tensor amax;
    const auto here = [&](Fp8Linear& by, const at::Tensor& t, Role role) {
      return quantized(by, t, recipe, role, nullptr, &amax);
    };
    const auto there = [&](const at::Tensor& t, Role role) {
      return quantized(op, bench.to_device(t), recipe, role, &bench, &amax);
    };
    const auto result = [&] { return at::zeros({kRows, kColumns}, x.options()); };
    const auto compare = [&](const char* what, const at::Tensor& terms_of, const auto& multiply) {
      at::Tensor wanted = result(), model = result(), found = bench.to_device(wanted);
      multiply(oracle, false, wanted);
      multiply(op, true, found);
      if (hopper) multiply(*hopper->fp8_linear, false, model);
      bench.same_within(
          octavo::str(what, " over ", terms).c_str(), found, wanted,
          hopper ? slack_of(wanted, model) : 0x1p-14 * terms_of + 0x1p-7 * size_of(wanted));
    };
    compare("forward", at::mm(size_of(x), size_of(w).t()),
            [&](Fp8Linear& by, bool on_device, at::Tensor& y) {
              const auto made = [&](const at::Tensor& t, Role role) {
                return on_device ? there(t, role) : here(by, t, role);
              };
              by.forward(made(x, Role::kInput), made(w, Role::kWeight), {}, y);
            });
    compare("input gradient", at::mm(size_of(dy), size_of(v)),
            [&](Fp8Linear& by, bool on_device, at::Tensor& dx) {
              const auto made = [&](const at::Tensor& t, Role role) {
                return on_device ? there(t, role) : here(by, t, role);
              };
              by.input_gradient(made(dy, Role::kGradient), made(v, Role::kWeight), dx);
            });
  }
}

Orders orders_for(Recipe recipe, Role role, const Bench* bench) {
  Orders orders{order_for(recipe, role, Direction::kRow, bench),
                order_for(recipe, role, Direction::kColumn, bench)};
  orders.column.factor = orders.row.factor;
  orders.column.amax = orders.row.amax;
  return orders;
}

at::Tensor size_of(const at::Tensor& x) {
  return x.to(at::kDouble).abs();
}

void check(Fp8Linear& op, Fp8Linear& oracle, Recipe recipe, Bench& bench) {
  const at::Tensor x = bench.random({kTokens, kIn}), w = bench.random({kOut, kIn}, 0.1),
                   dy = bench.random({kTokens, kOut}, 1e-2), bias = bench.random_parameter({kOut});
  const auto both = [&](const at::Tensor& t, Role role) {
    at::Tensor amax, found_amax;
    Quantized made{quantized(op, bench.to_device(t), recipe, role, &bench, &found_amax),
                   quantized(oracle, t, recipe, role, nullptr, &amax)};
    if (amax.defined()) bench.same_bits("amax", found_amax, amax);
    return made;
  };
  const Quantized qx = both(x, Role::kInput), qw = both(w, Role::kWeight),
                  qdy = both(dy, Role::kGradient);
  at::Tensor y = at::empty({kTokens, kOut}, x.options()), dx = at::empty_like(x),
             dw = at::randn({kOut, kIn}) * 1e-2;
  at::Tensor found_y = bench.to_device(y), found_dx = bench.to_device(dx),
             found_dw = bench.to_device(dw);
  const at::Tensor dw_terms = at::mm(size_of(dy).t(), size_of(x)) + size_of(dw);
  oracle.forward(qx.wanted, qw.wanted, bias, y);
  op.forward(qx.found, qw.found, bench.parameter_to_device(bias), found_y);
  bench.same_sums("forward", found_y, y, at::mm(size_of(x), size_of(w).t()) + size_of(bias));
  oracle.input_gradient(qdy.wanted, qw.wanted, dx);
  op.input_gradient(qdy.found, qw.found, found_dx);
  bench.same_sums("input gradient", found_dx, dx, at::mm(size_of(dy), size_of(w)));
  oracle.weight_gradient(qdy.wanted, qx.wanted, dw, Accumulate::kAdd);
  op.weight_gradient(qdy.found, qx.found, found_dw, Accumulate::kAdd);
  bench.same_sums("weight gradient", found_dw, dw, dw_terms);
  check_codes(op, oracle, recipe, x, w, dy, bench);
  if (bench.on_gpu()) check_long_sums(op, oracle, recipe, bench);
  if (fp8::uses_history(recipe)) check_update(op, oracle, bench);
  if (op.has_fused_passes()) check_fused(op, oracle, recipe, {x, w, dy, qx, qw, qdy}, bench);
}

}  // namespace octavo::verify
