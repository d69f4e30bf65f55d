#include "train/dry_run.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/allocator.h"
#include "engine/devices.h"
#include "fake_cuda/fake_cuda.h"
#include "models/device_batch.h"
#include "train/device.h"
#include "train/lora_run.h"
#include "train/random_run.h"
#include "train/run.h"
#include "train/step.h"

namespace octavo::train {
namespace {

constexpr int kSteps = 3;  // from the third on a step allocates nothing

double in_use(at::Device device) {
  return static_cast<double>(engine::memory_of(device).in_use);
}

double bytes_of(const at::Tensor& t) {
  return t.defined() ? static_cast<double>(t.nbytes()) : 0;
}

struct KeptBytes {
  double weights = 0, copies = 0, gradients = 0;
};

KeptBytes kept_by(const TrainedModel& trained) {
  KeptBytes kept;
  const auto add = [&](const nn::ParamList& params) {
    for (const auto& p : params) {
      kept.weights += bytes_of(p->master) + bytes_of(p->codes) + bytes_of(p->scales);
      if (p->compute.defined() && !p->compute.is_same(p->master))
        kept.copies += bytes_of(p->compute);
      if (p->trainable)
        kept.gradients +=
            static_cast<double>(p->count()) * static_cast<double>(c10::elementSize(p->grad_type));
    }
  };
  add(trained.model->params());
  if (trained.lora != nullptr) add(trained.lora->params());
  return kept;
}

double moments_of(const optim::Optimizer& optimizer) {
  double bytes = 0;
  for (const auto& [name, tensor] : optimizer.state()) bytes += bytes_of(tensor);
  return bytes;
}

void take_counts(DryRun& found) {
  using fake_cuda::Kind;
  fake_cuda::Counters c{};
  fake_cuda::api()->counters(&c);
  found.launches = static_cast<int64_t>(c.of(Kind::kLaunch));
  found.gemms = static_cast<int64_t>(c.of(Kind::kGemm));
  found.collectives = static_cast<int64_t>(c.of(Kind::kCollective));
  found.waits = static_cast<int64_t>(c.of(Kind::kCopyToHost));
  found.allocations = static_cast<int64_t>(c.of(Kind::kMalloc));
}

DryRun measure(const config::Settings& settings) {
  Run run;
  config::Settings unmeasured = settings;
  unmeasured.fp8_stats_freq = 0;
  start_on_random_tokens(run, unmeasured);
  DryRun found{.model = settings.model_name, .precision = run.trained.precision()};
  for (int i = 0; i < kSteps; ++i) {
    fake_cuda::api()->reset();
    found.host_seconds = train_step(run).seconds;
  }
  take_counts(found);
  const auto use = engine::memory_of(run.trained.device());
  const engine::GpuInfo& gpu = engine::gpus().gpus.front();
  found.device = gpu.name;
  found.memory = static_cast<double>(gpu.memory_bytes);
  found.peak = static_cast<double>(use.peak);
  found.reserved = static_cast<double>(use.reserved);
  found.parameters = static_cast<double>(models::parameter_count(*run.trained.model));
  found.trained = static_cast<double>(nn::count_of(trained_params(run.trained)));

  const KeptBytes kept = kept_by(run.trained);
  const double moments = moments_of(*run.trained.optimizer);
  const double rest = found.peak - kept.weights - kept.copies - kept.gradients - moments;
  // Where the optimizer is the peak, the activations are gone by then.
  const double activations = std::min(rest, bytes_for_backward(run.trained, *run.data.loader));
  found.parts = {{"weights (masters)", kept.weights},
                 {"weights, BF16 copies", kept.copies},
                 {"gradients", kept.gradients},
                 {"moments", moments},
                 {"activations", activations},
                 {"logits, FP8 copies and scales, workspaces", rest - activations},
                 {"fragmentation: reserved, not in use at the peak", found.reserved - found.peak}};
  return found;
}

}  // namespace

double bytes_for_backward(TrainedModel& trained, data::Loader& loader) {
  const models::DeviceBatch batch = models::to_device(loader.next(), trained.device());
  trained.model->hidden(batch.tokens, nullptr);  // quantizes weights, which stay
  const double before = in_use(trained.device());
  const at::Tensor hidden = trained.model->hidden(batch.tokens, nullptr);
  return in_use(trained.device()) - before;
}

DryRun dry_run(config::Settings settings) {
  settings.device = config::DeviceChoice::kCuda;
  prepare_process(settings);
  OCTAVO_ASSERT(fake_cuda::is_active());
  try {
    return measure(settings);
  } catch (const c10::OutOfMemoryError& error) {
    fail_out_of_memory(error);
  }
}

}  // namespace octavo::train
