#include "plan/step_time.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "fp8/gemm_layouts.h"
#include "plan/collectives.h"
#include "plan/launches.h"
#include "plan/model_parallel.h"

namespace octavo::plan {
namespace {

// Stacks whose attention is written for each generation of GPUs; the others run flash attention 2,
// made for Ampere.
bool tuned_attention(std::string_view stack) {
  return stack == "native" || stack == "fused" || stack == "xla";
}

// Bytes moved per element of an activation or gradient to quantize it: what the recipe reads, the
// codes and (before Blackwell, or where scales follow the layout) the transposed codes that the
// weight gradient takes. Frozen weights have no such gradient.
double quantize_bytes(const fp8::RecipeTraits& recipe, const Gpu& gpu, bool frozen) {
  const bool one = frozen || (gpu.capability >= 100 && fp8::is_symmetric(recipe.activations));
  const double copies = one ? 1 : 2;
  const fp8::QuantizeCost& cost = recipe.quantize_cost;
  return cost.read_bytes * (cost.reads_for_each_layout ? copies : 1) + copies;
}

// The parts of one micro-step, and what they share.
class MicroStep {
 public:
  MicroStep(const Workload& work, const Calibration& calibration)
      : work_(work),
        calibration_(calibration),
        gpu_(*work.gpu),
        tokens_(static_cast<double>(work.batch * work.length) /
                static_cast<double>(work.split.context)),
        layers_(static_cast<double>(work.shape.layers)),
        tensor_(static_cast<double>(work.split.tensor)),
        low_(is_native(gpu_, work.recipe)) {
    if (work.recompute == Recompute::kFull) again_ = 1;
    if (work.recompute == Recompute::kSelective) again_ = stack("selective");
  }

  StepTime micro_steps() const {
    StepTime time;
    add_gemms(time);
    if (frozen()) add_adapters(time);
    add_attention(time);
    add_head(time);
    const Shape& s = work_.shape;
    // What norms, residuals, rotary embedding and activation read and write when nothing is fused
    // beyond the obvious; the stack's factor says how far it is from that. Backward: 1.7 times.
    const double values =
        10 * static_cast<double>(s.hidden) + 2 * static_cast<double>(s.qkv_width()) + mlp_values(s);
    time.elementwise = layers_ * tokens_ / tensor_ * values * 2 * (2.7 + (again_ > 0 ? 1 : 0)) *
                       stack("passes") / bandwidth();
    // Each stage has its share of the layers.
    const double steps =
        static_cast<double>(work_.accumulation) / static_cast<double>(work_.split.pipeline);
    for (double* part : {&time.gemms, &time.adapters, &time.head, &time.attention,
                         &time.elementwise, &time.quantize, &time.flops})
      *part *= steps;
    return time;
  }

  double trained() const {
    const Shape& s = work_.shape;
    return static_cast<double>(frozen() ? lora_parameters(s, work_.lora_rank, work_.lora_targets)
                                        : parameters(s));
  }

  // Bound by memory; sharded where the state is.
  double optimizer() const {
    const double cut = tensor_ * static_cast<double>(work_.split.pipeline);
    const double group = work_.shard_group > 0 ? static_cast<double>(work_.shard_group)
                                               : static_cast<double>(work_.gpus) / cut;
    const bool sharded = work_.sharding != Sharding::kNone && work_.sharding != Sharding::kDdp;
    return trained() / cut / (sharded ? std::max(1.0, group) : 1) * work_.optimizer_bytes /
           bandwidth();
  }

  // `compute` seconds as forward and backward pass: GEMMs make the same again for the input's
  // gradient, and for the weight's unless it is frozen.
  ComputeTime passes_of(double compute) const {
    const double backward = (frozen() ? 1 : 2) + again_;
    return {compute / (1 + backward), compute * backward / (1 + backward)};
  }

  double model_parallel(const StepTime& time) const {
    return model_parallel_time(work_, calibration_, time, tokens_, again_);
  }

