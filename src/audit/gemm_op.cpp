#include "audit/gemm_op.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

namespace octavo::audit {
namespace {

struct GemmOp {
  std::string_view name;
  size_t first;             // of its two operands among the inputs
  bool is_transposed;       // the second operand is N x K
  bool is_grouped = false;  // groups share out the rows, or columns, of a matrix beside a stack
};
constexpr GemmOp kOps[] = {
    {"aten::mm", 0, false},
    {"aten::addmm", 1, false},
    {"aten::_addmm_activation", 1, false},
    {"aten::bmm", 0, false},
    {"aten::baddbmm", 1, false},
    {"aten::matmul", 0, false},
    {"aten::linear", 0, true},
    {"aten::_scaled_mm", 0, false},
    {"aten::_scaled_mm_v2", 0, false},
    {"aten::_scaled_grouped_mm", 0, false, true},
    {"aten::_grouped_mm", 0, false, true},
    {"aten::_int_mm", 0, false},
    {"aten::addmv", 1, false},
    {"aten::mv", 0, false},
};

const GemmOp* op_named(std::string_view name) {
  const auto* found = std::ranges::find(kOps, name, &GemmOp::name);
  return found == std::end(kOps) ? nullptr : found;
}

using Sizes = std::vector<int64_t>;

// "[[8,4],[4,2],[]]": the lists inside; what is nested deeper counts as one without sizes.
std::vector<Sizes> parse_sizes(std::string_view text) {
  std::vector<Sizes> lists;
  int depth = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '[') {
      if (++depth == 2) lists.emplace_back();
      ++i;
    } else if (c == ']') {
      --depth;
      ++i;
    } else if (depth == 2 && c >= '0' && c <= '9') {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), value);
      if (error != std::errc{} || value >= int64_t{1} << 40) return {};
      lists.back().push_back(value);
      i = static_cast<size_t>(end - text.data());
    } else {
      ++i;
    }
    if (lists.size() > 64) return {};
  }
  return lists;
}

// "[\"c10::BFloat16\",\"Scalar\"]"
std::vector<std::string_view> parse_types(std::string_view text) {
  std::vector<std::string_view> types;
  for (size_t at = text.find('"'); at != text.npos; at = text.find('"', at)) {
    const size_t end = text.find('"', at + 1);
    if (end == text.npos) break;
    types.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return types;
}

Precision precision_of_type(std::string_view type) {
  constexpr std::pair<std::string_view, Precision> kTypes[] = {
      {"c10::Float4_e2m1fn_x2", Precision::kNvfp4},
      {"c10::Float8_e4m3", Precision::kFp8},
      {"c10::Float8_e5m2", Precision::kFp8},
      {"c10::BFloat16", Precision::kBf16},
      {"c10::Half", Precision::kFp16},
      {"float", Precision::kFp32},
      {"double", Precision::kFp64},
      {"signed char", Precision::kInt8}};
  for (const auto& [name, precision] : kTypes)
    if (type.starts_with(name)) return precision;
  return Precision::kUnknown;
}

int64_t product_without_last(const Sizes& sizes) {
  int64_t product = 1;
  for (size_t i = 0; i + 1 < sizes.size(); ++i)
    if (__builtin_mul_overflow(product, sizes[i], &product)) return 0;
  return product;
}

}  // namespace

bool is_gemm_op(std::string_view op) {
  return op_named(op) != nullptr;
}

GemmShape shape_of_op(std::string_view op, std::string_view shapes) {
  const GemmOp* known = op_named(op);
  if (known == nullptr) return {};
  const std::vector<Sizes> sizes = parse_sizes(shapes.substr(0, shapes.find('|')));
  if (sizes.size() < known->first + 2) return {};
  const Sizes &a = sizes[known->first], &b = sizes[known->first + 1];
  if (a.size() < 2 || b.empty()) return {};
  GemmShape shape{.batch = 1, .m = a[a.size() - 2], .n = 1, .k = a.back()};
  if (known->is_transposed || (b.size() == 2 && !known->is_grouped))
    shape.m = product_without_last(a);
  if (b.size() >= 2) shape.n = known->is_transposed ? b[b.size() - 2] : b.back();
  if (b.size() == 3 && (a.size() == 3 || !known->is_grouped)) shape.batch = b[0];
  return shape;
}

Precision precision_of_op(std::string_view op, std::string_view shapes) {
  const GemmOp* known = op_named(op);
  const size_t bar = shapes.find('|');
  if (known == nullptr || bar == shapes.npos) return Precision::kUnknown;
  const std::vector<std::string_view> types = parse_types(shapes.substr(bar + 1));
  if (types.size() < known->first + 2) return Precision::kUnknown;
  const Precision a = precision_of_type(types[known->first]);
  const Precision b = precision_of_type(types[known->first + 1]);
  if (a == Precision::kUnknown || b == Precision::kUnknown) return Precision::kUnknown;
  Precision both = std::max(a, b);
  const bool e8m0 = std::ranges::any_of(
      types, [](std::string_view type) { return type.starts_with("c10::Float8_e8m0"); });
  if (e8m0 && both == Precision::kFp8) both = Precision::kMxfp8;
  if (e8m0 && both == Precision::kNvfp4) both = Precision::kMxfp4;
  return both;
}

Precision agreed_precision(Precision by_name, Precision by_op, bool& disagree) {
  disagree = false;
  if (by_op == Precision::kUnknown || by_op == by_name) return by_name;
  if (by_name == Precision::kUnknown || by_name == Precision::kNone) return by_op;
  const bool is_16_bit = by_op == Precision::kBf16 || by_op == Precision::kFp16;
  if (by_name == Precision::k16Bit && is_16_bit) return by_op;
  if (is_low(by_name) && is_low(by_op)) {
    // One of them tells the scaling: the other says FP8 of all of them.
    return by_op == Precision::kFp8 ? by_name : by_op;
  }
  if (by_op == Precision::kFp32 && by_name == Precision::kTf32) return by_name;
  disagree = true;
  return by_op == Precision::kFp32 ? by_name : by_op;  // FP32 in may be multiplied as BF16
}

}  // namespace octavo::audit
