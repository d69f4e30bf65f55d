#include "bench/bench.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/devices.h"
#include "fp8/legality.h"
#include "plan/shape.h"
#include "train/device.h"

namespace octavo::bench {
namespace {

constexpr int64_t kFirstTokens = 128;
constexpr int64_t kMostTokensCpu = 16'384, kMostTokensGpu = 131'072;
constexpr size_t kLeastPoints = 3;

// FP8 is what is asked about, whatever the config trains in.
config::Settings in_fp8(config::Settings s) {
  s.use_fp8 = false;
  s.mixed_precision = config::Precision::kFp8;
  s.resume.clear();
  const auto decision = train::decide_fp8(s);
  if (decision->runs == fp8::Runs::kBf16) {
    log_warn(decision->warnings.front() + "; the rehearsal is timed instead");
    s.fp8_execution = config::Fp8Execution::kRehearse;
  }
  return s;
}

std::string device_name(const config::Settings& settings) {
  const at::Device device = train::device_of(settings);
  if (!device.is_cuda())
    return octavo::str("CPU, ", at::get_num_threads(),
                       at::get_num_threads() == 1 ? " thread" : " threads");
  return engine::gpus().gpus.at(static_cast<size_t>(device.index())).name;
}

int64_t rows_of(int64_t tokens, double share) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * share));
}

std::vector<Entry> entries_of(const plan::Shape& shape, const fp8::Options& fp8, int64_t tokens) {
  std::vector<Entry> all;
  const auto add = [&](const plan::LinearShape& p, double per_block) {
    const auto same = std::ranges::find_if(all, [&](const Entry& e) {
      return e.times.shape.outputs == p.outputs && e.times.shape.inputs == p.inputs &&
             e.share == p.share;
    });
    if (same != all.end()) {
      same->name += octavo::str(", ", p.name);
      same->layers += p.count;
      return;
    }
    Entry entry{.name = p.name,
                .layers = p.count,
                .per_block = per_block,
                .share = p.share,
                .refusal = fp8::refusal(fp8.recipe, p.outputs, p.inputs),
                .is_head = false,
                .times = {}};
    entry.times.shape = {rows_of(tokens, p.share), p.outputs, p.inputs};
    all.push_back(std::move(entry));
  };
  for (const plan::LinearShape& p : plan::block_linears(shape))
    add(p, p.place == plan::LinearShape::Place::kExpert ? static_cast<double>(shape.experts) : 1);
  const size_t blocks = all.size();
  add({"head", shape.vocab, shape.hidden}, 1);
  if (all.size() > blocks) all.back().is_head = true;
  return all;
}

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Field {
  const engine::Engine& engine;
  LayerBenchOptions options;
  double seconds = 0;  // for all of it
};

void time_entries(const Field& field, std::vector<Entry>& entries, octavo::Progress& bar) {
  double all = 0, done = 0;
  for (const Entry& e : entries) all += e.times.flops();
  for (Entry& entry : entries) {
    LayerBenchOptions options = field.options;
    options.has_fp8 = entry.refusal.empty();
    // The first rounds take as long as they take; each gets its share of the time.
    options.seconds = field.seconds * entry.times.flops() / all;
    entry.times = time_layer(field.engine, entry.times.shape, options);
    done += entry.times.flops();
    bar.set(0.5 * done / all, entry.name);
  }
}

// Round by round over the layers of a block.
SweepPoint time_point(const Field& field, const std::vector<Entry>& entries, int64_t tokens,
                      double seconds) {
  std::vector<std::vector<Round>> layers;
  std::vector<double> times_in_block;
  size_t rounds = SIZE_MAX;
  for (const Entry& e : entries) {
    if (e.is_head || !e.refusal.empty()) continue;
    LayerBenchOptions options = field.options;
    options.seconds = seconds / static_cast<double>(entries.size());
    auto times = time_layer(field.engine,
                            {rows_of(tokens, e.share), e.times.shape.outputs, e.times.shape.inputs},
                            options);
    rounds = std::min(rounds, times.rounds.size());
    layers.push_back(std::move(times.rounds));
    times_in_block.push_back(e.per_block);
  }
  std::vector<double> bf16, fp8, ratio;
  for (size_t i = 0; i < rounds; ++i) {
    double high = 0, low = 0;
    for (size_t k = 0; k < layers.size(); ++k) {
      high += times_in_block[k] * whole_bf16(layers[k][i]);
      low += times_in_block[k] * whole_fp8(layers[k][i]);
    }
    bf16.push_back(high);
    fp8.push_back(low);
    ratio.push_back(high / low);
  }
  return {tokens, spread_of(bf16).median, spread_of(fp8).median, spread_of(ratio)};
}

