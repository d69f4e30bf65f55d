#pragma once
// The tensors of a save that is written while training continues. They are read in chunks straight
// from where they are, and do not change before the next update of the weights. When that is due,
// secure() copies what was not read yet: with a disk that is fast enough nothing is ever copied,
// and with a slow one training waits for memory and not for the disk. Of a GPU's tensors the copies
// are queued before the update, and nobody waits. Private to this module.

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/device_copies.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

class Snapshot {
 public:
  // By group, each in the order in which its file is written.
  explicit Snapshot(const std::map<std::string, NamedTensors>& groups);

  // For the thread that writes: the bytes of a tensor, as live or as copied.
  void feed(const std::string& group, const std::string& name, const ByteConsumer& take);

  struct SecureStats {
    uint64_t copied = 0, waited = 0;  // bytes: copied, and waited for because no copy had room
  };
  // Returns when no live tensor will be read any more but by copies that are queued. At most
  // `budget` bytes are copied, the ones first that are written last.
  SecureStats secure(uint64_t budget);

  // Nothing will be read any more: the save has ended.
  void close();

 private:
  enum class Stage { kLive, kBusy, kCopied, kUsed };  // kBusy: being read, or being copied
  struct Chunk {
    at::Tensor live;  // bytes of the tensor, one dimension
    at::Tensor copy;  // in the CPU's memory
    Stage stage = Stage::kLive;
    std::optional<c10::Event> arrived = {};  // of a GPU's: the copy has the bytes after it
  };
  // Fills `chunk.copy`; false when there was no memory.
  bool copy_live(Chunk& chunk, const at::Tensor& live) const;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<DeviceCopies> device_copies_;  // when tensors are on a GPU
  std::map<std::pair<std::string, std::string>, std::pair<size_t, size_t>>
      of_tensor_;  // [from, to)
  bool closed_ = false;
};

}  // namespace octavo::checkpoint
