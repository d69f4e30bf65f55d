#pragma once
// The instruction set of our own kernels. OCTAVO_CPU_ISA keeps them below what the CPU has, so that
// a test on one machine is a test of another; ONEDNN_MAX_CPU_ISA does that for oneDNN.

#include <string>
#include <string_view>

namespace octavo::engine::cpu {

// Reads OCTAVO_CPU_ISA, once; the engine's tables call it before they make a kernel.
void limit_instruction_set();
// To what CPUs of this kind have: SSE41, AVX2, AVX512_CORE or AVX512_CORE_BF16; others are refused.
void limit_instruction_set_to(std::string_view name);

// What our kernels use, by Highway's name: "AVX3" (AVX-512), "AVX2"; "EMU128" or "SSE2" on
// older CPUs, for which the build has the baseline alone.
std::string kernel_instruction_set();

}  // namespace octavo::engine::cpu
