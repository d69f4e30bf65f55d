#pragma once
// Types of operands inside kernel names: each family of libraries writes them in its own way.

#include <string>
#include <string_view>

#include "audit/kernel_class.h"

namespace octavo::audit {

struct Operands {
  Precision precision = Precision::kUnknown;
  bool is_sure = true;
  std::string detail;
};

// Each takes a name that its rule matched, and says kUnknown where the types are not in it.
Operands nvjet_operands(std::string_view name);       // nvjet_sm90_qqtst_…
Operands xmma_operands(std::string_view name);        // sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_…
Operands cutlass2_operands(std::string_view name);    // …tensorop_bf16_s16816gemm_relu_bf16_…
Operands cutlass3_operands(std::string_view name);    // cutlass3x_sm100_…gemm_e4m3_e4m3_f32_…
Operands template_operands(std::string_view name);    // cutlass::float_e4m3_t among the arguments
Operands first_type_operands(std::string_view name);  // gemv2T_kernel<int, int, float, …>
Operands trtllm_operands(std::string_view name);      // bmm_MxE4m3_MxE2m1MxE4m3_Fp32_…
Operands cudnn_operands(std::string_view name);  // cudnn_generated_…_flash_fprop_wgmma_f16_…
Operands short_type_operands(std::string_view name);  // fmha_cutlassF_bf16_…, …_Sum_f8e4m3_RING…

}  // namespace octavo::audit
