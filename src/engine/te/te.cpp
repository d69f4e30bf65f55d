#include "engine/te/te.h"

#include "engine/te/library.h"

namespace octavo::engine::te {

bool is_available() {
  return search().library != nullptr;
}

LibraryInfo library_info() {
  const Search& found = search();
  if (found.library == nullptr) return {"", "", found.problem};
  return {found.library->path, found.library->version, ""};
}

std::string refusal(const Target& target) {
  if (target.fp8 != Fp8Kernels::kTransformerEngine)
    return "Transformer Engine was not chosen for FP8";
  if (target.reference_only) return "only the reference was asked for";
  if (target.compute != at::kBFloat16) return "computes in BF16 only";
  if (!is_available()) return search().problem;
  const bool on_host = search().library->double_capability > 0;
  if (target.device.is_cpu() != on_host) return "runs on GPUs only";
  return "";
}

}  // namespace octavo::engine::te
