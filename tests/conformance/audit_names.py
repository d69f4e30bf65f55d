"""Kernel names and what each one is: the sheet's rows, and names beyond it. No script: audit.py imports it."""
import re

# What a row of the sheet calls a kernel, and the classes of octavo that say the same; the first that fits counts.
CLASSES = [
    (r"GEMM helper", {"gemm helper"}), (r"^(grouped )?GEMM", {"gemm"}),
    (r"quantize / swizzle", {"quantize", "fp8 layout"}), (r"^attention", {"attention"}), (r"FP8 scale layout|swizzle$|scale-factor swizzle|^padding", {"fp8 layout"}),
    (r"^transpose / dequantize / scale", {"fp8 transpose", "dequantize", "amax"}),
    (r"quantize / quantize\+transpose / dequantize|quantize / dequantize|quantize, dequantize", {"quantize", "dequantize", "amax"}),
    (r"cast / amax|Hadamard amax", {"quantize", "amax"}),
    (r"FP8 amax", {"amax"}), (r"quantize|FP8 cast|cast\+transpose", {"quantize"}),
    (r"grad-norm clip", {"optimizer", "amax"}), (r"optimizer", {"optimizer"}), (r"activation", {"activation"}), (r"RoPE", {"rope"}),
    (r"cross-entropy|softmax", {"softmax"}), (r"[Nn]orm", {"norm"}), (r"copy / dtype cast", {"copy", "quantize"}),
    (r"^elementwise", {"elementwise"}), (r"^reduction / gather", {"reduction", "indexing"}), (r"^memset / memcpy", {"memset", "memcpy"}),
    (r"^MoE", {"moe"}), (r"all-reduce|reduce-scatter|all-gather|collective|EP all-to-all|broadcast", {"collective"}),
]
PRECISIONS = [(r"^MXFP4", "MXFP4"), (r"^(→)?MXFP8", "MXFP8"), (r"^(→)?NVFP4", "NVFP4"), (r"^FP8 / MXFP8", None), (r"^FP8 or FP4", None),
              (r"^(QKV )?FP8|^→FP8|^float_e4m3", "FP8"), (r"^BF16", "BF16"), (r"^FP16", "FP16"), (r"^TF32", "TF32"), (r"^FP32 \(|^FP32 SIMT", "FP32"),
              (r"^INT8", "INT8"), (r"^16-bit", "16-bit"), (r"^NF4/FP4 weight", "4-bit weight"), (r"^FP32 in, BF16", "BF16")]
# Rows whose status is about more than octavo says: the letters themselves are documented, what is inferred is the pass or an
# abbreviation.
BETTER = {3, 30}
CHECKED_CLASSES, LOW = {"gemm", "attention"}, {"FP8", "MXFP8", "NVFP4"}


