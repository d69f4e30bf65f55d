#pragma once
// What the host's operation says about a GEMM kernel: the shape and the types of its operands.

#include <compare>
#include <cstdint>
#include <string_view>

#include "audit/kernel_class.h"

namespace octavo::audit {

// An M x K matrix times a K x N matrix, `batch` times; 0 where the trace does not say.
struct GemmShape {
  int64_t batch = 0, m = 0, n = 0, k = 0;
  bool is_known() const { return k > 0; }
  auto operator<=>(const GemmShape&) const = default;
};

bool is_gemm_op(std::string_view op);

// `shapes`: "[[8,4],[4,2]]|[\"c10::BFloat16\",…]", as HostOp has it.
GemmShape shape_of_op(std::string_view op, std::string_view shapes);
// kUnknown for operations that are no GEMM and without types.
Precision precision_of_op(std::string_view op, std::string_view shapes);

// The precision by name and by operation together. The operation's types are what the framework
// passed; the name says how FP32 is multiplied and how FP8 is scaled. Where they contradict each
// other `disagree` is set.
Precision agreed_precision(Precision by_name, Precision by_op, bool& disagree);

}  // namespace octavo::audit
