#include <ATen/ATen.h>

#include <array>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

namespace {

struct DtypeName {
  std::string_view name;
  at::ScalarType dtype;
};

constexpr std::array kDtypes = {
    DtypeName{"F64", at::kDouble},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F16", at::kHalf},
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"I64", at::kLong},
    DtypeName{"I32", at::kInt},
    DtypeName{"I16", at::kShort},
    DtypeName{"I8", at::kChar},
    DtypeName{"U64", at::kUInt64},
    DtypeName{"U32", at::kUInt32},
    DtypeName{"U16", at::kUInt16},
    DtypeName{"U8", at::kByte},
    DtypeName{"BOOL", at::kBool},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
    DtypeName{"F8_E5M2", at::kFloat8_e5m2},
    DtypeName{"F8_E8M0", at::kFloat8_e8m0fnu},
};

}  // namespace

std::string_view safetensors_dtype_name(at::ScalarType dtype) {
  for (const auto& entry : kDtypes)
    if (entry.dtype == dtype) return entry.name;
  return "";
}

std::optional<at::ScalarType> safetensors_dtype(std::string_view name) {
  for (const auto& entry : kDtypes)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

std::string tensor_name_problem(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name.size() > kMaxTensorName)
    return str("it has ", name.size(), " bytes, at most ", kMaxTensorName, " are allowed");
  if (name == "__metadata__") return "the format reserves it";
  for (size_t i = 0; i < name.size(); ++i) {
    auto c = static_cast<unsigned char>(name[i]);
    // Control characters, also those that UTF-8 writes as C2 80 to C2 9F: names reach terminals.
    bool c1 = c == 0xC2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xA0;
    if (c < 0x20 || c == 0x7F || c1) return str("it has a control character at byte ", i);
  }
  return "";
}

std::string quote_name(std::string_view text) {
  constexpr size_t kShown = 100;
  bool cut = text.size() > kShown;
  std::string shown = Json(std::string(text.substr(0, kShown)))
                          .dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return cut ? shown + "…" : shown;
}

}  // namespace octavo::checkpoint
