// Names of kernels, decoded; tests/conformance/audit.py has the whole list.

#include "audit/kernel_class.h"

#include <gtest/gtest.h>

#include <set>

#include "audit/kernel_rules.h"

namespace octavo::audit {
namespace {

struct Wanted {
  std::string_view name;
  Kind kind;
  Precision precision;
  bool is_sure;
};

void expect_classes(std::initializer_list<Wanted> list) {
  for (const Wanted& wanted : list) {
    const KernelClass found = classify_kernel(wanted.name);
    EXPECT_EQ(name_of(found.kind), name_of(wanted.kind)) << wanted.name;
    EXPECT_EQ(name_of(found.precision), name_of(wanted.precision)) << wanted.name;
    EXPECT_EQ(found.is_sure, wanted.is_sure) << wanted.name;
  }
}

TEST(KernelClass, ReadsNvjetsLetters) {
  expect_classes({
      {"nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", Kind::kGemm, Precision::kBf16, true},
      {"nvjet_hss_64x8_64x16_1x1_v_bz_splitK_NNT", Kind::kGemm, Precision::kFp16, true},
      {"nvjet_sm100_qrtst_128x256_128x6_2x1_v_bz_NNT", Kind::kGemm, Precision::kFp8, true},
      {"nvjet_sm120_sss_tf32_mma_32x64x32_TNNN", Kind::kGemm, Precision::kTf32, true},
      {"nvjet_sss_128x256_TNT", Kind::kGemm, Precision::kFp32, false},
      {"nvjet_sm100_zzz_128x256_TNT", Kind::kGemm, Precision::kUnknown, false},
      {"nvjet_", Kind::kGemm, Precision::kUnknown, false},
  });
  EXPECT_EQ(classify_kernel("nvjet_sm100_qrtst_128x256_NNT").detail,
            "E4M3 x E5M2 -> BF16, one scale per tensor");
  EXPECT_EQ(classify_kernel("nvjet_sm90_qqtst_128_bz_ovscale_TNT").detail,
            "E4M3 x E4M3 -> BF16, a scale per row");
}

TEST(KernelClass, TellsBlockScalesFromPlainFp8) {
  expect_classes({
      {"nvjet_qqtst_128_bz_Avec32UE8M0_Bvec32UE8M0_TNT", Kind::kGemm, Precision::kMxfp8, true},
      {"nvjet_sm100_ootst_1_bx_Avec16UE4M3_Bvec16UE4M3_TNT", Kind::kGemm, Precision::kNvfp4, true},
      {"nvjet_sm100_ootst_128x128_TNT", Kind::kGemm, Precision::kNvfp4, false},
      {"nvjet_sm90_x_Ablk128_Bvec128", Kind::kGemm, Precision::kFp8, false},
  });
}

TEST(KernelClass, ReadsXmmaAndCutlass) {
  expect_classes({
      {"sm89_xmma_gemm_e4m3e5m2bf16_e4m3e5m2f32_f32_tn_n_t", Kind::kGemm, Precision::kFp8, true},
      {"sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32", Kind::kGemm, Precision::kTf32, true},
      {"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_ffma", Kind::kGemm, Precision::kFp32, true},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_tn_align8>"
       "(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_tn_align8::Params)",
       Kind::kGemm, Precision::kBf16, true},
      {"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>", Kind::kGemm,
       Precision::kTf32, false},
      {"cutlass_80_tensorop_s1688bf16gemm_128", Kind::kGemm, Precision::kBf16, false},
      {"ampere_h16816gemm_256x64_ldg8_stages_32x6_tn", Kind::kGemm, Precision::kFp16, true},
      {"ampere_sgemm_32x128_nn", Kind::kGemm, Precision::kFp32, true},
      {"cutlass3x_sm100_tensorop_s256x256x8tf32gemm_2sm_bias_f32_relu", Kind::kGemm,
       Precision::kTf32, true},
      {"cutlass3x_sm100_bstensorop_s2gemm_block_scaled_ue8m0xe4m3_ue8m0xe5m2_f32_f16_f16_2",
       Kind::kGemm, Precision::kMxfp8, true},
      {"cutlass3x_sm100_tensorop_s128x128x32gemm_f8_f8_f32_bf16_bf16_1", Kind::kGemm,
       Precision::kFp8, false},
  });
}

TEST(KernelClass, LooksIntoTemplates) {
  expect_classes({
      {"void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<float_e4m3_t>>>",
       Kind::kAttention, Precision::kFp8, true},
      {"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::bfloat16_t>>",
       Kind::kGemm, Precision::kBf16, true},
      {"cutlass::device_kernel<GemmUniversal<cute::tuple<float_e4m3_t, float_ue8m0_t>>>",
       Kind::kGemm, Precision::kMxfp8, true},
      {"void deep_gemm::sm90_fp8_gemm_1d2d_impl<4096u>", Kind::kGemm, Precision::kFp8, true},
      {"gemv2T_kernel_val<int, int, __nv_bfloat16, float>", Kind::kGemm, Precision::kBf16, true},
  });
}

TEST(KernelClass, KnowsTheTraps) {
  expect_classes({
      // Pointwise, although a GEMM is in the name.
      {"triton_poi_fused__scaled_mm__to_copy_clamp_mul_reciprocal_t_view_4", Kind::kQuantize,
       Precision::kFp8, true},
      {"triton_poi_fused_addmm_gelu_3", Kind::kActivation, Precision::kNone, true},
      {"rht_gemm_device<1>", Kind::kQuantize, Precision::kNvfp4, true},
      {"triton_tem_fused__scaled_mm_0", Kind::kGemm, Precision::kFp8, true},
      // A copy with "flash" in its name; 16 bits that may be either.
      {"void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>", Kind::kCopy, Precision::kNone,
       true},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", Kind::kAttention,
       Precision::k16Bit, true},
      // Communication that is not named nccl.
      {"void dpsk::ep::internode::dispatch<false>", Kind::kCollective, Precision::kNone, true},
      {"multi_tensor_apply_kernel<ComputeScaleAndScaleInvFunctor>", Kind::kAmax, Precision::kFp8,
       true},
      {"multi_tensor_apply_kernel<L2NormFunctor<float>>", Kind::kOptimizer, Precision::kNone, true},
  });
}