def rows(text):
    """(first number, names, class, precision, status) of every row of the table of names."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "/").split("|")[1:-1]]
        if len(cells) == 7 and re.fullmatch(r"\d+(–\d+)?", cells[0]):
            yield int(cells[0].split("–")[0]), re.findall(r"`([^`]+)`", cells[1]), cells[2], cells[3], cells[6]


def wanted(number, index, count, kind, precision, status):
    """What octavo must say of one name: classes, precision (None: anything), and whether it is sure (None: either)."""
    classes = next((found for pattern, found in CLASSES if re.search(pattern, kind)), None)
    parts = [part.strip() for part in precision.split(" / ")]
    mine = parts[index] if len(parts) == count and count > 1 else precision
    exact = next((found for pattern, found in PRECISIONS if re.search(pattern, mine)), None)
    if classes is not None and not classes & CHECKED_CLASSES and exact not in LOW:
        exact = None  # of a norm's or a copy's types octavo says nothing
    sure = {"V": True, "D": True, "I": False}.get(status[0])
    if number in BETTER:
        sure = True
    return classes, exact, sure


def sheet_names(text):
    """Every name of the sheet with what is wanted of it."""
    for number, names, kind, precision, status in rows(text):
        for index, name in enumerate(names):
            yield (number + index, name, *wanted(number, index, len(names), kind, precision, status))


# cuBLASLt 13.1's own pool of type letters, which the sheet lists in its rules: A[B C] compute D.
POOL = ("bsb bii bss hss tss sss_tf32 qqhsh qqhhh qqhsq qqtst qqtsq qqsss qrhsh qrhsq qrhsr qrtst qrtsq qrtsr qrsss rqhsh rqhsq rqhsr "
        "rqtst rqtsq rqtsr rqsss rrrsr qqqsq hsh tst").split()
LETTER = {"b": "INT8", "h": "FP16", "t": "BF16", "q": "FP8", "r": "FP8"}


def more_names():
    """(name, class, precision, sure) beyond the sheet: the pool, Nsight's spelling, traps, and names that nobody knows."""
    for letters in POOL:
        precision = "TF32" if letters == "sss_tf32" else LETTER[letters[0]]
        yield f"nvjet_sm100_{letters}_128x256_64x4_2x1_v_bz_TNT", "gemm", precision, True
    for letters in ("oosss", "oohsh", "ootst"):
        yield f"nvjet_sm100_{letters}_128x256_256x5_2x2_2cta_h_bz_Avec16UE4M3_Bvec16UE4M3_TNT", "gemm", "NVFP4", True
    for letters in ("qqtst", "qrtst", "rqtst", "qqsss"):
        yield f"nvjet_sm100_{letters}_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT", "gemm", "MXFP8", True
    yield from (
        ("nvjet_sm90_qqtst_128x128_128x6_1x2_h_bz_Ablk128_Bvec128_TNT", "gemm", "FP8", True),
        ("nvjet_sm100_xyz_128x256_TNT", "gemm", "unknown", False),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t>>"
         "(flash::Flash_fwd_params)", "attention", "BF16", True),
        ("void flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, 128, cutlass::half_t>>(flash::Flash_bwd_params)", "attention",
         "FP16", True),
        ("void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2, const T1 *)", "norm", "-", True),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", "collective", None, True),
        ("void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
         "at::TensorIteratorBase &)::[lambda() (instance 3)]>(at::TensorIteratorBase &, const T1 &)>(int, T3)", "copy", "-", True),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>",
         "quantize", "FP8", True),
        ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>>, "
         "cutlass::float_e4m3_t, float, cutlass::arch::Sm90>>>>", "attention", "FP8", True),
        ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int>,"
         " cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<6>, cutlass::bfloat16_t>>>>", "gemm",
         "BF16", True),
        ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int>,"
         " cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<6>, cutlass::float_e4m3_t, "
         "cutlass::bfloat16_t>>>>", "gemm", "FP8", True),
        ("cutlass::device_kernel<GemmUniversal<cute::tuple<cutlass::float_e2m1_t, cutlass::float_ue8m0_t>>>", "gemm", "MXFP4", True),
        ("triton_poi_fused_addmm_gelu_view_3", "activation", "-", True),
        ("triton_poi_fused__flash_attention_cat_5", "elementwise", "-", True),
        ("triton_per_fused__softmax_2", "softmax", "-", False),
        ("triton_tem_fused_bmm_12", "gemm", "unknown", False),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "FP16", False),
        ("volta_h884gemm_256x64_ldg8_nn", "gemm", "FP16", True),
        ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", "gemm", "BF16", True),
        ("cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_2x1x1_0_tnn_align16", "gemm", "FP8", True),
        ("cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_tnn_align8", "gemm", "BF16", True),
        ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_32x4_nhwc_align4>", "convolution", "TF32", True),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32", "convolution", "TF32", True),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float>(cublasGemvParams)", "gemm", "BF16", True),
        ("void gemvNSP_kernel<__half, __half, float>(cublasGemvParams)", "gemm", "FP16", True),
        ("void transformer_engine::nvfp4::block_scaled_1d_cast_transpose_kernel<true>", "quantize", "NVFP4", True),
        ("void transformer_engine::(anonymous namespace)::dequantize_mxfp8_kernel<64>", "dequantize", "MXFP8", True),
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128_s4", "gemm", "BF16", True),
        ("fmhaSm100aKernel_QkvBfloat16OBfloat16H128PagedKv", "attention", "BF16", True),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective", "FP16", True),
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int, int const*)", "embedding", "-", True),
        ("Memcpy PtoP (Device -> Device)", "memcpy", "-", True),
        # Nobody knows these: a GEMM by its name is listed, anything else is "other".
        ("mycompany_fp8_gemm_v3_kernel", "unknown gemm", "unknown", False), ("void acme::HGEMM<float>(float*)", "unknown gemm", "unknown", False),
        ("_my_matmul_persistent", "unknown gemm", "unknown", False), ("fused_moe_bmm_kernel", "unknown gemm", "unknown", False),
        ("void acme::sort<acme::gemm_tag>(int)", "other", "-", False), ("kernel", "other", "-", False), ("", "other", "-", False),
        ("_Z9my_kernelPf", "other", "-", False))
