#include "train/guards/finite_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "base/heartbeat.h"
#include "train/lora_run.h"

namespace octavo::train {
namespace {

// [1], 1 when a number is not finite; nobody waits for its device. In parts: the look makes copies,
// and an embedding may be gigabytes.
at::Tensor has_bad_number(const at::Tensor& values) {
  constexpr int64_t kPart = int64_t{1} << 22;
  const at::Tensor flat = values.detach().reshape({-1});
  at::Tensor good = at::ones({1}, flat.options().dtype(at::kBool));
  for (int64_t first = 0; first < flat.numel(); first += kPart) {
    const at::Tensor part = flat.narrow(0, first, std::min(kPart, flat.numel() - first));
    good = good.logical_and(at::isfinite(part).all());
  }
  return good.logical_not();
}

}  // namespace

std::string weight_not_finite(dist::World& world, const TrainedModel& trained) {
  if (!trained.has_numbers) return "";
  const at::NoGradGuard no_grad;
  const nn::ParamList& params = trained_params(trained);
  std::vector<at::Tensor> each;
  for (const auto& p : params) each.push_back(has_bad_number(p->master));
  if (each.empty()) return "";
  at::Tensor bad = at::cat(each).to(at::kDouble);
  world.max(bad, "weights that are not finite");
  const heartbeat::Waiting waiting(heartbeat::Wait::kDevice);
  const at::Tensor on_host = bad.cpu();
  const auto* is_bad = on_host.const_data_ptr<double>();
  for (size_t i = 0; i < params.size(); ++i)
    if (is_bad[i] > 0) return params[i]->name;
  return "";
}

}  // namespace octavo::train
