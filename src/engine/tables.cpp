// The ordered tables: first the fastest, last the reference.

#include "engine/aten/aten.h"
#include "engine/cpu/cpu.h"
#include "engine/op_table.h"
#include "engine/reference/reference.h"

namespace octavo::engine {
namespace {

std::string serves_all(const Target&) {
  return {};
}

std::string unless_reference(const Target& t) {
  return t.reference_only ? "only the reference was asked for" : std::string();
}

std::string on_cpu(const Target& t) {
  if (!t.device.is_cpu()) return "runs on CPUs only";
  return unless_reference(t);
}

std::string on_cpu_bf16(const Target& t) {
  if (t.compute != at::kBFloat16) return "multiplies BF16 only";
  return on_cpu(t);
}

}  // namespace

template <>
std::span<const Implementation<Matmul>> implementations<Matmul>() {
  static constexpr Implementation<Matmul> kTable[] = {
      {"cpu/onednn", on_cpu_bf16, cpu::make_onednn_matmul},
      {"aten", unless_reference, aten::make_matmul},
      {"reference", serves_all, reference::make_matmul},
  };
  return kTable;
}

template <>
std::span<const Implementation<Attention>> implementations<Attention>() {
  static constexpr Implementation<Attention> kTable[] = {
      {"cpu/blocks", on_cpu_bf16, cpu::make_attention},
      {"aten/flash", on_cpu, aten::make_attention},
      {"reference", serves_all, reference::make_attention},
  };
  return kTable;
}

template <>
std::span<const Implementation<Fp8Linear>> implementations<Fp8Linear>() {
  static constexpr Implementation<Fp8Linear> kTable[] = {
      {"cpu/rehearsal", on_cpu_bf16, cpu::make_rehearsal},
      {"reference", serves_all, reference::make_fp8_linear},
  };
  return kTable;
}

#define OCTAVO_CPU_OR_REFERENCE(Op, make)                     \
  template <>                                                 \
  std::span<const Implementation<Op>> implementations<Op>() { \
    static constexpr Implementation<Op> kTable[] = {          \
        {"cpu/simd", on_cpu, cpu::make},                      \
        {"reference", serves_all, reference::make},           \
    };                                                        \
    return kTable;                                            \
  }

OCTAVO_CPU_OR_REFERENCE(LayerNorm, make_layer_norm)
OCTAVO_CPU_OR_REFERENCE(RmsNorm, make_rms_norm)
OCTAVO_CPU_OR_REFERENCE(Gelu, make_gelu)
OCTAVO_CPU_OR_REFERENCE(SwiGlu, make_swiglu)
OCTAVO_CPU_OR_REFERENCE(Rope, make_rope)
OCTAVO_CPU_OR_REFERENCE(ColumnSum, make_column_sum)
OCTAVO_CPU_OR_REFERENCE(CrossEntropy, make_cross_entropy)
OCTAVO_CPU_OR_REFERENCE(Embedding, make_embedding)
OCTAVO_CPU_OR_REFERENCE(AdamW, make_adamw)

#undef OCTAVO_CPU_OR_REFERENCE

}  // namespace octavo::engine
