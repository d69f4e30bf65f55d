#include "audit/type_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace octavo::audit {
namespace {

struct TypeName {
  std::string_view text;
  Precision precision;
  std::string_view shown;
  bool is_sure = true;
};

// Of cuBLASLt's nvjet kernels: cutlass, python/cutlass_library/heuristics_provider.py
// (dtype_to_cublas). "o" is not in that map, and always comes with vec16UE4M3.
constexpr TypeName kLetters[] = {
    {"d", Precision::kFp64, "FP64"},         {"s", Precision::kFp32, "FP32"},
    {"h", Precision::kFp16, "FP16"},         {"t", Precision::kBf16, "BF16"},
    {"q", Precision::kFp8, "E4M3"},          {"r", Precision::kFp8, "E5M2"},
    {"i", Precision::kInt8, "INT32"},        {"b", Precision::kInt8, "INT8"},
    {"o", Precision::kNvfp4, "E2M1", false},
};

// Of XMMA and CUTLASS, longest first: "bf16" before "f16".
constexpr TypeName kWords[] = {
    {"ue8m0xe4m3", Precision::kMxfp8, "MXFP8 E4M3"},
    {"ue8m0xe5m2", Precision::kMxfp8, "MXFP8 E5M2"},
    {"ue8m0xe2m1", Precision::kMxfp4, "MXFP4"},
    {"ue4m3xe2m1", Precision::kNvfp4, "NVFP4"},
    {"ue8m0xf8", Precision::kMxfp8, "MXFP8, E4M3 or E5M2 chosen at run time", false},
    {"ue8m0xf4", Precision::kMxfp4, "MXFP4", false},
    {"ue4m3xf4", Precision::kNvfp4, "NVFP4"},
    {"tf32", Precision::kTf32, "TF32"},
    {"e4m3", Precision::kFp8, "E4M3"},
    {"e5m2", Precision::kFp8, "E5M2"},
    {"bf16", Precision::kBf16, "BF16"},
    {"fp16", Precision::kFp16, "FP16"},
    {"f16", Precision::kFp16, "FP16"},
    {"f32", Precision::kFp32, "FP32"},
    {"f64", Precision::kFp64, "FP64"},
    {"i32", Precision::kInt8, "INT32"},
    {"s32", Precision::kInt8, "INT32"},
    {"f8", Precision::kFp8, "FP8, E4M3 or E5M2 chosen at run time", false},
    {"i8", Precision::kInt8, "INT8"},
    {"s8", Precision::kInt8, "INT8"},
    {"u8", Precision::kInt8, "UINT8"},
};

const TypeName* type_at(std::string_view text) {
  const auto* found = std::ranges::find_if(
      kWords, [&](const TypeName& type) { return text.starts_with(type.text); });
  return found == std::end(kWords) ? nullptr : found;
}

const TypeName* whole_type(std::string_view token) {
  const TypeName* type = type_at(token);
  return type != nullptr && type->text == token ? type : nullptr;
}

// "e4m3e5m2bf16": the types that stand behind each other; empty when something else does.
std::vector<const TypeName*> types_in(std::string_view token) {
  std::vector<const TypeName*> types;
  while (!token.empty()) {
    const TypeName* type = type_at(token);
    if (type == nullptr) return {};
    types.push_back(type);
    token.remove_prefix(type->text.size());
  }
  return types;
}

// The part of a name from `mark` on, up to the end of its word.
std::string_view word_from(std::string_view name, std::string_view mark) {
  const size_t begin = name.find(mark);
  if (begin == name.npos) return {};
  const std::string_view rest = name.substr(begin);
  return rest.substr(0, rest.find_first_of("<>(), "));
}

// The narrower of two operands names a mixed GEMM.
Precision narrower(Precision a, Precision b) {
  return std::max(a, b);  // in the order of the enumeration
}

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != name.npos;
}