void time_tokens(const Field& field, Bench& bench, octavo::Progress& bar) {
  const int64_t most = field.engine.target.device.is_cuda() ? kMostTokensGpu : kMostTokensCpu;
  const Clock clock;
  double last = 0;
  for (int64_t tokens = kFirstTokens; tokens <= most; tokens *= 2) {
    const double left = field.seconds - clock.seconds();
    if (bench.sweep.size() >= kLeastPoints && 2 * last > left) {
      bench.sweep_end = octavo::str("bench_seconds were used up before ", tokens, " tokens");
      log_info("bench: " + bench.sweep_end);
      return;
    }
    const double before = clock.seconds();
    try {
      bench.sweep.push_back(time_point(field, bench.entries, tokens, std::max(left, 0.0) / 16));
    } catch (const c10::OutOfMemoryError&) {
      bench.sweep_end = octavo::str("the memory was full at ", tokens, " tokens");
      log_warn("bench: " + bench.sweep_end);
      return;
    }
    last = clock.seconds() - before;
    bar.set(0.5 + 0.5 * std::min(1.0, clock.seconds() / field.seconds),
            octavo::str(tokens, " tokens"));
  }
}

}  // namespace

std::optional<double> pays_from(const std::vector<SweepPoint>& sweep) {
  size_t first = sweep.size();
  while (first > 0 && sweep[first - 1].ratio.low >= 1) --first;
  if (first == sweep.size()) return std::nullopt;
  if (first == 0) return static_cast<double>(sweep.front().tokens);
  const SweepPoint &behind = sweep[first - 1], &ahead = sweep[first];
  const double part = (1 - behind.ratio.low) / (ahead.ratio.low - behind.ratio.low);
  const double low = std::log(static_cast<double>(behind.tokens)),
               high = std::log(static_cast<double>(ahead.tokens));
  return std::exp(low + part * (high - low));
}

std::optional<double> Bench::pays_from_tokens() const {
  return is_rehearsal ? std::nullopt : pays_from(sweep);
}

Bench run_bench(const config::Settings& given) {
  const config::Settings settings = in_fp8(given);
  train::prepare_process(settings);
  const plan::Shape shape = plan::shape_of(settings);
  const auto decision = *train::decide_fp8(settings);
  for (const auto& warning : decision.warnings) log_warn(warning);
  Bench bench{
      .model = octavo::str(shape.name, " (", shape.layers, " layers of ", shape.hidden, ")"),
      .device = device_name(settings),
      .kernels = decision.backend,
      .recipe = std::string(config::name_of(decision.options.recipe)),
      .format = std::string(fp8::format_name(decision.options)),
      .is_rehearsal = decision.runs != fp8::Runs::kNative,
      .frozen = settings.lora_rank > 0,
      .batch = settings.batch_size,
      .length = settings.max_seq_length,
      .passes = settings.gradient_accumulation_steps,
      .entries = {},
      .sweep = {},
      .sweep_end = {},
      .steps = {}};
  bench.entries = entries_of(shape, decision.options, bench.tokens());
  if (std::ranges::none_of(bench.entries,
                           [](const Entry& e) { return e.refusal.empty() && !e.is_head; }))
    fail(ExitCode::kUsage, "bench", "no layer of the blocks can run in FP8 (",
         bench.entries.front().refusal,
         "); change the sizes, batch_size x max_seq_length or fp8_recipe");
  const engine::Engine engine(train::target_of(settings));
  const Field field{engine,
                    {.recipe = decision.options.recipe,
                     .format = decision.options.format,
                     .frozen = bench.frozen},
                    settings.bench_seconds / 2};
  octavo::Progress bar("bench", 1, "");
  try {
    time_entries(field, bench.entries, bar);
  } catch (const c10::OutOfMemoryError& error) {
    train::fail_out_of_memory(error);
  }
  time_tokens(field, bench, bar);
  bar.finish();
  if (settings.bench_steps > 0)
    bench.steps = time_steps(settings, [](const std::string& note) { log_info("bench: " + note); });
  return bench;
}

}  // namespace octavo::bench
