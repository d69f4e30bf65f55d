#pragma once
// What GPUs' FP8 GEMMs ask of their operands.

namespace octavo::fp8 {

// Operands with one scale are taken as they lie; elsewhere both must be given by rows of the sum,
// so that a second, transposed copy is made. As nvte_is_non_tn_fp8_gemm_supported() has it, which
// answers for the current device alone.
constexpr bool takes_any_layout(int capability) {
  return capability >= 100 && (capability < 120 || capability >= 130);
}

}  // namespace octavo::fp8