std::string_view nvjet_scales(std::string_view name, Precision& precision) {
  if (has(name, "vec32UE8M0")) {
    precision = precision == Precision::kNvfp4 ? Precision::kMxfp4 : Precision::kMxfp8;
    return "a scale per 32";
  }
  if (has(name, "vec16UE4M3")) {
    precision = Precision::kNvfp4;
    return "a scale per 16";
  }
  if (has(name, "blk128") || has(name, "vec128")) return "scales of 128 blocks";
  if (has(name, "_ovscale")) return "a scale per row";
  return "one scale per tensor";
}

}  // namespace

Operands nvjet_operands(std::string_view name) {
  const std::string_view word = word_from(name, "nvjet_");
  std::vector<std::string> tokens = split(word, '_');
  size_t at = 1;
  if (at < tokens.size() && tokens[at].starts_with("sm")) ++at;
  const std::string letters = at < tokens.size() ? tokens[at] : "";
  std::vector<const TypeName*> types;
  for (const char letter : letters)
    for (const TypeName& type : kLetters)
      if (type.text[0] == letter) types.push_back(&type);
  Operands found;
  if (types.size() != letters.size() || (types.size() != 3 && types.size() != 5)) {
    // Letters that are cut off or new. Block scales of 128 are FP8's alone.
    if (has(name, "blk128") || has(name, "vec128")) found.precision = Precision::kFp8;
    if (has(name, "vec32UE8M0")) found.precision = Precision::kMxfp8;
    if (has(name, "vec16UE4M3")) found.precision = Precision::kNvfp4;
    found.is_sure = false;
    found.detail = "type letters '" + letters.substr(0, 12) + "' are not known";
    return found;
  }
  const TypeName &a = *types[0], &b = *(types.size() == 5 ? types[1] : types[0]);
  found.precision = narrower(a.precision, b.precision);
  found.is_sure = a.is_sure || has(name, "vec16UE4M3");
  found.detail = str(a.shown, " x ", b.shown, " -> ", types.back()->shown);
  if (found.precision == Precision::kFp32) {
    found.is_sure = has(word, "_tf32");  // nvjet_sss without it was never seen
    if (found.is_sure) found.precision = Precision::kTf32;
  }
  if (is_low(found.precision)) {
    const std::string_view scales = nvjet_scales(name, found.precision);
    found.detail += str(", ", scales);
  }
  return found;
}

Operands xmma_operands(std::string_view name) {
  const std::string_view word = word_from(name, "xmma_");
  std::vector<const TypeName*> outer, math;
  for (const std::string& token : split(word, '_')) {
    const std::vector<const TypeName*> types = types_in(token);
    if (types.empty()) continue;
    if (outer.empty()) {
      outer = types;
      continue;
    }
    math = types;  // the second group: how it multiplies, and the accumulator
    break;
  }
  Operands found;
  if (math.empty()) return found;
  const TypeName& a = *math.front();
  const TypeName& b = *(math.size() > 2 ? math[1] : math[0]);
  found.precision = narrower(a.precision, b.precision);
  found.detail = str(a.shown, " x ", b.shown, " -> ", outer.back()->shown);
  return found;
}

