#pragma once
// The bytes of a trace, plain or gzipped, a piece at a time.

#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"

struct z_stream_s;

namespace octavo::audit {

class ByteSource {
 public:
  // Fails (kUsage) when there is no such file.
  explicit ByteSource(const fs::path& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fills `out` as far as there is something; 0 at the end. Damaged compression and files that
  // inflate beyond all measure fail (kDamaged).
  size_t read(char* out, size_t size);
  // The file ended inside of its compressed data.
  bool is_cut() const { return cut_; }
  const fs::path& path() const { return path_; }
  // Bytes that are worth reading at once: no more than the file has, up to 1 MB.
  size_t piece() const { return piece_; }

 private:
  size_t read_file(char* out, size_t size);
  size_t inflate_some(char* out, size_t size);
  bool next_input();

  fs::path path_;
  int fd_ = -1;
  bool cut_ = false, ended_ = false;
  size_t piece_ = 0;
  uint64_t raw_ = 0, inflated_ = 0;
  std::unique_ptr<z_stream_s> zip_;  // null: the file is plain
  std::string input_;
};

// The first bytes of a file, to tell what it is.
std::string first_bytes(const fs::path& path, size_t count);

}  // namespace octavo::audit
