#include "train/guards/device_progress.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace octavo::train {
namespace {

std::optional<c10::Stream> stream_of(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

DeviceProgress::DeviceProgress(c10::Device device) : stream_(stream_of(device)) {}

void DeviceProgress::begin_step() {
  const std::lock_guard lock(mutex_);
  before_ += given_;
  given_ = 0;
}

void DeviceProgress::after_pass() {
  if (!stream_) return;
  const std::lock_guard lock(mutex_);
  if (given_ == passes_.size()) passes_.emplace_back(stream_->device_type());
  passes_[given_++].record(*stream_);
}

DeviceProgress::State DeviceProgress::look() const {
  if (!stream_) return {};
  const std::lock_guard lock(mutex_);
  const auto end = passes_.begin() + static_cast<ptrdiff_t>(given_);
  const auto finished =
      std::count_if(passes_.begin(), end, [](const c10::Event& pass) { return pass.query(); });
  return {before_ + static_cast<uint64_t>(finished), !stream_->query()};
}

}  // namespace octavo::train
