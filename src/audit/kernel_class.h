#pragma once
// What a GPU kernel is, from its name: a GEMM in FP8, a cast, a collective. Names come from a trace
// and are untrusted; nothing is guessed that a rule does not say (kernel_rules.h).

#include <string>
#include <string_view>

namespace octavo::audit {

enum class Kind : unsigned char {
  kGemm,
  kGemmHelper,   // sums of split K, epilogues: their time belongs to the GEMMs
  kUnknownGemm,  // named like a GEMM, and no rule knows it: listed, never counted as a precision
  kAttention,
  kQuantize,     // to FP8 or FP4, alone or fused with an activation
  kAmax,         // maxima, and scales from them
  kTranspose,    // of 8-bit data, for GEMMs that take one layout alone
  kScaleLayout,  // swizzles of scale factors, padding
  kDequantize,
  kCollective,
  kMemcpy,
  kMemset,
  kCopy,  // copies and casts between wider types
  kNorm,
  kActivation,
  kRope,
  kSoftmax,  // softmax and cross-entropy outside of attention
  kOptimizer,
  kMoe,  // routing and permutation
  kConvolution,
  kEmbedding,
  kElementwise,
  kReduction,
  kIndexing,  // gather, scatter, sort, top-k
  kOther,
};
inline constexpr size_t kKinds = static_cast<size_t>(Kind::kOther) + 1;

// Of the operands as they are multiplied; the narrowest where they differ.
enum class Precision : unsigned char {
  kNone,     // not a matter of this kernel
  kUnknown,  // not in the name
  kFp64,
  kFp32,
  kTf32,
  kBf16,
  kFp16,
  k16Bit,  // BF16 or FP16: the name does not tell
  kInt8,
  kWeight4Bit,  // 4-bit weights, multiplied in 16 bits
  kFp8,
  kMxfp8,
  kMxfp4,
  kNvfp4,
};
inline constexpr size_t kPrecisions = static_cast<size_t>(Precision::kNvfp4) + 1;

std::string_view name_of(Kind kind);
std::string_view name_of(Precision precision);

// FP8 and below: what the audit asks for.
bool is_low(Precision precision);
struct KernelClass {
  Kind kind = Kind::kOther;
  Precision precision = Precision::kNone;
  bool is_sure = true;
  bool is_fused = false;         // does other work too: SwiGLU and a cast
  std::string_view library;      // "cuBLASLt"; a literal
  std::string_view source = "";  // of the rule: where the name is defined or was seen
  std::string detail;            // "E4M3 x E5M2 -> BF16, one scale per tensor"
};

// Time that is only spent because GEMMs run in FP8 or FP4.
bool is_charged_to_fp8(const KernelClass& kernel);

// `name` as a profiler prints it, demangled by kineto or by Nsight Systems.
KernelClass classify_kernel(std::string_view name);

// Nsight's demangled names in kineto's spelling, as far as rules look at them.
std::string normalized_name(std::string_view name);

}  // namespace octavo::audit