  // So many launches per layer; what the GPU's work does not hide is time.
  double host(double compute) const {
    if (work_.is_own)
      return std::max(0.0, static_cast<double>(work_.accumulation) * own_calls(work_) * kHostCall -
                               compute) +
             kCallsAfterWait * kHostCall;
    const double passes = (frozen() ? 1.6 : 1) * (3 + (again_ > 0 ? 1 : 0)) + (low_ ? 1 : 0);
    // Experts run one after the other: as many launches each as the MLP, half of a layer's.
    const Shape& s = work_.shape;
    const double mlps = static_cast<double>(s.dense_layers() + s.sparse_layers() * s.experts);
    const double launching =
        static_cast<double>(work_.accumulation) *
        ((layers_ + mlps) / 2 * passes / static_cast<double>(work_.split.pipeline) + 10) *
        stack("host") * 1e-6;
    constexpr double kStep = 1e-3;  // beside its micro-steps: data, clipping, logging
    return std::max(0.0, launching - compute) + kStep;
  }

 private:
  // Values that the activation of an average layer reads and writes, and with experts also the
  // sorting of rows by expert and back.
  static double mlp_values(const Shape& s) {
    const double each = s.gated ? 3 : 2;
    const double dense = static_cast<double>(s.ffn) * each;
    if (s.experts == 0) return dense;
    const double rows = static_cast<double>(s.active_experts);
    const double sparse =
        rows * (static_cast<double>(s.expert_ffn) * each + 4 * static_cast<double>(s.hidden));
    const double part = static_cast<double>(s.sparse_layers()) / static_cast<double>(s.layers);
    return part * sparse + (1 - part) * dense;
  }
  double of(std::string_view name) const { return calibration_.of(name); }
  double stack(const char* name) const { return of(std::string(work_.stack) + "." + name); }
  double bandwidth() const { return gpu_.memory_tb_s * 1e12 * of("memory"); }
  bool frozen() const { return work_.lora_rank > 0; }
  double gemm(double m, double n, double k, bool low) const {
    return gemm_seconds(gpu_, calibration_, m, n, k,
                        low ? gemm_type(work_.recipe) : GemmType::kReadsBf16);
  }

  void add_gemms(StepTime& time) const {
    double quantized = 0, weights = 0;  // elements of all blocks
    // The hardware's rule for both sides (src/fp8/legality.h).
    const int64_t multiple = low_ ? fp8::traits_of(*work_.recipe).side_multiple : 1;
    const std::vector<LinearShape> linears = block_linears(work_.shape);
    for (size_t place = 0; place < linears.size(); ++place) {
      const LinearShape& p = linears[place];
      // The second GEMM of attention and of the MLP is cut along its contraction.
      const std::string_view name = p.name;
      const bool second = name == "attention out" || name == "down";
      const double n = static_cast<double>(p.outputs) / (second ? 1 : tensor_);
      const double k = static_cast<double>(p.inputs) / (second ? tensor_ : 1);
      const bool fp8 = low_ && p.outputs % multiple == 0 && p.inputs % multiple == 0;
      const double count = static_cast<double>(p.count), rows = tokens_ * p.share;
      const auto seconds = [&](bool low) {
        return gemm(rows, n, k, low) * (1 + again_) + gemm(rows, k, n, low) +
               (frozen() ? 0 : gemm(n, k, rows, low));
      };
      const double part = !fp8 ? 0 : work_.fp8_shares.empty() ? 1 : work_.fp8_shares[place];
      time.gemms += count * (part == 0   ? seconds(false)
                             : part == 1 ? seconds(true)
                                         : part * seconds(true) + (1 - part) * seconds(false));
      time.flops += count * 2 * rows * n * k * (frozen() ? 2 : 3);
      if (!fp8) continue;
      const double all =
          static_cast<double>(p.inputs) * (1 + again_) + static_cast<double>(p.outputs);
      // What is shared is quantized, then gathered.
      quantized += part * count * rows * all / tensor_;
      weights += part * count * n * k;
    }
    time.flops +=
        2 * tokens_ * static_cast<double>(router_parameters(work_.shape)) * (frozen() ? 2 : 3);
    if (!low_) return;
    time.quantize = quantized * quantize_bytes(fp8::traits_of(*work_.recipe), gpu_, frozen()) *
                    stack("quantize") / bandwidth();
    time.quantize += weights * weight_code_bytes() / bandwidth();
  }