TEST(KernelClass, KnowsOurOwn) {
  const std::string begin = "void octavo::kernels::on_device<octavo::kernels::";
  const auto named = [&](const char* kernel) { return classify_kernel(begin + kernel); };
  const KernelClass quantize = named("QuantizeKernel<(octavo::fp8::Format)0>>(T1::Arguments)");
  EXPECT_EQ(quantize.kind, Kind::kQuantize);
  EXPECT_TRUE(is_charged_to_fp8(quantize));
  EXPECT_EQ(named("NormKernel<(bool)0, (int)256, (int)2, (int)8>>").kind, Kind::kNorm);
  EXPECT_EQ(named("NormBackwardKernel<false, 256, 2, 256>>").kind, Kind::kNorm);
  EXPECT_EQ(named("JoinFp8StatsKernel>").kind, Kind::kAmax);
  EXPECT_EQ(named("RopeKernel<unsigned short>>").kind, Kind::kRope);
  EXPECT_EQ(named("CrossEntropyKernel>").kind, Kind::kSoftmax);
  EXPECT_EQ(named("AdamWKernel<float, float, unsigned char>>").kind, Kind::kOptimizer);
}

TEST(KernelClass, ListsUnknownGemmsInsteadOfGuessing) {
  expect_classes({
      {"my_own_gemm_kernel_v3", Kind::kUnknownGemm, Precision::kUnknown, false},
      {"void lib::HGEMM<float>(float*)", Kind::kUnknownGemm, Precision::kUnknown, false},
      {"void lib::sort<gemm_tag>(int)", Kind::kOther, Precision::kNone, false},
      {"", Kind::kOther, Precision::kNone, false},
  });
}

TEST(KernelClass, TakesNsightsSpelling) {
  EXPECT_EQ(normalized_name("void f<(int)4, (bool)0>(<unnamed>::g)"),
            "f<4, 0>((anonymous namespace)::g)");
  expect_classes(
      {{"void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, "
        "cutlass::bfloat16_t>>(flash::Flash_fwd_params)",
        Kind::kAttention, Precision::kBf16, true}});
}

TEST(KernelClass, ChargesFp8ForItsOwnWorkAlone) {
  EXPECT_TRUE(is_charged_to_fp8(classify_kernel("cast_transpose_optimized_kernel(float*)")));
  EXPECT_TRUE(is_charged_to_fp8(classify_kernel("triton_red_fused_abs_max_2")));
  EXPECT_FALSE(is_charged_to_fp8(classify_kernel("kInt8VectorQuant<float>")));
  EXPECT_FALSE(is_charged_to_fp8(classify_kernel("void CatArrayBatchedCopy<float>")));
  EXPECT_TRUE(classify_kernel("cast_fp8_gated_kernel<true>").is_fused);
}

TEST(KernelRules, AreWholeAndNoneTwice) {
  std::set<std::string_view> patterns;
  for (const KernelRule& rule : kernel_rules()) {
    EXPECT_TRUE(patterns.insert(rule.pattern).second) << rule.pattern;
    EXPECT_FALSE(rule.source.empty()) << rule.pattern;
    EXPECT_FALSE(rule.library.empty()) << rule.pattern;
  }
  EXPECT_GT(patterns.size(), 150u);
}

TEST(KernelClass, EndsWithLongNames) {
  const std::string longest(1 << 20, 'g');
  EXPECT_EQ(classify_kernel("nvjet_" + longest).precision, Precision::kUnknown);
  EXPECT_EQ(classify_kernel("void " + longest).kind, Kind::kOther);
}

}  // namespace
}  // namespace octavo::audit
