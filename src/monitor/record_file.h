#pragma once
// A file that grows by whole records. What a full or dead disk does not take is counted and said
// once; the file never ends in half a record, so that later ones stay readable.

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/file.h"

namespace octavo::monitor {

class RecordFile {
 public:
  // `what` is for messages: "TensorBoard events". Nothing is opened before the first append.
  RecordFile(std::string what, fs::path path);
  // All of it or nothing; false: nothing, and counted.
  bool append(std::string_view bytes);
  uint64_t size() const { return size_; }  // of what was taken; 0: the next append is the first
  int64_t failures() const { return failures_; }
  const fs::path& path() const { return path_; }

 private:
  bool open();
  bool failed(const std::string& why);

  std::string what_;
  fs::path path_;
  Fd fd_;
  uint64_t size_ = 0;
  bool dirty_ = false;  // half a record may lie behind size_
  std::atomic<int64_t> failures_{0};
};

}  // namespace octavo::monitor