  // Bytes moved per weight and micro-batch to make its codes: read, and two codes written with
  // their amax.
  double weight_code_bytes() const {
    constexpr double kMade = 5, kTransposed = 2, kGathers = 2;  // forward and backward pass
    switch (work_.weight_codes) {
      case WeightCodes::kStep:
        break;
      case WeightCodes::kGemm:  // forward, the input's gradient, and what is computed again
        return (2 + again_) * kMade;
      case WeightCodes::kGather: {
        if (!work_.fp8_gather) return kGathers * kMade;
        // Each rank makes its own rows' codes; the other layout follows where GEMMs ask for it.
        const double group =
            static_cast<double>(work_.shard_group > 0 ? work_.shard_group : work_.gpus);
        const bool transposed = fp8::is_symmetric(fp8::traits_of(*work_.recipe).weights) &&
                                !fp8::takes_any_layout(gpu_.capability);
        return kGathers * (kMade / group + (transposed ? kTransposed : 0));
      }
    }
    return frozen() ? 0 : kMade / static_cast<double>(work_.accumulation);
  }

  void add_adapters(StepTime& time) const {
    const double rank = static_cast<double>(work_.lora_rank);
    for (const LinearShape& module : adapted_modules(work_.shape, work_.lora_targets)) {
      const double n = static_cast<double>(module.outputs), k = static_cast<double>(module.inputs);
      const double down = gemm(tokens_, rank, k, false), up = gemm(tokens_, n, rank, false);
      // Forward, two gradients of each, and the passes that scale, drop and add.
      const double passes = tokens_ * (n + k) * 6 * of("adapters") * stack("passes");
      time.adapters +=
          static_cast<double>(module.count) * ((down + up) * (3 + again_) + passes / bandwidth());
    }
  }

  // Causal, so half of the square. The backward pass makes five GEMMs of the forward's two, at four
  // fifths of its rate. Short sequences leave its pipeline half empty.
  void add_attention(StepTime& time) const {
    const double length = static_cast<double>(work_.length);
    const double width = static_cast<double>(work_.shape.query_width()) / tensor_;
    const double flops =
        2 * tokens_ * length * width * layers_ * attention_share(work_.shape, work_.length);
    const double rate =
        gpu_.bf16_tflops * 1e12 * attention_rate() * length / (length + of("attention_ramp"));
    time.attention = flops * (1 + 2.5 / 0.8 + (work_.recompute == Recompute::kFull ? 1 : 0)) / rate;
    time.flops += flops * 3;
  }

  // Share of the peak in BF16 that attention's forward pass reaches in long sequences.
  double attention_rate() const {
    // Softmax takes as long for each score whatever the head's size: flash attention 2 publishes a
    // tenth less for 64 than for 128.
    const double head = static_cast<double>(work_.shape.head_dim);
    const double full =
        of(std::string(gpu_.family) + ".attention") * head / (head + 16) * 144 / 128;
    // Flash attention 2 issues Ampere's instructions. Hopper does not reach its peak with them, and
    // Blackwell no more per multiprocessor than Hopper, half of its own. So slow, less power does
    // not slow them.
    const bool old = gpu_.capability >= 90 && gpu_.capability < 120;
    if (!old || tuned_attention(work_.stack)) return full;
    const double same = of("flash2") * (gpu_.capability >= 100 ? 0.5 : 1);
    return std::min(full, full / power_of(gpu_.family) * same);
  }

  void add_head(StepTime& time) const {
    const double vocab = static_cast<double>(work_.shape.vocab) / tensor_;
    const double hidden = static_cast<double>(work_.shape.hidden);
    time.head = gemm(tokens_, vocab, hidden, false) + gemm(tokens_, hidden, vocab, false);
    if (!frozen()) time.head += gemm(vocab, hidden, tokens_, false);
    time.head += tokens_ * vocab * stack("logits") / bandwidth();
    time.flops += 2 * tokens_ * vocab * hidden * (frozen() ? 2 : 3);
  }

