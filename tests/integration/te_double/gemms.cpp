// The GEMM, by the code that rehearses FP8 on CPUs: so that sums are in the same order and
// results can be compared bit by bit.

#include <transformer_engine/gemm.h>

#include "configs.h"
#include "engine/cpu/cpu.h"
#include "te_double.h"

namespace te_double {
namespace {

octavo::engine::Fp8Linear& rehearsal() {
  static const auto made =
      octavo::engine::cpu::make_rehearsal(octavo::engine::cpu::fastest_operands());
  return *made;
}

// The copy that a GEMM reads: the transposed one where the summed dimension must be contiguous.
Fp8Matrix operand(const Tensor& t, Direction direction) {
  const bool per_tensor = t.mode == NVTE_DELAYED_TENSOR_SCALING;
  const bool column = direction == Direction::kColumn && !(per_tensor && any_layout());
  if (t.is_fp4()) return read_nvfp4(t, column, direction);
  return read_copy(t, column, direction);
}

bool is_column(const Tensor& t) {
  return t.mode == NVTE_MXFP8_1D_SCALING &&
         column_codes().contains(t.of(kNVTERowwiseData).data_ptr);
}
// A column copy that is given as the row copy of the transposed matrix, in blocks of 32.
Fp8Matrix turned(const Tensor& t) {
  const Fp8Matrix given = read_copy(t, false, Direction::kRow);
  Fp8Matrix matrix = given;
  std::swap(matrix.rows, matrix.columns);
  matrix.row = {};
  matrix.column = {.codes = given.row.codes.t().contiguous(),
                   .scales = given.row.scales.view({given.rows, -1}).t().contiguous().view({-1}),
                   .values = {}};
  return matrix;
}

// A GEMM in BF16 with what cuBLASLt does at its end, in FP32: D is op(B) op(A), row by row.
void multiply_plain(bool transa, bool transb, const at::Tensor& a, const at::Tensor& b, bool add,
                    at::Tensor d, const MatmulConfig& options) {
  const auto turned = [](const at::Tensor& t, bool yes) {
    return (yes ? t.t() : t).to(at::kFloat);
  };
  at::Tensor made = at::mm(turned(b, transb), turned(a, transa));
  if (add) made.add_(d);
  if (options.bias != nullptr) made.add_(view(options.bias));
  if (options.gelu) view(options.gelu_input).copy_(made);
  if (options.gelu) made = at::gelu(made, "tanh");
  if (options.gelu_gradient)
    made = at::gelu_backward(made, view(options.gelu_input).to(at::kFloat), "tanh");
  if (options.bias_gradient != nullptr) {
    check(transb, "sums of a bias come with a weight's gradient");
    view(options.bias_gradient).copy_(b.sum(0, /*keepdim=*/false, at::kFloat));
  }
  d.copy_(made);
}

}  // namespace
}  // namespace te_double

extern "C" void nvte_cublas_gemm_v2(int transa, int transb, const float* alpha, const NVTETensor a,
                                    const NVTETensor b, const float* beta, const NVTETensor c,
                                    NVTETensor d, NVTETensor workspace, NVTEMatmulConfig config,
                                    cudaStream_t /*stream*/) {
  using te_double::check;
  using te_double::tensor;
  using te_double::view;
  te_double::count_call("nvte_cublas_gemm_v2");
  check(c == d && *alpha == 1 && (*beta == 0 || *beta == 1), "C must be D, alpha 1, beta 0 or 1");
  check(config != nullptr && workspace != nullptr, "wanted a configuration and a workspace");
  const auto& options = *static_cast<const te_double::MatmulConfig*>(config);
  const auto at = reinterpret_cast<uintptr_t>(view(workspace).const_data_ptr());
  check(at % 256 == 0 && view(workspace).numel() >= (32 << 20),
        "a workspace too small or unaligned");
  if (!tensor(a).is_fp8() && !tensor(a).is_fp4()) {
    te_double::multiply_plain(transa == 1, transb == 1, view(a), view(b), *beta == 1, view(d),
                              options);
    return;
  }
  check(options.bias_gradient == nullptr && options.gelu_input == nullptr,
        "the stand-in has no such ends of an FP8 GEMM");
  // Of blocks of 128 as blocks of 32 all GEMMs are given so.
  const bool left_turned = te_double::is_column(tensor(b)),
             right_turned = te_double::is_column(tensor(a));
  check(!(left_turned || right_turned) || (transa == 1 && transb == 0 && right_turned),
        "blocks of 128 as blocks of 32: wanted row copies");
  const bool forward = transa == 1 && transb == 0 && !right_turned;
  const bool blocks = tensor(b).mode != NVTE_DELAYED_TENSOR_SCALING;
  check(options.split_accumulator == (!forward || blocks), "a wrong accumulator");
  using octavo::fp8::Direction;
  const auto operand = [](NVTETensor t, bool columns) {
    return te_double::operand(tensor(t), columns ? Direction::kColumn : Direction::kRow);
  };
  // The matrix units sum over what both operands have: rows of the stored matrices where they are
  // not transposed for a (or transposed for b), columns otherwise.
  const auto left = left_turned ? te_double::turned(tensor(b)) : operand(b, transb == 1),
             right = right_turned ? te_double::turned(tensor(a)) : operand(a, transa == 0);
  at::Tensor result = view(d);
  auto& gemms = te_double::rehearsal();
  if (forward) {
    // Of a GPU in BF16; the rehearsal's are FP32.
    const at::Tensor bias =
        options.bias != nullptr ? view(options.bias).to(at::kFloat) : at::Tensor();
    check(*beta == 0, "a forward GEMM does not add");
    check(result.size(0) == left.rows && result.size(1) == right.rows, "a wrong result");
    gemms.forward(left, right, bias, result);
  } else if (right_turned ? !left_turned : transa == 0 && transb == 0) {
    check(*beta == 0 && options.bias == nullptr, "an input gradient does not add");
    check(result.size(0) == left.rows && result.size(1) == right.columns, "a wrong result");
    gemms.input_gradient(left, right, result);
  } else {
    check((right_turned || (transa == 0 && transb == 1)) && options.bias == nullptr,
          "no GEMM of a linear layer");
    check(result.size(0) == left.columns && result.size(1) == right.columns, "a wrong result");
    gemms.weight_gradient(
        left, right, result,
        *beta == 1 ? octavo::engine::Accumulate::kAdd : octavo::engine::Accumulate::kOverwrite);
  }
}
