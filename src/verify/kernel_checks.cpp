#include "verify/kernel_checks.h"

#include <cmath>

#include "base/error.h"

namespace octavo::verify {
namespace {

using engine::Accumulate;

// One unit in the last place of `dtype` at each value of t (FP64).
at::Tensor unit_at(const at::Tensor& t, at::ScalarType dtype) {
  const double digits = dtype == at::kBFloat16 ? 7 : 23;
  return at::exp2(t.abs().clamp_min(0x1p-126).log2().floor() - digits);
}

at::Tensor magnitude_of(const at::Tensor& t) {
  return t.to(at::kDouble).abs();
}

std::string share(double value) {
  return value == 0 ? "0" : str("2^", std::lround(std::log2(value)));
}

struct GeluOperands {
  const at::Tensor &x, &w, &bias, &dy;
};

// GELU at the end of a GEMM, and its gradient: beside FP64, since the reference rounds between.
void check_gelu(engine::Matmul& op, const GeluOperands& o, Bench& bench) {
  const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
  // GELU's slope is at most 1.13, and it may read what was rounded to BF16.
  constexpr double kSlope = 1.13;
  const at::Tensor h = at::mm(wide(o.x), wide(o.w).t()) + wide(o.bias),
                   h_terms =
                       at::mm(magnitude_of(o.x), magnitude_of(o.w).t()) + magnitude_of(o.bias);
  at::Tensor found_h = bench.to_device(h.to(o.x.scalar_type()).zero_()),
             found_y = at::empty_like(found_h);
  const at::Tensor w = bench.to_device(o.w);
  op.forward_gelu(bench.to_device(o.x), w, bench.parameter_to_device(o.bias), found_h, found_y);
  bench.same_sums("forward before GELU", found_h, h.to(o.x.scalar_type()), h_terms);
  bench.same_within("forward with GELU", found_y, at::gelu(h, "tanh").to(o.x.scalar_type()),
                    kSlope * (bench.tolerance().of_sum * h_terms + 0x1p-8 * h.abs()));
  const at::Tensor input = bench.random(o.x.sizes());
  at::Tensor found = bench.to_device(at::empty_like(o.x));
  op.input_gradient_gelu(bench.to_device(o.dy), w, bench.to_device(input), found);
  const at::Tensor made = at::mm(wide(o.dy), wide(o.w));
  bench.same_sums("input gradient with GELU's", found,
                  at::gelu_backward(made, wide(input), "tanh").to(o.x.scalar_type()),
                  kSlope * at::mm(magnitude_of(o.dy), magnitude_of(o.w)));
}

}  // namespace

std::string Tolerance::text() const {
  return str("within the last rounding and ", share(of_sum), " of a sum's terms, ",
             share(of_largest), " of the largest value");
}

Tolerance tolerance_of(std::string_view name, at::Device device, at::ScalarType compute) {
  const bool rounds_between = !name.starts_with("cpu") && name != "reference";
  Tolerance t{.of_sum = device.is_cuda() ? 0x1p-16 : 0x1p-20, .of_largest = 0x1p-16};
  if (compute == at::kBFloat16 && rounds_between) t.of_largest = 0x1p-7;
  t.same_bits = name.starts_with("cpu");
  return t;
}

Tolerance native_fp8_tolerance() {
  return {.of_sum = 0x1p-10, .of_largest = 0x1p-10};
}

void Bench::same_within(const char* what, const at::Tensor& on_device, const at::Tensor& reference,
                        const at::Tensor& slack) {
  if (!trouble_.empty()) return;  // the first is the one to look at
  if (on_device.scalar_type() != reference.scalar_type() ||
      on_device.sizes() != reference.sizes()) {
    trouble_ = octavo::str(what, ": wanted ", reference.scalar_type(), reference.sizes(),
                           ", found ", on_device.scalar_type(), on_device.sizes());
    return;
  }
  const at::Tensor found = on_device.to(at::kCPU).to(at::kDouble),
                   wanted = reference.to(at::kDouble);
  const double units = reference.scalar_type() == at::kBFloat16 ? 1 : 2;
  const at::Tensor allowed = units * unit_at(wanted, reference.scalar_type()) + slack;
  const at::Tensor error = (found - wanted).abs();
  // Written so that a NaN on either side is outside.
  const at::Tensor outside = (error <= allowed).logical_not();
  const at::Tensor excess = (error / allowed).nan_to_num(1e300).flatten();
  compared_ += found.numel();
  worst_ = std::max(worst_, excess.max().item<double>());
  const auto count = outside.sum().item<int64_t>();
  if (count == 0) return;
  const auto at_worst = [&](const at::Tensor& t) {
    return t.expand_as(found).reshape({-1})[excess.argmax().item<int64_t>()].item<double>();
  };
  trouble_ = str(what, ": ", count, " of ", found.numel(), " values are off, one by ",
                 at_worst(error), " (wanted ", at_worst(wanted), ", found ", at_worst(found),
                 ", allowed ", at_worst(allowed), ")");
}

void Bench::same_values(const char* what, const at::Tensor& found, const at::Tensor& wanted) {
  const double largest = magnitude_of(wanted).max().item<double>();
  same_within(what, found, wanted, at::scalar_tensor(tolerance_.of_largest * largest, at::kDouble));
}

void Bench::same_sums(const char* what, const at::Tensor& found, const at::Tensor& wanted,
                      const at::Tensor& magnitudes) {
  same_within(what, found, wanted, tolerance_.of_sum * magnitudes);
}

void Bench::same_bits(const char* what, const at::Tensor& on_device, const at::Tensor& wanted) {
  if (!trouble_.empty()) return;
  const at::Tensor found = on_device.to(at::kCPU);
  compared_ += found.numel();
  if (!at::equal(found, wanted))
    trouble_ = str(what, ": ", found.ne(wanted).sum().item<int64_t>(), " of ", found.numel(),
                   " values are not the reference's, bit for bit");
}

void check(engine::Matmul& op, engine::Matmul& oracle, Bench& bench) {
  constexpr int64_t kRows = 96, kIn = 256, kOut = 384;
  const at::Tensor x = bench.random({kRows, kIn}), w = bench.random({kOut, kIn}),
                   dy = bench.random({kRows, kOut}), bias = bench.random_parameter({kOut});
  const at::Tensor device_x = bench.to_device(x), device_w = bench.to_device(w),
                   device_dy = bench.to_device(dy);
  at::Tensor y = at::empty({kRows, kOut}, x.options()), dx = at::empty_like(x),
             dw = at::randn({kOut, kIn});
  at::Tensor found_y = bench.to_device(y), found_dx = bench.to_device(dx),
             found_dw = bench.to_device(dw);
  const at::Tensor dw_terms = at::mm(magnitude_of(dy).t(), magnitude_of(x)) + magnitude_of(dw);
  oracle.forward(x, w, bias, y);
  op.forward(device_x, device_w, bench.parameter_to_device(bias), found_y);
  bench.same_sums("forward", found_y, y,
                  at::mm(magnitude_of(x), magnitude_of(w).t()) + magnitude_of(bias));
  oracle.input_gradient(dy, w, dx);
  op.input_gradient(device_dy, device_w, found_dx);
  bench.same_sums("input gradient", found_dx, dx, at::mm(magnitude_of(dy), magnitude_of(w)));
  oracle.weight_gradient(dy, x, dw, Accumulate::kAdd);
  op.weight_gradient(device_dy, device_x, found_dw, Accumulate::kAdd);
  bench.same_sums("weight gradient", found_dw, dw, dw_terms);
  if (!op.sums_biases()) return;
  at::Tensor found_sums = bench.to_device(at::zeros({kOut}));
  oracle.weight_gradient(dy, x, dw, Accumulate::kAdd);
  op.weight_bias_gradient(device_dy, device_x, found_dw, Accumulate::kAdd, found_sums,
                          Accumulate::kOverwrite);
  bench.same_sums("weight gradient with the bias's", found_dw, dw, 2 * dw_terms);
  // A GPU's first gradient of a step may be in BF16, as the library gives it.
  const at::Tensor sums = dy.to(at::kFloat).sum(0);
  bench.same_within(
      "bias gradient", found_sums.to(at::kFloat), sums,
      bench.tolerance().of_sum * magnitude_of(dy).sum(0) + 0x1p-8 * magnitude_of(sums));
  if (op.fuses_gelu()) check_gelu(op, {x, w, bias, dy}, bench);
}

void check(engine::ColumnSum& op, engine::ColumnSum& oracle, Bench& bench) {
  const at::Tensor x = bench.random({100, 256});
  at::Tensor sums = at::randn({256}), found = bench.to_device(sums);
  const at::Tensor terms = magnitude_of(x).sum(0) + magnitude_of(sums);
  oracle.add(x, sums, Accumulate::kAdd);
  op.add(bench.to_device(x), found, Accumulate::kAdd);
  bench.same_sums("sums", found, sums, terms);
}

void check(engine::CrossEntropy& op, engine::CrossEntropy& oracle, Bench& bench) {
  constexpr int64_t kRows = 64, kClasses = 1000, kPadded = 1024;
  at::Tensor logits = bench.random({kRows, kPadded}, 3), found = bench.to_device(logits);
  at::Tensor targets = at::randint(kClasses, {kRows}, at::kInt);
  targets[3] = -1;
  engine::CrossEntropy::Options options{kClasses, 0.25f, 1e-2f, true,
                                        at::empty({kRows, 2}, at::kDouble)};
  const at::Tensor wanted_sums = oracle.run(logits, targets, options), wanted_each = options.each;
  options.each = bench.to_device(at::zeros_like(wanted_each));
  const at::Tensor sums = op.run(found, bench.to_device(targets), options);
  bench.same_values("loss of each token", options.each.select(1, 0).to(at::kFloat),
                    wanted_each.select(1, 0).to(at::kFloat));
  bench.same_values("losses", sums.to(at::kFloat), wanted_sums.to(at::kFloat));
  bench.same_values("gradient", found, logits);
}

void check(engine::Embedding& op, engine::Embedding& oracle, Bench& bench) {
  constexpr int64_t kTokens = 100, kLength = 25, kWidth = 256, kVocabulary = 50;
  const at::Tensor tokens = bench.random({kVocabulary, kWidth}),
                   positions = bench.random({kLength, kWidth}),
                   dx = bench.random({kTokens, kWidth}),
                   ids = at::randint(kVocabulary, {kTokens}, at::kInt);
  const at::Tensor device_ids = bench.to_device(ids);
  bench.same_values(
      "forward",
      op.forward(device_ids, bench.to_device(tokens), bench.to_device(positions), kLength),
      oracle.forward(ids, tokens, positions, kLength));
  at::Tensor d_tokens = at::randn({kVocabulary, kWidth}),
             d_positions = at::randn({kLength, kWidth});
  at::Tensor found_tokens = bench.to_device(d_tokens),
             found_positions = bench.to_device(d_positions);
  const at::Tensor token_terms =
      magnitude_of(d_tokens).index_add(0, ids.to(at::kLong), magnitude_of(dx));
  oracle.backward(ids, dx, d_tokens, d_positions, kLength);
  op.backward(device_ids, bench.to_device(dx), found_tokens, found_positions, kLength);
  bench.same_sums("gradient of tokens", found_tokens, d_tokens, token_terms);
  bench.same_values("gradient of positions", found_positions, d_positions);
}

void check(engine::Attention& op, engine::Attention& oracle, Bench& bench) {
  // Two sequences of unlike length, four queries on two keys.
  engine::Attention::Shape shape;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.dim = 64;
  shape.bounds = {0, 70, 128};
  shape.longest = 70;
  const at::Tensor qkv = bench.random({128, shape.row()}),
                   d_out = bench.random({128, shape.width()});
  const auto wanted = oracle.forward(qkv, shape);
  const at::Tensor wanted_gradient = oracle.backward(d_out, qkv, wanted, shape);
  if (bench.on_gpu()) shape.starts = bench.to_device(at::tensor({0, 70, 128}, at::kInt));
  const at::Tensor device_qkv = bench.to_device(qkv);
  const auto found = op.forward(device_qkv, shape);
  const at::Tensor gradient = op.backward(bench.to_device(d_out), device_qkv, found, shape);
  // In BF16 probabilities and their gradients may be rounded before the next GEMM.
  const double rounded = bench.compute() == at::kBFloat16 ? 0x1p-7 : 0x1p-16;
  const auto slack = [&](const at::Tensor& t) {
    return at::scalar_tensor(rounded * magnitude_of(t).max().item<double>(), at::kDouble);
  };
  bench.same_within("output", found.out, wanted.out, slack(wanted.out));
  bench.same_within("gradient", gradient, wanted_gradient, slack(wanted_gradient));
}

}  // namespace octavo::verify
