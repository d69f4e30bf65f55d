#pragma once
// Bytes of a GPU's tensors on their way into a save, by pinned memory: a GPU writes it by itself,
// while a copy into other memory holds the thread that asks for it and goes through a small buffer
// of the driver. Private to this module.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

namespace octavo::checkpoint {

class DeviceCopies {
 public:
  // The tensors are saved as the kernels leave them that were queued by now.
  explicit DeviceCopies(at::Device device);

  // For the thread that writes: the bytes, in memory that the next call uses again. They are read
  // on a stream of its own, beside the kernels of the step and not behind them.
  at::Tensor read(const at::Tensor& bytes);

  // For the thread that trains: pinned memory that has the bytes when `arrived` has happened. They
  // are read before the kernels that are queued next run, and nobody waits here.
  struct Queued {
    at::Tensor bytes;
    c10::Event arrived;
  };
  Queued queue(const at::Tensor& bytes) const;

 private:
  at::Device device_;
  c10::Event ready_;
  std::optional<c10::Stream> stream_;  // of the thread that writes
  at::Tensor buffer_;
};

}  // namespace octavo::checkpoint
