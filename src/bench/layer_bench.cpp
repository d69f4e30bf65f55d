#include "bench/layer_bench.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace octavo::bench {
namespace {

using at::Tensor;
using engine::Accumulate;
using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;
using fp8::Role;
using nn::Gemm;

constexpr size_t kMostRounds = 1000;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one piece of work.
double seconds_of(const engine::Target& target, const std::function<void()>& work) {
  const auto wait = [&] {
    if (target.device.is_cuda())
      at::detail::getCUDAHooks().deviceSynchronize(target.device.index());
  };
  // Enough at once that starting and waiting do not count.
  const int repeats = target.device.is_cuda() ? 10 : 1;
  wait();
  const double start = now();
  for (int r = 0; r < repeats; ++r) work();
  wait();
  return (now() - start) / repeats;
}

// The matrices of a layer on the device.
struct Operands {
  Operands(const engine::Target& target, const LayerShape& s)
      : options(at::TensorOptions(target.device).dtype(at::kBFloat16)),
        x(at::randn({s.tokens, s.inputs}, options)),
        w(at::randn({s.outputs, s.inputs}, options)),
        dy(at::randn({s.tokens, s.outputs}, options)),
        y(at::empty_like(dy)),
        dx(at::empty_like(x)),
        dw(at::zeros({s.outputs, s.inputs}, options.dtype(at::kFloat))) {}
  at::TensorOptions options;
  Tensor x, w, dy, y, dx, dw;
};

// As nn::Fp8Layer orders them.
Fp8Matrix cast(const engine::Engine& engine, const Tensor& tensor, Role role,
               const LayerBenchOptions& options) {
  Tensor factor, amax;
  if (fp8::uses_history(options.recipe)) {
    factor = at::ones({1}, tensor.options().dtype(at::kFloat));
    amax = at::zeros_like(factor);
  }
  const auto order = [&](Direction direction) {
    const bool kept = role == Role::kInput && direction == Direction::kColumn;
    return QuantizeSpec{.side = fp8::side_of(options.recipe, options.format, role, direction),
                        .wanted = !kept || !options.frozen,
                        .keep = kept,
                        .factor = factor,
                        .amax = amax};
  };
  QuantizeSpec column = order(Direction::kColumn);
  if (role == Role::kGradient && options.frozen) column.wanted = false;
  return engine.fp8_linear->quantize(tensor, options.recipe, order(Direction::kRow), column);
}

// Everything that is timed, and the matrices it works on.
class Runners {
 public:
  Runners(const engine::Engine& engine, const LayerShape& shape, const LayerBenchOptions& options)
      : engine_(engine), options_(options), o_(engine.target, shape) {}

  Round turn() {
    Round round;
    in_bf16(round);
    if (options_.has_fp8) in_fp8(round);
    return round;
  }

 private:
  void time(double& seconds, const std::function<void()>& work) {
    seconds = seconds_of(engine_.target, work);
  }
  static double& of(std::array<double, 3>& all, Gemm gemm) {
    return all[static_cast<size_t>(gemm)];
  }

  void in_bf16(Round& round) {
    auto& ops = *engine_.matmul;
    time(of(round.bf16, Gemm::kForward), [&] { ops.forward(o_.x, o_.w, {}, o_.y); });
    time(of(round.bf16, Gemm::kInputGradient), [&] { ops.input_gradient(o_.dy, o_.w, o_.dx); });
    if (!options_.frozen)
      time(of(round.bf16, Gemm::kWeightGradient),
           [&] { ops.weight_gradient(o_.dy, o_.x, o_.dw, Accumulate::kAdd); });
  }

