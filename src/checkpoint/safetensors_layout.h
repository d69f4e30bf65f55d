#pragma once
// What the header of a safetensors file says, without torch: u64 header length, JSON header {name:
// {dtype, shape, data_offsets}}, data. Reading treats the file as hostile: header size, offsets,
// overlaps, holes, shapes and names are checked before any tensor is touched.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace octavo::checkpoint {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr size_t kMaxTensorName = 1024;
inline constexpr size_t kMaxDimensions = 64;

struct TensorEntry {
  std::string_view dtype;  // as the format writes it: "BF16"
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in the data part; as many bytes as shape and dtype make
};

struct SafetensorsLayout {
  uint64_t data_begin = 0;
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// Of a whole file; `path` is for messages. Tensors fill the data part without a hole or an overlap.
SafetensorsLayout read_safetensors_layout(std::span<const std::byte> file, const fs::path& path);

// Bytes of an element of a dtype by the format's name; 0 when the format has no such name.
size_t safetensors_element_size(std::string_view dtype);

// "" when a tensor may have this name, else why not.
std::string tensor_name_problem(std::string_view name);

// A name from a file, safe to print: escaped, quoted and cut.
std::string quote_name(std::string_view text);

}  // namespace octavo::checkpoint
