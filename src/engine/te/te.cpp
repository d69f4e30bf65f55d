#include "engine/te/te.h"

#include "base/environment.h"
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

namespace {

std::string library_refusal(const Target& target) {
  if (target.reference_only) return "only the reference was asked for";
  if (target.compute != at::kBFloat16) return "computes in BF16 only";
  if (!is_available()) return search().problem;
  if (!search().library->serves(target.device)) return "runs on GPUs only";
  return "";
}

}  // namespace

std::string refusal(const Target& target) {
  if (target.fp8 != Fp8Kernels::kTransformerEngine)
    return "Transformer Engine was not chosen for FP8";
  return library_refusal(target);
}

std::string operation_refusal(const Target& target) {
  if (target.fp8 != Fp8Kernels::kTransformerEngine && !target.te_operations)
    return "Transformer Engine was not chosen";
  if (target.fp8 != Fp8Kernels::kTransformerEngine &&
      environment_variable("NVTE_DISABLE_NVRTC") == "1")
    return "NVTE_DISABLE_NVRTC forbids Transformer Engine to compile its norms";
  return library_refusal(target);
}

std::string matmul_refusal(const Target& target) {
  if (!target.device.is_cuda()) return "runs on GPUs only";
  return operation_refusal(target);
}

}  // namespace octavo::engine::te