  void in_fp8(Round& round) {
    const std::pair<Tensor*, Fp8Matrix*> matrices[] = {{&o_.x, &x_}, {&o_.w, &w_}, {&o_.dy, &dy_}};
    for (const Role role : {Role::kInput, Role::kWeight, Role::kGradient}) {
      const auto [from, to] = matrices[static_cast<size_t>(role)];
      time(round.quantize[static_cast<size_t>(role)],
           [&, from = from, to = to] { *to = cast(engine_, *from, role, options_); });
    }
    auto& ops = *engine_.fp8_linear;
    time(of(round.fp8, Gemm::kForward), [&] { ops.forward(x_, w_, {}, o_.y); });
    time(of(round.fp8, Gemm::kInputGradient), [&] { ops.input_gradient(dy_, w_, o_.dx); });
    if (!options_.frozen)
      time(of(round.fp8, Gemm::kWeightGradient),
           [&] { ops.weight_gradient(dy_, x_, o_.dw, Accumulate::kAdd); });
  }

  const engine::Engine& engine_;
  const LayerBenchOptions& options_;
  Operands o_;
  Fp8Matrix x_, w_, dy_;
};

template <typename Measure>
Spread over_rounds(const LayerTimes& times, const Measure& measure) {
  std::vector<double> values;
  for (const Round& round : times.rounds) values.push_back(measure(round));
  return spread_of(std::move(values));
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  OCTAVO_ASSERT(!values.empty());
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const auto above = std::min(below + 1, values.size() - 1);
    const double part = place - static_cast<double>(below);
    return values[below] + part * (values[above] - values[below]);
  };
  return {at(0.5), at(0.25), at(0.75)};
}

std::vector<Gemm> LayerTimes::gemms() const {
  std::vector<Gemm> all = {Gemm::kForward, Gemm::kInputGradient};
  if (!frozen) all.push_back(Gemm::kWeightGradient);
  return all;
}

double LayerTimes::flops() const {
  return 2.0 * static_cast<double>(shape.tokens) * static_cast<double>(shape.outputs) *
         static_cast<double>(shape.inputs);
}

double quantize_share(const Round& round, Gemm gemm, bool frozen) {
  const auto of = [&](Role role) { return round.quantize[static_cast<size_t>(role)]; };
  const double x = of(Role::kInput), w = of(Role::kWeight) / 2, dy = of(Role::kGradient);
  const double share = frozen ? 1 : 0.5;  // of x and dy, which then serve one GEMM
  switch (gemm) {
    case Gemm::kForward:
      return share * x + w;
    case Gemm::kInputGradient:
      return share * dy + w;
    case Gemm::kWeightGradient:
      break;
  }
  return frozen ? 0 : share * (x + dy);
}

double whole_bf16(const Round& round) {
  return round.bf16[0] + round.bf16[1] + round.bf16[2];
}

double whole_fp8(const Round& round) {
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) sum += round.fp8[i] + round.quantize[i];
  return sum;
}

Spread LayerTimes::bf16(Gemm gemm) const {
  return over_rounds(*this, [&](const Round& r) { return r.bf16[static_cast<size_t>(gemm)]; });
}

Spread LayerTimes::fp8(Gemm gemm) const {
  return over_rounds(*this, [&](const Round& r) { return r.fp8[static_cast<size_t>(gemm)]; });
}

Spread LayerTimes::quantize(Gemm gemm) const {
  return over_rounds(*this, [&](const Round& r) { return quantize_share(r, gemm, frozen); });
}

Spread LayerTimes::ratio(Gemm gemm) const {
  return over_rounds(*this, [&](const Round& r) {
    return r.bf16[static_cast<size_t>(gemm)] /
           (r.fp8[static_cast<size_t>(gemm)] + quantize_share(r, gemm, frozen));
  });
}

LayerTimes time_layer(const engine::Engine& engine, const LayerShape& shape,
                      const LayerBenchOptions& options) {
  LayerTimes times{
      .shape = shape, .frozen = options.frozen, .has_fp8 = options.has_fp8, .rounds = {}};
  Runners runners(engine, shape, options);
  runners.turn();  // primitives are made, memory is taken
  const double start = now();
  while (times.rounds.size() < static_cast<size_t>(options.least_rounds) ||
         (now() - start < options.seconds && times.rounds.size() < kMostRounds))
    times.rounds.push_back(runners.turn());
  return times;
}

}  // namespace octavo::bench
