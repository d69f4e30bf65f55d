// Rates of every implementation on the shapes of GPT-2 124M with 4 x 256 tokens. GB/s counts each
// tensor once; FLOP/s counts a multiply-add as two and, for attention, only what is not masked.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/error.h"
#include "engine/fp8_linear.h"
#include "engine/modes.h"
#include "engine/op_table.h"
#include "engine/ops.h"
#include "kernels/adamw_storage.h"

namespace octavo::engine {
namespace {

constexpr int64_t kBatch = 4, kLength = 256, kTokens = kBatch * kLength, kWidth = 768, kHeads = 12,
                  kVocab = 50304, kClasses = 50257;

// Median of at least three runs, half a second of them if they are short; one if a run takes long.
double seconds_of(const std::function<void()>& run) {
  const auto once = [&] {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double first = once();
  if (first > 2) return first;
  std::vector<double> times;
  double total = 0;
  while (times.size() < 3 || (total < 0.5 && times.size() < 1000)) {
    times.push_back(once());
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

enum class Unit { kGflops, kGigabytes };

class Row {
 public:
  Row(std::string_view op, std::string_view implementation, at::ScalarType compute)
      : op_(op), implementation_(implementation), compute_(compute) {}
  void measure(const char* what, Unit unit, double amount, const std::function<void()>& run) const {
    const double seconds = seconds_of(run);
    std::printf("%-14s %-24s %-16s %-5s %10.3f ms %9.1f %s\n", op_.c_str(), what,
                implementation_.c_str(), compute_ == at::kBFloat16 ? "bf16" : "fp32", 1e3 * seconds,
                amount / seconds * 1e-9, unit == Unit::kGflops ? "GFLOP/s" : "GB/s");
    std::fflush(stdout);
  }
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape).to(compute_); }
  at::Tensor empty(at::IntArrayRef shape) const { return at::empty(shape, compute_); }
  double bytes(double values) const { return values * (compute_ == at::kBFloat16 ? 2 : 4); }

 private:
  std::string op_, implementation_;
  at::ScalarType compute_;
};

void measure(Matmul& op, const Row& row) {
  struct LayerShape {
    const char *forward, *input, *weight;
    int64_t in, out;
  };
  constexpr LayerShape kLayers[] = {
      {"qkv y", "qkv dx", "qkv dw", kWidth, 3 * kWidth},
      {"attn out y", "attn out dx", "attn out dw", kWidth, kWidth},
      {"mlp up y", "mlp up dx", "mlp up dw", kWidth, 4 * kWidth},
      {"mlp down y", "mlp down dx", "mlp down dw", 4 * kWidth, kWidth},
      {"head y", "head dx", "head dw", kWidth, kVocab}};
  for (const auto& p : kLayers) {
    const at::Tensor x = row.random({kTokens, p.in}), w = row.random({p.out, p.in}),
                     dy = row.random({kTokens, p.out}), bias = at::randn({p.out});
    at::Tensor y = row.empty({kTokens, p.out}), dx = row.empty({kTokens, p.in}),
               dw = at::zeros({p.out, p.in});
    const double flops = 2.0 * static_cast<double>(kTokens * p.in * p.out);
    row.measure(p.forward, Unit::kGflops, flops, [&] { op.forward(x, w, bias, y); });
    row.measure(p.input, Unit::kGflops, flops, [&] { op.input_gradient(dy, w, dx); });
    row.measure(p.weight, Unit::kGflops, flops,
                [&] { op.weight_gradient(dy, x, dw, Accumulate::kAdd); });
  }
}

// The larger GEMM of the MLP, and what quantizing for it costs: the input as BF16 values and,
// for later, as codes; the gradient and the weight as values in both directions.
void measure(Fp8Linear& op, const Row& row, fp8::Recipe recipe) {
  const auto choice = fp8::default_format(recipe);
  const auto quantize = [&](const at::Tensor& x, fp8::Role role) {
    const auto order = [&](fp8::Direction direction, bool keep) {
      return QuantizeSpec{side_of(recipe, choice, role, direction), true, keep,
                          at::full({1}, 100.0f), at::Tensor()};
    };
    return op.quantize(x, recipe, order(fp8::Direction::kRow, false),
                       order(fp8::Direction::kColumn, role == fp8::Role::kInput));
  };
  const at::Tensor x = row.random({kTokens, kWidth}), w = row.random({4 * kWidth, kWidth}),
                   dy = row.random({kTokens, 4 * kWidth}), bias = at::randn({4 * kWidth});
  at::Tensor y = row.empty({kTokens, 4 * kWidth}), dx = row.empty({kTokens, kWidth}),
             dw = at::zeros({4 * kWidth, kWidth});
  const std::string name(config::name_of(recipe));
  const auto timed = [&](const char* what, Unit unit, double amount, const auto& run) {
    row.measure((name + " " + what).c_str(), unit, amount, run);
  };
  const double values = 1.0 * kTokens * kWidth, flops = 8.0 * kTokens * kWidth * kWidth;
  timed("input", Unit::kGigabytes, 5 * values, [&] { quantize(x, fp8::Role::kInput); });
  timed("gradient", Unit::kGigabytes, 24 * values, [&] { quantize(dy, fp8::Role::kGradient); });
  const Fp8Matrix qx = quantize(x, fp8::Role::kInput), qw = quantize(w, fp8::Role::kWeight),
                  qdy = quantize(dy, fp8::Role::kGradient);
  timed("y", Unit::kGflops, flops, [&] { op.forward(qx, qw, bias, y); });
  timed("dx", Unit::kGflops, flops, [&] { op.input_gradient(qdy, qw, dx); });
  timed("dw", Unit::kGflops, flops, [&] { op.weight_gradient(qdy, qx, dw, Accumulate::kAdd); });
}

void measure(Fp8Linear& op, const Row& row) {
  for (const fp8::Recipe recipe : fp8::kRecipes) measure(op, row, recipe);
}

void measure(LayerNorm& op, const Row& row) {
  const at::Tensor x = row.random({kTokens, kWidth}), delta = row.random({kTokens, kWidth}),
                   gamma = at::randn({kWidth});
  at::Tensor dgamma = at::zeros({kWidth}), dbeta = at::zeros({kWidth});
  const auto saved = op.forward(x, delta, gamma, gamma, 1e-5);
  const double bytes = row.bytes(4.0 * kTokens * kWidth);
  row.measure("add + norm forward", Unit::kGigabytes, bytes,
              [&] { op.forward(x, delta, gamma, gamma, 1e-5); });
  row.measure("add + norm backward", Unit::kGigabytes, bytes,
              [&] { op.backward(x, delta, saved, gamma, dgamma, dbeta, Accumulate::kAdd); });
}

void measure(Gelu& op, const Row& row) {
  const at::Tensor x = row.random({kTokens, 4 * kWidth});
  at::Tensor dy = row.random({kTokens, 4 * kWidth}), dbias = at::zeros({4 * kWidth});
  const double bytes = row.bytes(4.0 * kTokens * kWidth);
  row.measure("forward", Unit::kGigabytes, 2 * bytes, [&] { op.forward(x); });
  row.measure("backward", Unit::kGigabytes, 3 * bytes,
              [&] { op.backward(dy, x, dbias, Accumulate::kAdd); });
}

void measure(ColumnSum& op, const Row& row) {
  const at::Tensor x = row.random({kTokens, 3 * kWidth});
  at::Tensor sums = at::zeros({3 * kWidth});
  row.measure("qkv bias", Unit::kGigabytes, row.bytes(3.0 * kTokens * kWidth),
              [&] { op.add(x, sums, Accumulate::kAdd); });
}

void measure(CrossEntropy& op, const Row& row) {
  at::Tensor logits = row.random({kTokens, kVocab});
  const at::Tensor targets = at::randint(kClasses, {kTokens}, at::kInt);
  const double bytes = row.bytes(1.0 * kTokens * kVocab);
  row.measure("loss", Unit::kGigabytes, bytes, [&] {
    op.run(logits, targets, {kClasses, 1, 0, false});
  });
  row.measure("loss and gradient", Unit::kGigabytes, 2 * bytes, [&] {
    op.run(logits, targets, {kClasses, 1, 0, true});
  });
}

void measure(Attention& op, const Row& row) {
  const at::Tensor qkv = row.random({kTokens, 3 * kWidth}), d_out = row.random({kTokens, kWidth});
  Attention::Shape shape{kHeads, kHeads, kWidth / kHeads, {}, {}, kLength};
  for (int64_t i = 0; i <= kBatch; ++i) shape.bounds.push_back(i * kLength);
  const auto saved = op.forward(qkv, shape);
  const double pairs = kBatch * 0.5 * kLength * (kLength + 1);
  row.measure("forward", Unit::kGflops, 4 * pairs * kWidth, [&] { op.forward(qkv, shape); });
  row.measure("backward", Unit::kGflops, 10 * pairs * kWidth,
              [&] { op.backward(d_out, qkv, saved, shape); });
}

void measure(Embedding& op, const Row& row) {
  const at::Tensor tokens = row.random({kVocab, kWidth}), positions = row.random({1024, kWidth}),
                   dx = row.random({kTokens, kWidth}),
                   ids = at::randint(kClasses, {kTokens}, at::kInt);
  at::Tensor d_tokens = at::zeros({kVocab, kWidth}), d_positions = at::zeros({1024, kWidth});
  const double values = 1.0 * kTokens * kWidth;
  row.measure("forward", Unit::kGigabytes, row.bytes(3 * values),
              [&] { op.forward(ids, tokens, positions, kLength); });
  row.measure("backward", Unit::kGigabytes, row.bytes(values) + 16 * values,
              [&] { op.backward(ids, dx, d_tokens, d_positions, kLength); });
}

void measure(AdamW& op, const Row& row) {
  constexpr int64_t kSize = kVocab * kWidth;
  const auto moment = [](at::ScalarType type) {
    AdamW::Moment made{at::zeros({kSize}, type), {}};
    if (type == at::kByte) made.scales = at::zeros({adamw::block_count(kSize)}, at::kFloat);
    return made;
  };
  const at::Tensor random = at::randn({kSize}), grad = random.to(at::kBFloat16);
  at::Tensor master = random.clone(), low = random.to(at::kBFloat16),
             compute = at::empty({kSize}, at::kBFloat16), none;
  AdamW::Moment m = moment(at::kFloat), v = moment(at::kFloat);
  row.measure("step", Unit::kGigabytes, 30.0 * kSize,
              [&] { op.step(master, m, v, random, compute, {.lr = 1e-4f, .weight_decay = 0.1f}); });
  for (const auto type : {at::kBFloat16, at::kByte}) {
    m = moment(type);
    v = moment(type);
    row.measure(type == at::kByte ? "step bf16/fp8" : "step bf16/bf16", Unit::kGigabytes,
                (type == at::kByte ? 10.0 : 14.0) * kSize,
                [&] { op.step(low, m, v, grad, none, {.lr = 1e-4f, .weight_decay = 0.1f}); });
  }
  row.measure("sum of squares", Unit::kGigabytes, 4.0 * kSize, [&] { op.sum_of_squares(random); });
}

template <class Op>
void measure_all() {
  // AdamW's tensors are FP32 whatever the compute dtype is, and FP8 is made from BF16.
  const bool once = std::is_same_v<Op, AdamW> || std::is_same_v<Op, Fp8Linear>;
  for (const auto& implementation : implementations<Op>())
    for (const auto compute : {at::kBFloat16, at::kFloat}) {
      if (once && compute == at::kFloat) continue;
      const std::string reason = implementation.refusal(all_that_exist(compute));
      if (reason.empty())
        measure(*implementation.make(), Row(Op::kName, implementation.name, compute));
      else
        std::printf("%-14s %-24s %-16s %-5s refused: %s\n", std::string(Op::kName).c_str(), "",
                    std::string(implementation.name).c_str(),
                    compute == at::kBFloat16 ? "bf16" : "fp32", reason.c_str());
    }
}

}  // namespace

void print_speed() {
  std::printf("threads: %d\n", at::get_num_threads());
  measure_all<Matmul>();
  measure_all<Fp8Linear>();
  measure_all<LayerNorm>();
  measure_all<Gelu>();
  measure_all<ColumnSum>();
  measure_all<CrossEntropy>();
  measure_all<Attention>();
  measure_all<Embedding>();
  measure_all<AdamW>();
}

}  // namespace octavo::engine
