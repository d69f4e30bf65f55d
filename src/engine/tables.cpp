// The ordered tables: first the fastest, last the reference.

#include "engine/aten/aten.h"
#include "engine/aten/attention_cudnn.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/instruction_set.h"
#include "engine/op_table.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/reference/reference.h"
#include "engine/te/te.h"

namespace octavo::engine {
namespace {

using cpu::GemmOperands;

std::string serves_all(const Target&) {
  return {};
}

std::string unless_reference(const Target& t) {
  return t.reference_only ? "only the reference was asked for" : std::string();
}

std::string on_cpu(const Target& t) {
  if (!t.device.is_cpu()) return "runs on CPUs only";
  cpu::limit_instruction_set();
  return unless_reference(t);
}

std::string on_cpu_bf16(const Target& t) {
  if (t.compute != at::kBFloat16) return "multiplies BF16 only";
  return on_cpu(t);
}

// Every CPU from AVX-512 on multiplies BF16, but only one with units for it does so faster than
// FP32.
std::string on_cpu_with_bf16_units(const Target& t) {
  std::string reason = on_cpu_bf16(t);
  if (!reason.empty() || t.bf16_units == Bf16Units::kPresent) return reason;
  if (t.bf16_units == Bf16Units::kAbsent) return "the CPU has no BF16 units";
  if (!cpu::onednn_missing().empty()) return std::string(cpu::onednn_missing());
  if (!cpu::has_bf16_units())
    return str("the CPU has no BF16 units (", cpu::gemm_instruction_set(), ")");
  if (const std::string& missing = cpu::bf16_gemms_missing(); !missing.empty())
    return str("oneDNN has no BF16 GEMMs for ", cpu::gemm_instruction_set(), ": ", missing);
  return {};
}

std::string on_cpu_with_onednn(const Target& t) {
  const std::string reason = on_cpu_bf16(t);
  return reason.empty() ? std::string(cpu::onednn_missing()) : reason;
}

std::string on_cpu_with_hopper_sums(const Target& t) {
  return t.hopper_sums ? on_cpu_bf16(t) : "Hopper's accumulators were not asked for";
}

std::string bf16_gemms(const Target& t) {
  return t.compute != at::kBFloat16 ? "multiplies BF16 only" : unless_reference(t);
}

// By libtorch's FP8 GEMMs, whose layouts follow the compute capability.
template <int kLeast, int kMost>
std::string on_gpu_with_fp8(const Target& t) {
  if (!t.device.is_cuda()) return "runs on GPUs only";
  if (t.fp8 != Fp8Kernels::kAten) return "libtorch's FP8 GEMMs were not asked for";
  if (t.capability < kLeast || t.capability > kMost) return "for other compute capabilities";
  return bf16_gemms(t);
}

std::string cpu_or_bf16(const Target& t) {
  if (!t.device.is_cpu() && t.compute != at::kBFloat16) return "BF16 only on GPUs";
  return unless_reference(t);
}

// Where cuDNN's attention is the fastest that libtorch has; it was written for these matrix units.
// Elsewhere it is the same algorithm as flash attention.
std::string on_gpu_with_cudnn(const Target& t) {
  if (!t.device.is_cuda()) return "runs on GPUs only";
  if (t.compute != at::kBFloat16) return "BF16 only";
  if (t.capability != 90 && t.capability / 10 != 10)
    return "no faster than flash attention but on compute capabilities 9.0 and 10.x";
  if (t.deterministic) return "its backward pass sums in no fixed order (deterministic)";
  if (const std::string missing = aten::cudnn_missing(); !missing.empty()) return missing;
  return unless_reference(t);
}

// Norms by our own kernels, and those that they do not serve by Transformer Engine.
std::string own_before_te(const Target& t) {
  std::string reason = own::refusal_but_bf16(t);
  return reason.empty() ? te::operation_refusal(t) : reason;
}

// The table of a norm.
template <class Op, auto kOwn, auto kTe, auto kCpu, auto kAten, auto kReference>
std::span<const Implementation<Op>> norm_table() {
  static constexpr Implementation<Op> kTable[] = {
      {"own/others_by_te", own_before_te, [] { return kOwn(own::found_kernels(), kTe()); }},
      {"own/others_by_aten", own::refusal_but_bf16,
       [] { return kOwn(own::found_kernels(), kAten()); }},
      {"te", te::operation_refusal, kTe},
      {"cpu/simd", on_cpu, kCpu},
      {"aten", unless_reference, kAten},
      {"reference", serves_all, kReference},
  };
  return kTable;
}

// The table of most operations, of their makers.
template <class Op, auto kCpu, auto kAten, auto kReference>
std::span<const Implementation<Op>> cpu_or_reference() {
  static constexpr Implementation<Op> kTable[] = {
      {"cpu/simd", on_cpu, kCpu},
      {"aten", unless_reference, kAten},
      {"reference", serves_all, kReference},
  };
  return kTable;
}
// The same with Transformer Engine first.
template <class Op, auto kTe, auto kCpu, auto kAten, auto kReference>
std::span<const Implementation<Op>> te_cpu_or_reference() {
  static constexpr Implementation<Op> kTable[] = {
      {"te", te::operation_refusal, kTe},
      {"cpu/simd", on_cpu, kCpu},
      {"aten", unless_reference, kAten},
      {"reference", serves_all, kReference},
  };
  return kTable;
}

}  // namespace

template <>
std::span<const Implementation<Matmul>> implementations<Matmul>() {
  static constexpr Implementation<Matmul> kTable[] = {
      {"cpu/onednn", on_cpu_with_bf16_units, [] { return cpu::make_matmul(GemmOperands::kBf16); }},
      {"cpu/onednn_fp32", on_cpu_with_onednn, [] { return cpu::make_matmul(GemmOperands::kFp32); }},
      {"cpu/blas_fp32", on_cpu_bf16, [] { return cpu::make_matmul(GemmOperands::kFp32Blas); }},
      {"aten/biases_by_te", te::matmul_refusal, te::make_matmul},
      {"aten", unless_reference, aten::make_matmul},
      {"reference", serves_all, reference::make_matmul},
  };
  return kTable;
}

template <>
std::span<const Implementation<Attention>> implementations<Attention>() {
  static constexpr Implementation<Attention> kTable[] = {
      {"cpu/blocks", on_cpu_with_bf16_units,
       [] { return cpu::make_attention(GemmOperands::kBf16); }},
      {"cpu/blocks_fp32", on_cpu_bf16, [] { return cpu::make_attention(GemmOperands::kFp32); }},
      {"aten/cudnn", on_gpu_with_cudnn, aten::make_cudnn_attention},
      {"aten/flash", cpu_or_bf16, aten::make_attention},
      {"reference", serves_all, reference::make_attention},
  };
  return kTable;
}

template <>
std::span<const Implementation<Fp8Linear>> implementations<Fp8Linear>() {
  static constexpr Implementation<Fp8Linear> kTable[] = {
      {"te", te::refusal, te::make_fp8_linear},
      {"cpu/rehearsal_hopper", on_cpu_with_hopper_sums, cpu::make_hopper_rehearsal},
      {"cpu/rehearsal", on_cpu_with_bf16_units,
       [] { return cpu::make_rehearsal(GemmOperands::kBf16); }},
      {"cpu/rehearsal_fp32", on_cpu_bf16, [] { return cpu::make_rehearsal(GemmOperands::kFp32); }},
      {"aten/sm90", on_gpu_with_fp8<90, 90>, [] { return aten::make_scaled_mm(90); }},
      {"aten/sm100", on_gpu_with_fp8<100, 119>, [] { return aten::make_scaled_mm(100); }},
      {"aten/sm89", on_gpu_with_fp8<89, 89>, [] { return aten::make_scaled_mm(89); }},
      {"aten/sm120", on_gpu_with_fp8<120, 999>, [] { return aten::make_scaled_mm(89); }},
      {"aten/rehearsal", bf16_gemms, aten::make_rehearsal},
      {"reference", serves_all, reference::make_fp8_linear},
  };
  return kTable;
}

template <>
std::span<const Implementation<LayerNorm>> implementations<LayerNorm>() {
  return norm_table<LayerNorm, own::make_layer_norm, te::make_layer_norm, cpu::make_layer_norm,
                    aten::make_layer_norm, reference::make_layer_norm>();
}

template <>
std::span<const Implementation<RmsNorm>> implementations<RmsNorm>() {
  return norm_table<RmsNorm, own::make_rms_norm, te::make_rms_norm, cpu::make_rms_norm,
                    aten::make_rms_norm, reference::make_rms_norm>();
}

template <>
std::span<const Implementation<Gelu>> implementations<Gelu>() {
  return te_cpu_or_reference<Gelu, te::make_gelu, cpu::make_gelu, aten::make_gelu,
                             reference::make_gelu>();
}

template <>
std::span<const Implementation<SwiGlu>> implementations<SwiGlu>() {
  return te_cpu_or_reference<SwiGlu, te::make_swiglu, cpu::make_swiglu, aten::make_swiglu,
                             reference::make_swiglu>();
}

template <>
std::span<const Implementation<GeGlu>> implementations<GeGlu>() {
  return cpu_or_reference<GeGlu, cpu::make_geglu, aten::make_geglu, reference::make_geglu>();
}

template <>
std::span<const Implementation<Rope>> implementations<Rope>() {
  static constexpr Implementation<Rope> kTable[] = {
      {"own", own::refusal, [] { return own::make_rope(); }},
      {"te", te::operation_refusal, te::make_rope},
      {"cpu/simd", on_cpu, cpu::make_rope},
      {"aten", unless_reference, aten::make_rope},
      {"reference", serves_all, reference::make_rope},
  };
  return kTable;
}

template <>
std::span<const Implementation<ColumnSum>> implementations<ColumnSum>() {
  return cpu_or_reference<ColumnSum, cpu::make_column_sum, aten::make_column_sum,
                          reference::make_column_sum>();
}

template <>
std::span<const Implementation<CrossEntropy>> implementations<CrossEntropy>() {
  static constexpr Implementation<CrossEntropy> kTable[] = {
      {"own", own::refusal_but_bf16, own::make_cross_entropy},
      {"cpu/simd", on_cpu, cpu::make_cross_entropy},
      {"aten", unless_reference, aten::make_cross_entropy},
      {"reference", serves_all, reference::make_cross_entropy},
  };
  return kTable;
}

template <>
std::span<const Implementation<Embedding>> implementations<Embedding>() {
  return cpu_or_reference<Embedding, cpu::make_embedding, aten::make_embedding,
                          reference::make_embedding>();
}

template <>
std::span<const Implementation<AdamW>> implementations<AdamW>() {
  static constexpr Implementation<AdamW> kTable[] = {
      {"own", own::refusal, own::make_adamw},
      {"cpu/simd", on_cpu, cpu::make_adamw},
      {"aten", unless_reference, aten::make_adamw},
      {"reference", serves_all, reference::make_adamw},
  };
  return kTable;
}

}  // namespace octavo::engine
