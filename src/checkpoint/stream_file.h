#pragma once
// Writes large files at the disk's own speed and with little of the processor: blocks go to the
// disk past the page cache (O_DIRECT) from a second thread while the next is filled and hashed.
// Files of less than one block, and file systems without O_DIRECT, take the usual way. Private to
// this module.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace octavo::checkpoint {

// The hash of hash_bytes(), of bytes that come one piece at a time.
class RunningHash {
 public:
  RunningHash();
  ~RunningHash();
  RunningHash(const RunningHash&) = delete;
  RunningHash& operator=(const RunningHash&) = delete;
  void add(std::span<const std::byte> bytes);
  std::string digest() const;

 private:
  void* state_;
};

class StreamFile {
 public:
  explicit StreamFile(const fs::path& path);
  ~StreamFile();
  StreamFile(const StreamFile&) = delete;
  StreamFile& operator=(const StreamFile&) = delete;
  // `bytes` are used up on return.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  uint64_t size() const { return size_; }
  // The file is durable on return. Returns the hash of all of it.
  std::string close();

 private:
  class Disk;
  void hand_over();

  RunningHash hash_;
  std::unique_ptr<Disk> disk_;
  std::byte* block_ = nullptr;  // being filled; the disk's
  size_t filled_ = 0;
  uint64_t size_ = 0;
};

}  // namespace octavo::checkpoint
