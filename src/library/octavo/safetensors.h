#pragma once
// Safetensors files, read without torch. Link octavo::safetensors.
//
// The file is taken for hostile: sizes, offsets, overlaps, holes, shapes and names are checked
// before any tensor can be reached. A file that is not sound is a std::runtime_error that names
// what is wrong with it.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::v0 {

class Safetensors {
 public:
  struct Tensor {
    std::string_view dtype;  // as the format writes it: "BF16", "F8_E4M3", …
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;  // row-major, little-endian; of the mapped file
  };

  explicit Safetensors(const std::filesystem::path& path);

  // By name. Views: they live as long as this object or a copy of it.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // An error when there is none of this name.
  const Tensor& tensor(const std::string& name) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const void> file_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace octavo::v0