  const Workload& work_;
  const Calibration& calibration_;
  const Gpu& gpu_;
  double tokens_, layers_, tensor_;  // tokens of one GPU in a micro-step
  bool low_;
  double again_ = 0;  // share of the forward pass that the backward pass repeats
};

}  // namespace

std::string_view name_of(RecipeOrBf16 recipe) {
  return recipe ? config::name_of(*recipe) : "bf16";
}

bool is_native(const Gpu& gpu, RecipeOrBf16 recipe) {
  if (!recipe) return false;
  const double peak = fp8::is_fp4(*recipe) ? gpu.fp4_tflops : gpu.fp8_tflops;
  return peak > 0 && fp8::traits_of(*recipe).native.has(gpu.capability);
}

GemmType gemm_type(RecipeOrBf16 recipe) {
  if (!recipe) return GemmType::kReadsBf16;
  return fp8::is_fp4(*recipe) ? GemmType::kReadsFp4 : GemmType::kReadsFp8;
}

double gemm_seconds(const Gpu& gpu, const Calibration& calibration, double m, double n, double k,
                    GemmType type) {
  struct Tile {
    double rows, columns, rate;  // rate: of the largest tile's
  };
  static constexpr Tile kTiles[] = {
      {256, 128, 1}, {128, 256, 1}, {128, 128, 0.93}, {128, 64, 0.8}, {64, 64, 0.6}};
  const bool low = type != GemmType::kReadsBf16, fp4 = type == GemmType::kReadsFp4;
  // No published run has FP4 GEMMs to fit: they are taken to reach FP8's share of the peak.
  const double peak = (fp4   ? gpu.fp4_tflops
                       : low ? gpu.fp8_tflops
                             : gpu.bf16_tflops) *
                      1e12 * calibration.of(std::string(gpu.family) + (low ? ".fp8" : ".bf16"));
  // Filling and draining the pipeline costs as much as this many steps of the contraction.
  const double ramp = calibration.of("ramp") * (fp4 ? 4 : low ? 2 : 1);
  const double units = gpu.multiprocessors, memory = gpu.memory_tb_s * 1e12;
  double best = INFINITY;
  for (const Tile& tile : kTiles)
    for (double split : {1.0, 2.0, 4.0, 8.0}) {
      const double one =
          2 * tile.rows * tile.columns * (k / split + ramp) * units / (peak * tile.rate);
      const double tiles = std::ceil(m / tile.rows) * std::ceil(n / tile.columns) * split;
      const double sum = split == 1 ? 0 : split * m * n * 4 / memory;
      best = std::min(best, std::ceil(tiles / units) * one + sum);
    }
  constexpr double kGap = 2e-6;                 // between two kernels
  constexpr double kFp4Bytes = 0.5 + 1.0 / 16;  // a code, and its part of a scale
  const double bytes = (m * k + n * k) * (fp4 ? kFp4Bytes : low ? 1 : 2) + m * n * 2;
  return std::max(best, bytes / (memory * calibration.of("memory"))) + kGap;
}

StepTime step_time(const Workload& work, const Calibration& calibration) {
  const MicroStep step(work, calibration);
  StepTime time = step.micro_steps();
  const double compute =
      time.gemms + time.adapters + time.head + time.attention + time.elementwise + time.quantize;
  time.optimizer = step.optimizer();
  const CollectiveTime sent = collective_time(work, calibration, step.passes_of(compute));
  time.collectives = sent.exposed + step.model_parallel(time);
  time.wire_bytes = sent.bytes, time.wire_latency = sent.latency;
  time.host = step.host(compute);
  time.total = compute + time.optimizer + time.collectives + time.host;
  time.tokens_per_s = static_cast<double>(work.batch * work.length * work.accumulation) /
                      work.split.gpus() / time.total;
  return time;
}

}  // namespace octavo::plan
