// The library's interface is column-major, as BLAS is. With row-major matrices it reads as
//
//                     a, transposed   b, transposed   d           copies
//   forward           w, yes          x, no           y [T,O]     w.row, x.row
//   input gradient    w, no           dy, no          dx [T,I]    w.column, dy.row
//   weight gradient   x, no           dy, yes         dw [O,I]    x.column, dy.column
//
// Blocks of 128 on devices that multiply them as blocks of 32: a transposed, b not, always.

#include "engine/te/linear_gemms.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Granularity;

// What Transformer Engine's own layers give cuBLASLt on compute capability 9.0 and above.
constexpr int64_t kWorkspaceBytes = (int64_t{32} << 20) + 1024, kWorkspaceAlignment = 256;

struct ExpectedShape {
  int64_t rows, columns;
};

// The library does not look at the result's shape: a wrong one would be written past its end.
void check_result(const char* name, const Tensor& d, const ExpectedShape& wanted, bool forward) {
  const bool typed = d.defined() && (d.scalar_type() == at::kBFloat16 ||
                                     (!forward && d.scalar_type() == at::kFloat));
  if (typed && d.dim() == 2 && d.size(0) == wanted.rows && d.size(1) == wanted.columns &&
      d.is_contiguous() && reinterpret_cast<uintptr_t>(d.const_data_ptr()) % 16 == 0)
    return;
  fail(ExitCode::kEnvironment, "te", name, ": wanted a contiguous, 16-byte aligned result ",
       wanted.rows, " x ", wanted.columns, forward ? " of BF16" : " of BF16 or FP32", ", found ",
       d.defined() ? octavo::str(at::toString(d.scalar_type()), " of shape ", d.sizes())
                   : std::string("none"));
}

// Rules of the matrix units and of cuBLASLt, for dimensions that the caller chose. Those of m and n
// are as Transformer Engine checks them; the others are checked nowhere or only inside cuBLASLt.
void check_sides(const char* name, Granularity granularity, const ExpectedShape& d, int64_t summed,
                 const DeviceFacts& facts) {
  const auto want = [&](bool met, const char* rule) {
    if (!met)
      fail(ExitCode::kEnvironment, "te", name, ": wanted ", rule, ", found a GEMM of ", d.rows,
           " x ", d.columns, " over ", summed, " on compute capability ", facts.capability / 10,
           ".", facts.capability % 10);
  };
  want(summed > 0, "a sum over something");
  switch (granularity) {
    case Granularity::kTensor:
      want(summed % 16 == 0 && d.columns % 16 == 0,
           "a sum and columns that are multiples of 16 for one scale per tensor");
      break;
    case Granularity::kBlock128:
    case Granularity::kSquare128:
      want(facts.capability >= 90 && facts.capability < 120,
           "compute capability 9.0 to 11.x for blocks of 128");
      want(summed % 16 == 0 && d.columns % 8 == 0 && d.rows % 8 == 0,
           "a sum that is a multiple of 16, rows and columns of 8 for blocks of 128");
      break;
    case Granularity::kBlock32:
      want(facts.capability >= 100 && facts.capability < 120,
           "compute capability 10.x or 11.x for blocks of 32");
      want(summed % 32 == 0 && d.columns % 16 == 0,
           "a sum that is a multiple of 32 and columns of 16 for blocks of 32");
      break;
    case Granularity::kBlock16:
    case Granularity::kSquare16:
      want(fp8::traits_of(fp8::recipe_with(granularity)).native.has(facts.capability),
           "compute capability 10.0 or 10.3 for blocks of 16");
      want(summed % 32 == 0 && d.columns % 8 == 0,
           "a sum that is a multiple of 32 and columns of 8 for blocks of 16");
      break;
    case Granularity::kVector:
      want(false, "a recipe that Transformer Engine has, which one scale per row is not");
  }
}

void check_formats(const char* name, const fp8::Side& a, const fp8::Side& b) {
  if (a.format == fp8::Format::kE5M2 && b.format == fp8::Format::kE5M2)
    fail(ExitCode::kEnvironment, "te", name,
         ": wanted at most one operand in E5M2, found two: the hardware has no such GEMM");
  if (a.granularity == Granularity::kSquare128 && b.granularity == Granularity::kSquare128)
    fail(ExitCode::kEnvironment, "te", name,
         ": wanted at most one operand in blocks of 128 x 128, found two");
}

// A copy as a GEMM reads it, and the scales that were made for this GEMM alone.
struct Operand {
  Handle handle;
  Tensor scales;
};

bool is_of_128(const fp8::Side& side) {
  return side.granularity == Granularity::kBlock128 || side.granularity == Granularity::kSquare128;
}

// A copy in blocks of 128 as one in blocks of 32: the same codes, and each scale, a power of two,
// four times. Codes lie with the sum along their rows, whichever copy it is, and so both operands
// are row copies.
Operand as_blocks_of_32(const Fp8Copy& copy, const fp8::Side& side, const Layout& layout,
                        const OnDevice& on) {
  Handle of_128(layout.mode);
  describe_copy(of_128, copy, side, layout, {kNVTERowwiseData, kNVTERowwiseScaleInv});
  const fp8::Side of_32{side.format, Granularity::kBlock32};
  const Layout wanted =
      layout_of(of_32, Direction::kRow, copy.codes.size(0), copy.codes.size(1), on.facts);
  Operand made{Handle(wanted.mode), at::empty(wanted.scales, copy.codes.options())};
  describe_copy(made.handle, {.codes = copy.codes, .scales = made.scales, .values = {}}, of_32,
                wanted, {kNVTERowwiseData, kNVTERowwiseScaleInv});
  made.handle.set_swizzled();
  library().nvte_swizzle_block_scaling_to_mxfp8_scaling_factors(of_128, made.handle, on.stream);
  return made;
}

