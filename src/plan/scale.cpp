#include "plan/scale.h"

#include "plan/forecast.h"

namespace octavo::plan {
namespace {

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

ScalePoint scale_point(const ScaleCase& it) {
  const Forecast f = forecast(settings_of(it));
  const Traffic& t = f.traffic;
  const Gpu& gpu = *f.gpu;
  const StepTime& time = f.chosen().time;

  ScalePoint p;
  p.tokens = static_cast<double>(it.gpus * it.length);
  p.gather = t.gather, p.reduce = t.reduce, p.replicas = t.replicas;
  p.memory = f.memory().total;
  p.fits = f.fits();
  p.compute = time.total - time.collectives;
  p.bytes_seconds = time.wire_bytes;
  p.latency_seconds = time.wire_latency;
  p.exposed = time.collectives;
  p.step = time.total;
  p.tokens_per_s = time.tokens_per_s;
  p.flops_share = time.flops / p.step / (gpu.bf16_tflops * 1e12);
  p.hours_between_failures = f.failures.hours_between;
  p.goodput = f.failures.goodput;
  return p;
}

}  // namespace octavo::plan
