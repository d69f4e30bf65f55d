#include "library/octavo/safetensors.h"

#include "base/error.h"
#include "checkpoint/safetensors_layout.h"

namespace octavo::v0 {

Safetensors::Safetensors(const std::filesystem::path& path) : path_(path) {
  const auto file = std::make_shared<const MappedFile>(path);
  checkpoint::SafetensorsLayout layout = checkpoint::read_safetensors_layout(file->bytes(), path);
  for (auto& [name, entry] : layout.tensors)
    tensors_.emplace(name, Tensor{entry.dtype, std::move(entry.shape),
                                  file->bytes().subspan(layout.data_begin + entry.begin,
                                                        entry.end - entry.begin)});
  metadata_ = std::move(layout.metadata);
  file_ = file;
}

const Safetensors::Tensor& Safetensors::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    fail(ExitCode::kDamaged, "checkpoint", path_.string(), ": wanted tensor ",
         checkpoint::quote_name(name), ", found ", tensors_.size(), " tensors without it");
  return found->second;
}

}  // namespace octavo::v0
