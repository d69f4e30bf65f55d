#pragma once
// Files, with the durability that checkpoints need: a file appears under its name whole or not at
// all.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace octavo {

namespace fs = std::filesystem;

// 128-bit content hash (XXH3) as 32 hex digits: detects damage, not forgery.
std::string hash_bytes(std::span<const std::byte> bytes);
std::string hash_text(std::string_view text);
// `each_part`: called before each few MiB, and may throw to give up.
std::string hash_file(const fs::path& path, const std::function<void()>& each_part = {});

// Reads a whole small file; refuses one larger than `max_bytes`.
std::string read_file(const fs::path& path, size_t max_bytes);

// Writes beside the target, fsyncs, renames over it and fsyncs the folder.
void write_file_atomic(const fs::path& path, std::string_view content);

void fsync_path(const fs::path& path);  // a file or a folder

// Streaming writer with a running hash; the file is durable after close().
class FileWriter {
 public:
  // `named`: in messages instead of `path`, of a file that is to get another name.
  explicit FileWriter(const fs::path& path, const fs::path& named = {});
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void pad_to(size_t multiple);
  uint64_t size() const { return size_; }
  // fsyncs, closes, returns the hash of everything written.
  std::string close();

 private:
  fs::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  void* hash_state_ = nullptr;
};

// Read-only memory map of a regular file; views stay valid while the object lives.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }
  // Whole pages of this part of bytes() need not stay in memory; reading them loads them again.
  void release(std::span<const std::byte> part) const;

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// `name` joined to `folder`, refused when it could leave it (absolute, "..", empty, control
// characters).
fs::path join_inside(const fs::path& folder, std::string_view name);

}  // namespace octavo
