// AdamW in one launch for all parameters of one storage (FP32, BF16 or FP8 of each part), bit for
// bit as the reference.

#include <ATen/ATen.h>

#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "engine/aten/aten.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/traffic.h"

namespace octavo::engine::own {
namespace {

using at::Tensor;
using kernels::AdamWTensor;
using kernels::Stored;

Stored storage_of(const Tensor& t) {
  if (t.scalar_type() == at::kFloat) return Stored::kFp32;
  OCTAVO_ASSERT(t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kByte);
  return t.scalar_type() == at::kBFloat16 ? Stored::kBf16 : Stored::kFp8;
}

AdamWTensor row_of(const AdamW::Update& u) {
  for (const Tensor& t : {u.master, u.m.values, u.v.values, u.grad, u.compute})
    OCTAVO_ASSERT(!t.defined() || (t.is_contiguous() && t.numel() == u.master.numel()));
  OCTAVO_ASSERT(!u.compute.defined() || u.compute.scalar_type() == at::kBFloat16);
  OCTAVO_ASSERT(u.hyper.first % adamw::kBlock == 0);
  return {.master = u.master.mutable_data_ptr(),
          .m = u.m.values.mutable_data_ptr(),
          .v = u.v.values.mutable_data_ptr(),
          .m_scales = pointer_to<float>(u.m.scales),
          .v_scales = pointer_to<float>(u.v.scales),
          .gradient = u.grad.const_data_ptr(),
          .compute = pointer_to<kernels::Bf16>(u.compute),
          .count = u.master.numel(),
          .seed = u.hyper.seed,
          .stream = u.hyper.stream,
          .first_counter = static_cast<uint64_t>(u.hyper.first) / 4,
          .factors = adamw::factors_of(u.hyper)};
}

// The table in the device's memory, by one copy that the host does not wait for.
Tensor on_device(const std::vector<AdamWTensor>& rows, at::Device device) {
  const auto bytes = static_cast<int64_t>(rows.size() * sizeof(AdamWTensor));
  Tensor table = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(device.is_cuda()));
  std::memcpy(table.mutable_data_ptr(), rows.data(), static_cast<size_t>(bytes));
  return table.to(device, /*non_blocking=*/true);
}

// Parameters of one storage, and their bytes.
struct Group {
  std::vector<AdamWTensor> rows;
  int64_t state = 0, gradients = 0, weights = 0;

  void add(const AdamW::Update& u) {
    const auto bytes = [](const Tensor& t) {
      return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0;
    };
    rows.push_back(row_of(u));
    for (const Tensor& t : {u.master, u.m.values, u.v.values, u.m.scales, u.v.scales})
      state += bytes(t);
    gradients += bytes(u.grad);
    weights += bytes(u.compute);
  }
};

class OwnAdamW final : public AdamW {
 public:
  explicit OwnAdamW(const OctavoKernels& kernels) : kernels_(kernels) {}

  void step(Tensor& master, Moment& m, Moment& v, const Tensor& grad, Tensor& compute,
            const Hyper& hyper) override {
    std::vector<Update> one = {{master, m, v, grad, compute, hyper}};
    step_all(one);
  }

  void step_all(std::vector<Update>& updates) override {
    const at::NoGradGuard no_grad;
    using Key = std::tuple<Stored, Stored, Stored>;
    std::map<Key, Group> groups;
    std::vector<Update> mixed;  // moments of two types: nothing of ours makes them
    for (const Update& u : updates) {
      if (u.master.numel() == 0) continue;
      if (u.m.values.scalar_type() != u.v.values.scalar_type())
        mixed.push_back(u);
      else
        groups[{storage_of(u.master), storage_of(u.grad), storage_of(u.m.values)}].add(u);
    }
    if (!mixed.empty()) by_aten_->step_all(mixed);
    for (auto& [key, group] : groups) {
      auto& rows = group.rows;
      const auto count = static_cast<int32_t>(rows.size());
      const int64_t blocks = kernels::plan_adamw(rows.data(), count);
      const Tensor table = on_device(rows, updates[0].master.device());
      const kernels::AdamWStorage storage{std::get<0>(key), std::get<1>(key), std::get<2>(key)};
      const kernels::AdamWArguments arguments{
          static_cast<const AdamWTensor*>(table.const_data_ptr()), count};
      launch_for(table, kernels_, "AdamW", [&](const OctavoKernels& all, void* stream) {
        return all.adamw(storage, arguments, blocks, stream);
      });
      note_traffic("octavo_adamw", group.state + group.gradients, group.state + group.weights);
    }
  }

  double sum_of_squares(const Tensor& grad) override { return by_aten_->sum_of_squares(grad); }
  Tensor sums_of_squares(const std::vector<Tensor>& grads) override {
    return by_aten_->sums_of_squares(grads);
  }

 private:
  const OctavoKernels& kernels_;
  std::unique_ptr<AdamW> by_aten_ = aten::make_adamw();
};

}  // namespace

std::unique_ptr<AdamW> make_adamw(const OctavoKernels& kernels) {
  return std::make_unique<OwnAdamW>(kernels);
}
std::unique_ptr<AdamW> make_adamw() {
  return make_adamw(found_kernels());
}

}  // namespace octavo::engine::own
