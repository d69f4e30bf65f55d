// Of a build without oneDNN (-D OCTAVO_LIBRARIES=none): there are no GEMMs but those of
// gemm_blas.cpp, and whoever asks for others is told so before.

#include "base/error.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/instruction_set.h"

namespace octavo::engine::cpu {
namespace {

const std::string& reason() {
  static const std::string text = "this build has no oneDNN";
  return text;
}

[[noreturn]] void not_asked_for() {
  fail(ExitCode::kEnvironment, "engine", "wanted a GEMM of oneDNN, found that ", reason());
}

}  // namespace

std::string_view onednn_missing() {
  return reason();
}

std::string gemm_instruction_set() {
  return kernel_instruction_set();
}

bool has_bf16_units() {
  return false;
}

const std::string& bf16_gemms_missing() {
  return reason();
}

std::unique_ptr<Gemm> make_onednn(const GemmShape&, GemmOperands) {
  not_asked_for();
}

std::unique_ptr<Gemm> make_onednn_packing(const GemmShape&) {
  not_asked_for();
}

std::unique_ptr<Gemm> make_onednn_blocked(const GemmShape&, BlockedLayout&) {
  not_asked_for();
}

}  // namespace octavo::engine::cpu
