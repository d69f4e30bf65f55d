#include "engine/own/scratch.h"

#include <ATen/ATen.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace octavo::engine::own {

ScratchMemory scratch_for(const at::Tensor& tensor, const kernels::Scratch& wanted) {
  constexpr int64_t kTickets = 4096;  // a bias of 524,288 takes them all
  OCTAVO_ASSERT(wanted.tickets <= kTickets);
  const at::Device device = tensor.device();
  static std::mutex mutex;
  // Never freed: when the program ends, the device's allocator may be gone before.
  static auto& all = *new std::map<std::pair<at::DeviceType, at::DeviceIndex>, at::Tensor>();
  const std::scoped_lock lock(mutex);
  at::Tensor& tickets = all[{device.type(), device.index()}];
  if (!tickets.defined())
    tickets = at::zeros({kTickets}, at::TensorOptions(device).dtype(at::kInt));
  return {at::empty({wanted.floats}, at::TensorOptions(device).dtype(at::kFloat)), tickets};
}

}  // namespace octavo::engine::own