Operands cutlass2_operands(std::string_view name) {
  // {D}_{accumulator}{instruction}[{math}]gemm_{epilogue}_{in}: the token with the instruction,
  // and the first type behind it.
  Operands found;
  std::string_view rest = name;
  for (const std::string_view family : {"cutlass_", "ampere_", "volta_", "turing_", "maxwell_"})
    if (const std::string_view word = word_from(name, family); !word.empty()) {
      // "cutlass::Kernel2<cutlass_80_…" and cutlass_cudnn_infer::Kernel<cutlass_tensorop_…
      rest = name.substr(static_cast<size_t>(word.data() - name.data()));
      if (const size_t inner = rest.find("<cutlass_"); inner != rest.npos)
        rest = rest.substr(inner + 1);
      rest = rest.substr(0, rest.find_first_of("<>(), "));
      break;
    }
  std::string op;
  const TypeName* in = nullptr;
  for (const std::string& token : split(rest, '_')) {
    if (op.empty()) {
      for (const std::string_view what : {"gemm", "fprop", "dgrad", "wgrad"})
        if (op.empty() && token.ends_with(what)) op = token.substr(0, token.size() - what.size());
    } else if (in == nullptr) {
      in = whole_type(token);
    }
  }
  if (op.empty()) return found;
  const size_t digits = op.find_first_of("0123456789");
  const std::string instruction = digits == op.npos ? "" : op.substr(digits);
  const size_t math_at = instruction.find_first_not_of("0123456789");
  if (math_at != instruction.npos && type_at(instruction.substr(math_at)) != nullptr) {
    in = type_at(instruction.substr(math_at));  // s1688bf16gemm: FP32 in, BF16 math
    found.is_sure = in->precision == Precision::kTf32;
  }
  if (in != nullptr) {
    found.precision = in->precision;
    found.detail = str(in->shown, op[0] == 'h' ? ", accumulated in FP16" : "");
  } else if (op[0] == 'h') {
    found.precision = Precision::kFp16;
    found.detail = "FP16, accumulated in FP16";
  } else if (op[0] == 'd') {
    found.precision = Precision::kFp64;
  } else if (op[0] == 'i') {
    found.precision = Precision::kInt8;
  } else if (op[0] == 's' && instruction.empty()) {
    found.precision = Precision::kFp32;
    found.detail = "FP32 without tensor cores";
  } else if (op[0] == 's' && instruction.starts_with("1688")) {
    found.precision = Precision::kTf32;  // FP32 in and no other type named: inferred
    found.is_sure = false;
  }
  return found;
}

Operands cutlass3_operands(std::string_view name) {
  Operands found;
  std::vector<const TypeName*> types;
  bool behind = false, is_tf32 = false;
  for (const std::string& token : split(word_from(name, "cutlass3x_"), '_')) {
    if (!behind) {
      behind = token.ends_with("gemm");
      is_tf32 = behind && token.ends_with("tf32gemm");
    } else if (const TypeName* type = whole_type(token)) {
      types.push_back(type);
    }
  }
  if (is_tf32) return {.precision = Precision::kTf32, .is_sure = true, .detail = "TF32"};
  if (types.size() < 2) return found;
  found.precision = narrower(types[0]->precision, types[1]->precision);
  found.is_sure = types[0]->is_sure && types[1]->is_sure;
  found.detail = str(types[0]->shown, " x ", types[1]->shown, " -> ", types.back()->shown);
  return found;
}

Operands template_operands(std::string_view name) {
  const bool fp4 = has(name, "float_e2m1_t"), e8m0 = has(name, "float_ue8m0_t");
  if (fp4 && has(name, "float_ue4m3_t"))
    return {.precision = Precision::kNvfp4, .is_sure = true, .detail = "E2M1, a scale per 16"};
  if (fp4)
    return {.precision = Precision::kMxfp4, .is_sure = e8m0, .detail = "E2M1, a scale per 32"};
  struct Mark {
    std::string_view text;
    Precision precision;
    std::string_view detail;
  };
  constexpr Mark kMarks[] = {
      {"float_e4m3_t", Precision::kFp8, "E4M3"},      {"float_e5m2_t", Precision::kFp8, "E5M2"},
      {"WarpSpecializedFP8", Precision::kFp8, "FP8"}, {"__nv_fp8_e4m3", Precision::kFp8, "E4M3"},
      {"__nv_fp8_e5m2", Precision::kFp8, "E5M2"},     {"Float8_e4m3fn", Precision::kFp8, "E4M3"},
      {"Float8_e5m2", Precision::kFp8, "E5M2"},       {"tfloat32_t", Precision::kTf32, "TF32"},
      {"bfloat16", Precision::kBf16, "BF16"},         {"BFloat16", Precision::kBf16, "BF16"},
      {"half_t", Precision::kFp16, "FP16"},           {"__half", Precision::kFp16, "FP16"},
      {"c10::Half", Precision::kFp16, "FP16"},        {"tensorptrbf16", Precision::kBf16, "BF16"},
      {"tensorptrf16", Precision::kFp16, "FP16"},
  };
  for (const Mark& mark : kMarks)
    if (has(name, mark.text)) {
      const bool is_mx = mark.precision == Precision::kFp8 && e8m0;
      return {.precision = is_mx ? Precision::kMxfp8 : mark.precision,
              .is_sure = true,
              .detail = str(mark.detail, is_mx ? ", a scale per 32" : "")};
    }
  return {};
}