Operand operand(const char* name, const Fp8Matrix& matrix, Direction direction,
                const OnDevice& on) {
  const Fp8Copy& copy = matrix.copy(direction);
  const fp8::Side& side = matrix.side(direction);
  if (!copy.codes.defined() || copy.codes.device() != on.device ||
      reinterpret_cast<uintptr_t>(copy.codes.const_data_ptr()) % 16 != 0)
    fail(ExitCode::kEnvironment, "te", name, ": wanted the ",
         direction == Direction::kRow ? "row" : "column", " copy of a matrix on ", on.device.str(),
         ", 16-byte aligned, and it is not there");
  const Layout layout = layout_of(side, direction, matrix.rows, matrix.columns, on.facts);
  if (is_of_128(side) && on.facts.multiplies_128_as_32())
    return as_blocks_of_32(copy, side, layout, on);
  Handle handle(layout.mode);
  describe_copy(handle, copy, side, layout, params_of(side, direction, on.facts));
  if (layout.mode == NVTE_MXFP8_1D_SCALING || layout.mode == NVTE_NVFP4_1D_SCALING)
    handle.set_swizzled();
  return {std::move(handle), {}};
}

}  // namespace

void LinearGemms::forward(const Fp8Matrix& x, const Fp8Matrix& w, const Tensor& bias, Tensor& y) {
  OCTAVO_ASSERT(x.columns == w.columns);
  multiply({.name = "forward GEMM",
            .a = w,
            .a_copy = Direction::kRow,
            .a_transposed = true,
            .b = x,
            .b_copy = Direction::kRow,
            .b_transposed = false,
            .rows = x.rows,
            .columns = w.rows,
            .summed = x.columns,
            .forward = true},
           bias, y, Accumulate::kOverwrite);
}

void LinearGemms::input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, Tensor& dx) {
  OCTAVO_ASSERT(dy.columns == w.rows);
  multiply({.name = "input gradient",
            .a = w,
            .a_copy = Direction::kColumn,
            .a_transposed = false,
            .b = dy,
            .b_copy = Direction::kRow,
            .b_transposed = false,
            .rows = dy.rows,
            .columns = w.columns,
            .summed = dy.columns,
            .forward = false},
           {}, dx, Accumulate::kOverwrite);
}

void LinearGemms::weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, Tensor& dw,
                                  Accumulate mode) {
  OCTAVO_ASSERT(dy.rows == x.rows);
  if (dy.rows == 0) {  // the library refuses a sum over nothing
    if (mode == Accumulate::kOverwrite) dw.zero_();
    return;
  }
  multiply({.name = "weight gradient",
            .a = x,
            .a_copy = Direction::kColumn,
            .a_transposed = false,
            .b = dy,
            .b_copy = Direction::kColumn,
            .b_transposed = true,
            .rows = dy.columns,
            .columns = x.columns,
            .summed = dy.rows,
            .forward = false},
           {}, dw, mode);
}

void LinearGemms::multiply(const Call& call, const Tensor& bias, Tensor& d, Accumulate mode) {
  check_result(call.name, d, {call.rows, call.columns}, call.forward);
  if (d.numel() == 0) return;
  const OnDevice on(d);
  const fp8::Side &a_side = call.a.side(call.a_copy), &b_side = call.b.side(call.b_copy);
  check_formats(call.name, a_side, b_side);
  check_sides(call.name, b_side.granularity, {call.rows, call.columns}, call.summed, on.facts);
  const Operand a = operand(call.name, call.a, call.a_copy, on);
  const Operand b = operand(call.name, call.b, call.b_copy, on);
  const bool row_copies = is_of_128(b_side) && on.facts.multiplies_128_as_32();
  const Handle result(d);
  std::optional<Handle> bias_handle;
  if (bias.defined()) {
    // cuBLASLt adds a BF16 bias to a BF16 result; in the CPU's memory vectors are FP32.
    const bool fits = bias.numel() == call.columns && bias.is_contiguous() &&
                      (bias.scalar_type() == at::kBFloat16 || on.device.is_cpu());
    if (!fits)
      fail(ExitCode::kEnvironment, "te", call.name, ": wanted a BF16 bias of ", call.columns,
           ", found ", at::toString(bias.scalar_type()), " of shape ", octavo::str(bias.sizes()));
    bias_handle.emplace(bias);
  }
  // Sums in fewer bits are good enough for the forward GEMM, not for gradients; and only
  // GEMMs with one scale per tensor have them.
  const bool split = !call.forward || b_side.granularity != Granularity::kTensor;
  const MatmulConfig config(split, bias_handle ? &*bias_handle : nullptr);
  const Handle working(workspace_.of(on));
  const float one = 1, old = mode == Accumulate::kAdd ? 1.0f : 0.0f;
  library().nvte_cublas_gemm_v2(call.a_transposed || row_copies, call.b_transposed && !row_copies,
                                &one, a.handle, b.handle, &old, result, result, working, config,
                                on.stream);
}

Tensor GemmWorkspace::of(const OnDevice& on) {
  Tensor& memory = memory_[{on.device.index(), on.stream}];
  if (!memory.defined()) {
    const Tensor wide = at::empty({kWorkspaceBytes + kWorkspaceAlignment},
                                  at::TensorOptions(on.device).dtype(at::kByte));
    const auto begin = reinterpret_cast<uintptr_t>(wide.const_data_ptr());
    const auto skipped = static_cast<int64_t>(-begin % kWorkspaceAlignment);
    memory = wide.narrow(0, skipped, kWorkspaceBytes);
  }
  return memory;
}

}  // namespace octavo::engine::te
