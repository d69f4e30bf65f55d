#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

namespace {

TensorInfo info_of(TensorEntry&& entry) {
  const auto dtype = safetensors_dtype(entry.dtype);
  OCTAVO_ASSERT(dtype.has_value() &&
                c10::elementSize(*dtype) == safetensors_element_size(entry.dtype));
  return {*dtype, std::move(entry.shape), entry.begin, entry.end};
}

}  // namespace

SafetensorsReader::SafetensorsReader(const fs::path& path)
    : path_(path), file_(std::make_shared<MappedFile>(path)) {
  SafetensorsLayout layout = read_safetensors_layout(file_->bytes(), path);
  data_begin_ = layout.data_begin;
  metadata_ = std::move(layout.metadata);
  for (auto& [name, entry] : layout.tensors) tensors_.emplace(name, info_of(std::move(entry)));
}

std::span<const std::byte> SafetensorsReader::tensor_bytes(const std::string& name) const {
  auto found = tensors_.find(name);
  if (found == tensors_.end())
    fail(ExitCode::kDamaged, "checkpoint", path_.string(), ": wanted tensor ", quote_name(name),
         ", found ", tensors_.size(), " tensors without it; check that the file fits the model");
  const TensorInfo& info = found->second;
  return file_->bytes().subspan(data_begin_ + info.begin, info.end - info.begin);
}

at::Tensor SafetensorsReader::tensor(const std::string& name) const {
  auto bytes = tensor_bytes(name);
  const TensorInfo& info = tensors_.at(name);
  auto options = at::TensorOptions().dtype(info.dtype);
  if (bytes.empty()) return at::empty(info.shape, options);
  // A byte other than 0 and 1 read as bool is undefined behaviour.
  if (info.dtype == at::kBool &&
      std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; }))
    fail(ExitCode::kDamaged, "checkpoint", path_.string(),
         ": not a sound safetensors file: tensor ", quote_name(name),
         ": a BOOL byte is neither 0 nor 1; fetch or write the file again");
  if (reinterpret_cast<uintptr_t>(bytes.data()) % c10::elementSize(info.dtype) != 0) {
    at::Tensor copy = at::empty(info.shape, options);
    std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
    return copy;
  }
  void* data = const_cast<std::byte*>(bytes.data());
  return at::from_blob(
      data, info.shape, [keep = file_](void*) {}, options);
}

}  // namespace octavo::checkpoint