Operands first_type_operands(std::string_view name) {
  const size_t open = name.find('<');
  if (open == name.npos) return {};
  for (const std::string& argument : split(name.substr(open + 1, 400), ',')) {
    const std::string_view type = trim(argument);
    if (type.starts_with("float"))
      return {.precision = Precision::kFp32, .is_sure = true, .detail = "FP32"};
    if (type.starts_with("double"))
      return {.precision = Precision::kFp64, .is_sure = true, .detail = "FP64"};
    if (type.starts_with("__nv_bfloat16") || type.starts_with("c10::BFloat16"))
      return {.precision = Precision::kBf16, .is_sure = true, .detail = "BF16"};
    if (type.starts_with("__half") || type.starts_with("c10::Half"))
      return {.precision = Precision::kFp16, .is_sure = true, .detail = "FP16"};
  }
  return {};
}

Operands trtllm_operands(std::string_view name) {
  // bmm_{D}_{A}{B}_{accumulator}_…
  const std::vector<std::string> tokens = split(word_from(name, "bmm_"), '_');
  if (tokens.size() < 3) return {};
  const std::string& ab = tokens[2];
  Operands found;
  found.detail = str(ab, " -> ", tokens[1]);
  if (has(ab, "MxE2m1"))
    found.precision = Precision::kMxfp4;
  else if (has(ab, "E2m1"))
    found.precision = Precision::kNvfp4;
  else if (has(ab, "MxE4m3"))
    found.precision = Precision::kMxfp8;
  else if (has(ab, "E4m3") || has(ab, "E5m2"))
    found.precision = Precision::kFp8;
  else if (has(ab, "Bfloat16"))
    found.precision = Precision::kBf16;
  else if (has(ab, "Fp16"))
    found.precision = Precision::kFp16;
  return found;
}

Operands cudnn_operands(std::string_view name) {
  for (const std::string& token : split(name, '_')) {
    if (token == "mxfp8") return {.precision = Precision::kMxfp8, .is_sure = true, .detail = ""};
    if (token == "f8") return {.precision = Precision::kFp8, .is_sure = true, .detail = ""};
    if (token == "bf16") return {.precision = Precision::kBf16, .is_sure = true, .detail = ""};
    if (token == "f16")
      return {.precision = Precision::k16Bit, .is_sure = true, .detail = "BF16 or FP16"};
  }
  return {};
}

Operands short_type_operands(std::string_view name) {
  struct Mark {
    std::string_view text;
    Precision precision;
    std::string_view detail;
  };
  constexpr Mark kMarks[] = {
      {"f8e4m3", Precision::kFp8, "E4M3"},    {"f8e5m2", Precision::kFp8, "E5M2"},
      {"QkvE4m3", Precision::kFp8, "E4M3"},   {"QkvBfloat16", Precision::kBf16, "BF16"},
      {"QkvFp16", Precision::kFp16, "FP16"},  {"_bf16", Precision::kBf16, "BF16"},
      {"BFloat16", Precision::kBf16, "BF16"}, {"_fp16", Precision::kFp16, "FP16"},
      {"_f16", Precision::kFp16, "FP16"},     {"_half", Precision::kFp16, "FP16"},
      {"_f32", Precision::kFp32, "FP32"},     {"_float", Precision::kFp32, "FP32"},
      {"_int8_t", Precision::kNone, "bytes"}, {"_i8", Precision::kNone, "bytes"},
  };
  for (const Mark& mark : kMarks)
    if (has(name, mark.text))
      return {.precision = mark.precision, .is_sure = true, .detail = std::string(mark.detail)};
  return {};
}

}  // namespace octavo::audit
