#include "plan/scale.h"

#include <algorithm>

#include "plan/forecast.h"
#include "plan/traffic.h"

namespace octavo::plan {
namespace {

using config::ShardingMode;

config::Settings settings_of(const ScaleCase& it) {
  config::Settings s;
  s.model_name = it.model;
  s.gpu = "h100";
  s.num_gpus = it.gpus;
  s.sharding_mode = it.mode;
  s.batch_size = 1;
  s.max_seq_length = it.length;
  s.gradient_checkpointing = true;
  s.use_fp8 = it.fp8;
  if (it.bf16_gradients) s.gradient_dtype = s.grad_reduce_dtype = config::StateType::kBf16;
  return s;
}

}  // namespace

Links links_of(const Gpu& gpu) {
  const Calibration& c = Calibration::fitted();
  const double adapter = gpu.network_gb_s * 1e9 * c.of("network");
  return {gpu.link_gb_s * 1e9 * c.of("nvlink"), adapter * gpu.gpus_per_node, adapter};
}

ScalePoint scale_point(const ScaleCase& it) {
  const Forecast f = forecast(settings_of(it));
  const Traffic& t = f.traffic;
  const Gpu& gpu = *f.gpu;
  const StepTime& time = f.chosen().time;
  const Links links = links_of(gpu);

  ScalePoint p;
  p.tokens = static_cast<double>(it.gpus * it.length);
  p.gather = t.gather, p.reduce = t.reduce, p.replicas = t.replicas;
  p.memory = f.memory().total;
  p.fits = f.fits();
  p.compute = time.total - time.collectives;
  const int64_t group =
      it.mode == ShardingMode::kHybrid ? std::min<int64_t>(it.gpus, gpu.gpus_per_node) : it.gpus;
  // A ring through many nodes enters and leaves each by all of its adapters.
  const double rate = group > gpu.gpus_per_node ? std::min(links.inside, links.node) : links.inside;
  p.bytes_seconds = (t.gather + t.reduce) / rate + t.replicas / links.adapter;
  p.latency_seconds =
      t.calls * (f.sharding == Sharding::kDdp ? all_reduce_latency(group, gpu.gpus_per_node)
                                              : ring_latency(group, gpu.gpus_per_node)) +
      t.replica_calls * all_reduce_latency(it.gpus / group, 1);
  const double wire = p.bytes_seconds + p.latency_seconds;
  const double hidden = Calibration::fitted().of("fused.overlap") * p.compute;
  p.exposed = std::max(0.0, wire - hidden) +
              Calibration::fitted().of("fused.contention") * std::min(wire, hidden);
  p.step = p.compute + p.exposed;
  p.tokens_per_s = static_cast<double>(it.length) / p.step;
  p.flops_share = time.flops / p.step / (gpu.bf16_tflops * 1e12);
  p.hours_between_failures = f.failures.hours_between;
  p.goodput = f.failures.goodput;
  return p;
}

}  // namespace octavo::plan
