#include "checkpoint/snapshot.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "engine/parallel.h"

namespace octavo::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{32} << 20;
// Small enough to be hashed, copied and hashed again within the processor's cache.
constexpr size_t kBite = size_t{256} << 10;

std::span<const std::byte> host_bytes(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Into memory of its own, by all threads of the caller.
at::Tensor copy_on_host(const at::Tensor& bytes) {
  const int64_t size = bytes.numel();
  auto* memory = static_cast<std::byte*>(std::malloc(static_cast<size_t>(size)));
  if (memory == nullptr)
    fail(ExitCode::kEnvironment, "checkpoint", "no memory to copy ", size, " bytes of a save");
  const auto* from = static_cast<const std::byte*>(bytes.const_data_ptr());
  engine::parallel_for(0, size, int64_t{1} << 20, [&](int64_t begin, int64_t end) {
    std::memcpy(memory + begin, from + begin, static_cast<size_t>(end - begin));
  });
  return at::from_blob(
      memory, {size}, [](void* p) { std::free(p); }, at::TensorOptions().dtype(at::kByte));
}

}  // namespace

Snapshot::Snapshot(const std::map<std::string, NamedTensors>& groups) {
  for (const auto& [group, tensors] : groups)
    for (const auto& [name, tensor] : in_file_order(tensors)) {
      const size_t from = chunks_.size();
      if (tensor.is_cuda() && device_copies_ == nullptr)
        device_copies_ = std::make_unique<DeviceCopies>(tensor.device());
      if (tensor.numel() > 0) {
        const at::Tensor flat = tensor.detach().view({-1}).view(at::kByte);
        for (int64_t at = 0; at < flat.numel(); at += kChunk)
          chunks_.push_back(
              {flat.narrow(0, at, std::min(kChunk, flat.numel() - at)), {}, Stage::kLive});
      }
      of_tensor_[{group, name}] = {from, chunks_.size()};
    }
}

void Snapshot::feed(const std::string& group, const std::string& name, const ByteConsumer& take) {
  const auto [from, to] = of_tensor_.at({group, name});
  for (size_t i = from; i < to; ++i) {
    Chunk& chunk = chunks_[i];
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return chunk.stage != Stage::kBusy; });
    at::Tensor source = chunk.stage == Stage::kCopied ? chunk.copy : chunk.live;
    chunk.stage = Stage::kBusy;
    lock.unlock();
    if (chunk.arrived) chunk.arrived->synchronize();
    if (!source.is_cpu()) source = device_copies_->read(source);
    auto bytes = host_bytes(source);
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kBite, bytes.size())))
      take(bytes.first(std::min(kBite, bytes.size())));
    lock.lock();
    chunk.live.reset();
    chunk.copy.reset();
    chunk.stage = Stage::kUsed;
    changed_.notify_all();
  }
}

bool Snapshot::copy_live(Chunk& chunk, const at::Tensor& live) const {
  try {
    if (live.is_cpu()) {
      chunk.copy = copy_on_host(live);
    } else {
      DeviceCopies::Queued queued = device_copies_->queue(live);
      chunk.copy = std::move(queued.bytes);
      chunk.arrived = std::move(queued.arrived);
    }
    return true;
  } catch (const std::exception& error) {
    log_warn(str("checkpoint: ", error.what(), "; the update waits for the disk instead"));
    return false;
  }
}

Snapshot::SecureStats Snapshot::secure(uint64_t budget) {
  SecureStats result;
  std::unique_lock lock(mutex_);
  for (size_t i = chunks_.size(); i-- > 0 && !closed_;) {
    Chunk& chunk = chunks_[i];
    const uint64_t bytes = chunk.live.defined() ? chunk.live.nbytes() : 0;
    if (chunk.stage != Stage::kLive || result.copied + bytes > budget) continue;
    chunk.stage = Stage::kBusy;
    const at::Tensor live = chunk.live;
    lock.unlock();
    const bool is_copied = copy_live(chunk, live);
    lock.lock();
    if (!is_copied) {
      chunk.stage = Stage::kLive;
      changed_.notify_all();
      break;
    }
    chunk.live.reset();
    chunk.stage = Stage::kCopied;
    result.copied += bytes;
    changed_.notify_all();
  }
  for (const Chunk& chunk : chunks_)
    if (chunk.stage == Stage::kLive) result.waited += chunk.live.nbytes();
  changed_.wait(lock, [&] {
    return closed_ || std::all_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) {
             return chunk.stage == Stage::kCopied || chunk.stage == Stage::kUsed;
           });
  });
  return result;
}

void Snapshot::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (Chunk& chunk : chunks_) {
    if (chunk.stage == Stage::kBusy) continue;  // whoever is at it ends by itself
    chunk.live.reset();
    chunk.copy.reset();
    chunk.stage = Stage::kUsed;  // secure() may be about to look at it
  }
  changed_.notify_all();
}

}  // namespace octavo::checkpoint
