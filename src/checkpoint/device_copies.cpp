#include "checkpoint/device_copies.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace octavo::checkpoint {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

at::Tensor pinned(int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
}

}  // namespace

DeviceCopies::DeviceCopies(at::Device device) : device_(device), ready_(device.type()) {
  ready_.record(current_stream(device));
}

at::Tensor DeviceCopies::read(const at::Tensor& bytes) {
  if (!stream_) {
    stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
    ready_.block(*stream_);
  }
  if (!buffer_.defined() || buffer_.numel() < bytes.numel()) buffer_ = pinned(bytes.numel());
  at::Tensor read = buffer_.narrow(0, 0, bytes.numel());
  const c10::StreamGuard guard(*stream_);
  read.copy_(bytes, /*non_blocking=*/true);
  stream_->synchronize();
  return read;
}

DeviceCopies::Queued DeviceCopies::queue(const at::Tensor& bytes) const {
  Queued made{pinned(bytes.numel()), c10::Event(device_.type())};
  made.bytes.copy_(bytes, /*non_blocking=*/true);
  made.arrived.record(current_stream(device_));
  return made;
}

}  // namespace octavo::checkpoint
