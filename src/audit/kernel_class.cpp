#include "audit/kernel_class.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "audit/kernel_rules.h"
#include "audit/type_names.h"
#include "base/text.h"

namespace octavo::audit {
namespace {

constexpr std::array<std::string_view, kKinds> kKindNames = {
    "gemm",      "gemm helper",   "unknown gemm", "attention",  "quantize",
    "amax",      "fp8 transpose", "fp8 layout",   "dequantize", "collective",
    "memcpy",    "memset",        "copy",         "norm",       "activation",
    "rope",      "softmax",       "optimizer",    "moe",        "convolution",
    "embedding", "elementwise",   "reduction",    "indexing",   "other"};
constexpr std::array<std::string_view, kPrecisions> kPrecisionNames = {
    "-",      "unknown", "FP64",         "FP32", "TF32",  "BF16",  "FP16",
    "16-bit", "INT8",    "4-bit weight", "FP8",  "MXFP8", "MXFP4", "NVFP4"};

// Rules are written in kineto's spelling: nsys says (int)4 for 4, <unnamed> for (anonymous
// namespace).
constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
    {"(unsigned long)", ""},
    {"(unsigned int)", ""},
    {"(int)", ""},
    {"(bool)", ""},
    {"<unnamed>", "(anonymous namespace)"},
};
constexpr size_t kMostName = 16 << 10;  // of a name; what lies beyond are more template arguments

// Words of GEMMs, in what is left of a name without its arguments.
bool looks_like_gemm(std::string_view name) {
  std::string low(name.substr(0, 200));
  std::ranges::transform(low, low.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::string_view kGemmWords[] = {"gemm", "matmul", "_mm_", "bmm_", "_dot_scaled"};
  return std::ranges::any_of(kGemmWords,
                             [&](std::string_view word) { return low.find(word) != low.npos; });
}

Operands operands_of(TypesFrom from, std::string_view name) {
  switch (from) {
    case TypesFrom::kNvjet:
      return nvjet_operands(name);
    case TypesFrom::kXmma:
      return xmma_operands(name);
    case TypesFrom::kCutlass2:
      return cutlass2_operands(name);
    case TypesFrom::kCutlass3:
      return cutlass3_operands(name);
    case TypesFrom::kTemplate:
      return template_operands(name);
    case TypesFrom::kFirstType:
      return first_type_operands(name);
    case TypesFrom::kTrtllm:
      return trtllm_operands(name);
    case TypesFrom::kCudnn:
      return cudnn_operands(name);
    case TypesFrom::kShortType:
      return short_type_operands(name);
    case TypesFrom::kRule:
      break;
  }
  return {};
}

}  // namespace

std::string_view name_of(Kind kind) {
  return kKindNames.at(static_cast<size_t>(kind));
}

std::string_view name_of(Precision precision) {
  return kPrecisionNames.at(static_cast<size_t>(precision));
}

bool is_low(Precision precision) {
  return precision == Precision::kFp8 || precision == Precision::kMxfp8 ||
         precision == Precision::kMxfp4 || precision == Precision::kNvfp4;
}

bool is_charged_to_fp8(const KernelClass& kernel) {
  const Kind kind = kernel.kind;
  if (kernel.precision == Precision::kInt8 || kernel.precision == Precision::kWeight4Bit)
    return false;
  return kind == Kind::kQuantize || kind == Kind::kAmax || kind == Kind::kTranspose ||
         kind == Kind::kScaleLayout || kind == Kind::kDequantize;
}

std::string normalized_name(std::string_view name) {
  name = name.substr(0, kMostName);
  if (name.starts_with("void ")) name.remove_prefix(5);
  std::string out;
  out.reserve(name.size());
  for (size_t i = 0; i < name.size();) {
    const std::string_view rest = name.substr(i);
    const auto* found = std::ranges::find_if(
        kSpellings, [&](const auto& spelling) { return rest.starts_with(spelling.first); });
    if (found == std::end(kSpellings)) {
      out += name[i++];
    } else {
      out += found->second;
      i += found->first.size();
    }
  }
  return out;
}

KernelClass classify_kernel(std::string_view name) {
  const std::string plain = normalized_name(name);
  KernelClass found;
  for (const KernelRule& rule : kernel_rules()) {
    if (!glob_match(rule.pattern, plain)) continue;
    found = {.kind = rule.kind,
             .precision = rule.precision,
             .is_sure = rule.is_sure,
             .is_fused = rule.is_fused,
             .library = rule.library,
             .source = rule.source,
             .detail = std::string(rule.detail)};
    if (rule.types == TypesFrom::kRule) return found;
    Operands operands = operands_of(rule.types, plain);
    found.precision = operands.precision;
    found.is_sure = found.is_sure && operands.is_sure;
    if (!operands.detail.empty()) found.detail = std::move(operands.detail);
    return found;
  }
  const std::string_view bare = std::string_view(plain).substr(0, plain.find_first_of("<("));
  if (looks_like_gemm(bare))
    found = {.kind = Kind::kUnknownGemm, .precision = Precision::kUnknown, .is_sure = false};
  else
    found.is_sure = false;
  return found;
}

}  // namespace octavo::audit
