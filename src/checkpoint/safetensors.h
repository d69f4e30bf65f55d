#pragma once
// Tensors in safetensors files; safetensors_layout.h has the format. Tensors that were read are
// views of the memory-mapped file, which they keep alive.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checkpoint/safetensors_layout.h"

namespace octavo::checkpoint {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct TensorInfo {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in the data part
};

class SafetensorsReader {
 public:
  explicit SafetensorsReader(const fs::path& path);
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Read-only view; clone before writing. A tensor that its writer did not align to its element
  // size is returned as a copy instead.
  at::Tensor tensor(const std::string& name) const;
  std::span<const std::byte> tensor_bytes(const std::string& name) const;
  // The tensor's pages need not stay in memory; it can still be read.
  void release(const std::string& name) const { file_->release(tensor_bytes(name)); }
  std::span<const std::byte> bytes() const { return file_->bytes(); }  // the whole file
  std::span<const std::byte> header_bytes() const { return bytes().first(data_begin_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::shared_ptr<MappedFile> file_;
  uint64_t data_begin_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct WrittenFile {
  std::string hash;         // of the whole file
  std::string header_hash;  // of what comes before the data
  uint64_t size = 0;
  std::map<std::string, std::string> tensor_hashes;  // of each tensor's bytes
};

// Writes tensors one after the other; the file is durable on return. Tensors on another device or
// not contiguous are copied one at a time. The data part starts at a multiple of 64 bytes. The
// format allows no holes, so tensors whose size is a multiple of 64 come first and stay aligned to
// 64; the others follow by element size, largest first, each aligned to its element.
WrittenFile write_safetensors_hashed(const fs::path& path, const NamedTensors& tensors,
                                     const std::map<std::string, std::string>& metadata);

// The same for tensors that are made one at a time: `outlines` say their names, dtypes and shapes
// (tensors on the meta device do), and `produce` is asked for each when its turn comes.
WrittenFile write_safetensors_streamed(
    const fs::path& path, const NamedTensors& outlines,
    const std::function<at::Tensor(const std::string& name)>& produce,
    const std::map<std::string, std::string>& metadata);

// The same for bytes that come in pieces: `feed` calls `take` with the tensor's bytes from first to
// last, in as many pieces as it likes; a piece is used up when `take` returns.
using ByteConsumer = std::function<void(std::span<const std::byte>)>;
using ByteProducer = std::function<void(const std::string& name, const ByteConsumer& take)>;
WrittenFile write_safetensors_fed(const fs::path& path, const NamedTensors& outlines,
                                  const ByteProducer& feed,
                                  const std::map<std::string, std::string>& metadata);

// The order in which the writers above ask for tensors.
NamedTensors in_file_order(const NamedTensors& outlines);

// The same, returning the content hash of the whole file.
std::string write_safetensors(const fs::path& path, const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata);

// The format's name of a dtype ("BF16"), "" when it has none; and back.
std::string_view safetensors_dtype_name(at::ScalarType dtype);
std::optional<at::ScalarType> safetensors_dtype(std::string_view name);

}  // namespace octavo::checkpoint
