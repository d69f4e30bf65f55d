#include "verify/speed.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "engine/engine.h"

namespace octavo::verify {
namespace {

using engine::Accumulate;
using engine::Fp8Order;
using fp8::Direction;
using fp8::Role;

constexpr double kPays = 1.1, kBreaksEven = 1.0;

// Seconds of one piece of work.
double seconds_of(const engine::Target& target, const std::function<void()>& work) {
  const auto wait = [&] {
    if (target.device.is_cuda())
      at::detail::getCUDAHooks().deviceSynchronize(target.device.index());
  };
  // Enough at once that starting and waiting do not count.
  const int repeats = target.device.is_cuda() ? 10 : 1;
  wait();
  const auto start = std::chrono::steady_clock::now();
  for (int r = 0; r < repeats; ++r) work();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

// A layer of one size on the device.
struct Layer {
  Layer(const engine::Target& target, int64_t size)
      : options(at::TensorOptions(target.device).dtype(at::kBFloat16)),
        x(at::randn({size, size}, options)),
        w(at::randn({size, size}, options)),
        dy(at::randn({size, size}, options)),
        y(at::empty_like(x)),
        dx(at::empty_like(x)),
        dw(at::zeros({size, size}, at::TensorOptions(target.device).dtype(at::kFloat))) {}
  at::TensorOptions options;
  at::Tensor x, w, dy, y, dx, dw;
};

engine::Fp8Matrix cast(engine::Fp8Linear& op, const at::Tensor& t, fp8::Recipe recipe, Role role) {
  const auto choice =
      fp8::has_power_of_two_scales(recipe) ? fp8::FormatChoice::kE4m3 : fp8::FormatChoice::kHybrid;
  at::Tensor factor, amax;
  if (recipe == fp8::Recipe::kDelayed) {
    factor = at::ones({1}, t.options().dtype(at::kFloat));
    amax = at::zeros_like(factor);
  }
  const auto order = [&](Direction direction) {
    return Fp8Order{.side = fp8::side_of(recipe, choice, role, direction),
                    .wanted = true,
                    .keep = false,
                    .factor = factor,
                    .amax = amax};
  };
  return op.quantize(t, recipe, order(Direction::kRow), order(Direction::kColumn));
}

// The best of several rounds, in which all take turns, after one that is not counted.
void measure(const engine::Target& target, Race& race) {
  constexpr int kRounds = 6;
  const engine::Engine ops(target);
  Layer l(target, race.size);
  auto& fp8_ops = *ops.fp8_linear;
  engine::Fp8Matrix x = cast(fp8_ops, l.x, race.recipe, Role::kInput),
                    dy = cast(fp8_ops, l.dy, race.recipe, Role::kGradient);
  const engine::Fp8Matrix w = cast(fp8_ops, l.w, race.recipe, Role::kWeight);
  const auto in_bf16 = [&] {
    ops.matmul->forward(l.x, l.w, {}, l.y);
    ops.matmul->input_gradient(l.dy, l.w, l.dx);
    ops.matmul->weight_gradient(l.dy, l.x, l.dw, Accumulate::kAdd);
  };
  const auto in_fp8 = [&] {
    fp8_ops.forward(x, w, {}, l.y);
    fp8_ops.input_gradient(dy, w, l.dx);
    fp8_ops.weight_gradient(dy, x, l.dw, Accumulate::kAdd);
  };
  const auto with_casts = [&] {
    x = cast(fp8_ops, l.x, race.recipe, Role::kInput);
    dy = cast(fp8_ops, l.dy, race.recipe, Role::kGradient);
    in_fp8();
  };
  const auto keep_best = [](double& best, double seconds, int round) {
    if (round <= 1 || seconds < best) best = seconds;
  };
  for (int round = 0; round < kRounds; ++round) {
    keep_best(race.bf16, seconds_of(target, in_bf16), round);
    keep_best(race.fp8, seconds_of(target, in_fp8), round);
    keep_best(race.fp8_with_casts, seconds_of(target, with_casts), round);
  }
}

}  // namespace

Race run_race(const engine::Target& target, fp8::Recipe recipe) {
  Race race{.size = target.device.is_cuda() ? 4096 : 768,
            .recipe = recipe,
            .native = target.fp8 != engine::Fp8Kernels::kRehearsal};
  try {
    measure(target, race);
  } catch (const std::exception& error) {
    race.problem = split(error.what(), '\n').front();
  }
  return race;
}

Finding judge_speed(const Race& race) {
  Finding f{Section::kSpeed,
            str("layer of ", race.size, ", ", config::name_of(race.recipe)),
            Status::kOk,
            "",
            "",
            ""};
  if (!race.problem.empty()) {
    f.status = Status::kFail;
    f.found = "stopped: " + race.problem;
    f.fix = "see the kernels above: the first that fails is the one to look at";
    return f;
  }
  const double flops = 6 * std::pow(static_cast<double>(race.size), 3);
  const auto rate = [&](double seconds) {
    const double gigaflops = flops / seconds / 1e9;
    return gigaflops < 1e4 ? str(std::lround(gigaflops), " GFLOP/s")
                           : str(std::lround(gigaflops / 1e3), " TFLOP/s");
  };
  const auto times = [](double ratio) { return std::round(100 * ratio) / 100; };
  const double gain = race.bf16 / race.fp8_with_casts;
  f.found = str("BF16 ", rate(race.bf16), ", FP8 ", rate(race.fp8), " (",
                times(race.bf16 / race.fp8), "x), with casts ", times(gain), "x");
  if (!race.native) {
    f.status = Status::kNote;
    f.found +=
        "; rehearsal: FP8's numbers in BF16 units, never faster. Whether FP8 pays shows on "
        "a GPU that has it";
    return f;
  }
  f.wanted = str("FP8 with its casts at ", kPays, "x of BF16 or more");
  if (gain >= kPays) {
    f.found += "; FP8 can pay here, for layers of this size and above";
  } else {
    f.status = Status::kWarn;
    f.found +=
        gain >= kBreaksEven ? "; FP8 hardly pays here" : "; FP8 costs more than it saves here";
    f.fix =
        "take larger micro-batches, another fp8_recipe or fp8_backend te; look for other work on "
        "the GPU (nvidia-smi); otherwise train in BF16";
  }
  return f;
}

}  // namespace octavo::verify
