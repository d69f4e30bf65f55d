#include "verify/speed.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/first_line.h"
#include "bench/layer_bench.h"
#include "engine/engine.h"

namespace octavo::verify {
namespace {

constexpr double kPays = 1.1, kBreaksEven = 1.0;

// The best of several rounds, in which all take turns.
void measure(const engine::Target& target, LayerSpeed& speed) {
  constexpr int kRounds = 5;
  const engine::Engine ops(target);
  const fp8::FormatChoice format = fp8::default_format(speed.recipe);
  const auto times =
      bench::time_layer(ops, {speed.size, speed.size, speed.size},
                        {.recipe = speed.recipe, .format = format, .least_rounds = kRounds});
  const auto best = [&](const auto& seconds) {
    double least = seconds(times.rounds.front());
    for (const bench::Round& round : times.rounds) least = std::min(least, seconds(round));
    return least;
  };
  const auto weight = static_cast<size_t>(fp8::Role::kWeight);
  speed.bf16 = best(bench::whole_bf16);
  speed.fp8 = best([](const bench::Round& r) { return r.fp8[0] + r.fp8[1] + r.fp8[2]; });
  speed.fp8_with_casts =
      best([&](const bench::Round& r) { return bench::whole_fp8(r) - r.quantize[weight]; });
}

}  // namespace

LayerSpeed measure_layer_speed(const engine::Target& target, fp8::Recipe recipe) {
  LayerSpeed speed{.size = target.device.is_cuda() ? 4096 : 768,
                   .recipe = recipe,
                   .native = target.fp8 != engine::Fp8Kernels::kRehearsal};
  try {
    measure(target, speed);
  } catch (const std::exception& error) {
    speed.problem = first_line(error.what());
  }
  return speed;
}

Finding judge_speed(const LayerSpeed& speed) {
  Finding f{Section::kSpeed,
            str("layer of ", speed.size, ", ", config::name_of(speed.recipe)),
            Status::kOk,
            "",
            "",
            ""};
  if (!speed.problem.empty()) {
    f.status = Status::kFail;
    f.found = "stopped: " + speed.problem;
    f.fix = "see the kernels above: the first that fails is the one to look at";
    return f;
  }
  const double flops = 6 * std::pow(static_cast<double>(speed.size), 3);
  const auto rate = [&](double seconds) {
    const double gigaflops = flops / seconds / 1e9;
    return gigaflops < 1e4 ? str(std::lround(gigaflops), " GFLOP/s")
                           : str(std::lround(gigaflops / 1e3), " TFLOP/s");
  };
  const auto times = [](double ratio) { return std::round(100 * ratio) / 100; };
  const double gain = speed.bf16 / speed.fp8_with_casts;
  f.found = str("BF16 ", rate(speed.bf16), ", FP8 ", rate(speed.fp8), " (",
                times(speed.bf16 / speed.fp8), "x), with casts ", times(gain), "x");
  if (!speed.native) {
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
