#include "engine/te/quantizer.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "config/settings.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "fp8/execution.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Granularity;
using fp8::Recipe;

bool is_aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0;
}

void run(const Tensor& x, Recipe recipe, Output& out, const OnDevice& on) {
  const Library& te = library();
  const Handle in(x);
  if (quantizes_in_one_pass(recipe)) {
    te.nvte_quantize_v2(in, out.handle, nullptr, on.stream);
    return;
  }
  const QuantizationConfig config(fp8::has_power_of_two_scales(recipe));
  if (fp8::traits_of(recipe).activations == Granularity::kTensor) {
    te.nvte_compute_amax_with_config(in, out.handle, config, on.stream);
    te.nvte_compute_scale_from_amax(out.handle, config, on.stream);
    out.handle.clear(kNVTEAmax);  // it is known: the kernel need not find it again
  }
  te.nvte_quantize_v2(in, out.handle, config, on.stream);
}

Fp8Matrix by_one_call(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                      const QuantizeSpec& column, const OnDevice& on) {
  Output out({x.size(0), x.size(1)}, recipe, row, column, on);
  if (x.numel() > 0) run(x, recipe, out, on);
  return std::move(out.matrix);
}

}  // namespace

bool quantizes_in_one_pass(Recipe recipe) {
  return fp8::uses_history(recipe) || fp8::has_e8m0_scales(recipe);
}

bool one_call(const QuantizeSpec& row, const QuantizeSpec& column) {
  return !row.wanted || !column.wanted || row.side == column.side;
}

Output::Output(const Shape& shape, Recipe recipe, const QuantizeSpec& row,
               const QuantizeSpec& column, const OnDevice& on, bool both)
    : handle(layout_of(row.wanted ? row.side : column.side, Direction::kRow, shape.rows,
                       shape.columns, on.facts)
                 .mode) {
  OCTAVO_ASSERT(row.wanted || column.wanted);
  OCTAVO_ASSERT(one_call(row, column));
  matrix = {.rows = shape.rows,
            .columns = shape.columns,
            .row_side = row.side,
            .column_side = column.side,
            .row = {},
            .column = {}};
  const QuantizeSpec& order = row.wanted ? row : column;
  if (order.side.granularity == Granularity::kTensor)
    per_tensor(recipe, row, column, on, both);
  else
    in_blocks(row, column, on);
}

// The row copy is written always, and both copies share one scale.
void Output::per_tensor(Recipe recipe, const QuantizeSpec& row, const QuantizeSpec& column,
                        const OnDevice& on, bool both) {
  const QuantizeSpec& order = row.wanted ? row : column;
  const auto layout = [&](Direction direction) {
    return layout_of(order.side, direction, matrix.rows, matrix.columns, on.facts);
  };
  const auto floats = at::TensorOptions(on.device).dtype(at::kFloat);
  const Layout as_row = layout(Direction::kRow);
  Fp8Copy written;
  factor = order.factor;
  amax = order.amax;
  if (!fp8::uses_history(recipe)) {
    const Tensor numbers = at::empty({3}, floats);
    written.scales = numbers.narrow(0, 0, 1);
    factor = numbers.narrow(0, 1, 1);
    amax = numbers.narrow(0, 2, 1);
  } else {
    OCTAVO_ASSERT(factor.defined());
    written.scales = at::empty({1}, floats);
  }
  written.codes = at::empty(as_row.codes, floats.dtype(at::kByte));
  describe_copy(handle, written, order.side, as_row,
                params_of(order.side, Direction::kRow, on.facts));
  handle.set(kNVTEScale, factor, kNVTEFloat32);
  handle.set(kNVTEAmax, amax, kNVTEFloat32);

  if (!on.facts.any_layout && (column.wanted || both)) {
    const Layout as_column = layout(Direction::kColumn);
    transposed = {.codes = at::empty(as_column.codes, floats.dtype(at::kByte)),
                  .scales = written.scales,
                  .values = {}};
    describe_copy(handle, transposed, order.side, as_column,
                  params_of(order.side, Direction::kColumn, on.facts));
  }
  if (column.wanted) matrix.column = on.facts.any_layout ? written : transposed;
  (row.wanted ? matrix.row : unordered_) = written;
}

void Output::in_blocks(const QuantizeSpec& row, const QuantizeSpec& column, const OnDevice& on) {
  const fp8::Side& side = row.wanted ? row.side : column.side;
  const auto add = [&](Direction direction) {
    const Layout layout = layout_of(side, direction, matrix.rows, matrix.columns, on.facts);
    const Fp8Copy copy = allocate_copy(layout, on.device);
    describe_copy(handle, copy, side, layout, params_of(side, direction, on.facts));
    return copy;
  };
  // The kernel for squares writes the row copy always.
  if (row.wanted || side.granularity == Granularity::kSquare128) {
    const Fp8Copy copy = add(Direction::kRow);
    (row.wanted ? matrix.row : unordered_) = copy;
  }
  if (column.wanted) matrix.column = add(Direction::kColumn);
  if (side.granularity == Granularity::kBlock32) handle.set_swizzled();
}

void check_quantizable(const Tensor& x, Recipe recipe, const OnDevice& on) {
  const int capability = on.facts.capability;
  // mxfp8 on a device without it would leave its output as it was, without an error.
  const fp8::Device device{.is_gpu = true,
                           .major = capability / 10,
                           .minor = capability % 10,
                           .has_te = true,
                           .name = {}};
  if (!fp8::has_native(device, recipe))
    fail(ExitCode::kEnvironment, "te", "fp8_recipe ", config::name_of(recipe),
         ": compute capability ", capability / 10, ".", capability % 10,
         " does not have it; take another recipe");
  if (x.dim() != 2 || x.scalar_type() != at::kBFloat16 || !x.is_contiguous() || !is_aligned(x))
    fail(ExitCode::kEnvironment, "te",
         "to be quantized: wanted a contiguous BF16 matrix that begins at a multiple of 16 bytes, "
         "found ",
         at::toString(x.scalar_type()), " of shape ", octavo::str(x.sizes()),
         x.is_contiguous() ? "" : ", not contiguous", is_aligned(x) ? "" : ", not aligned");
}

void check_shape(const Output::Shape& shape, Recipe recipe, const QuantizeSpec& row,
                 const QuantizeSpec& column) {
  // Kernels and GEMMs read 16 bytes at a time, or whole blocks.
  const int64_t multiple = fp8::traits_of(recipe).token_multiple;
  // Sums are along the rows of a column copy; NVFP4's kernels want them so of every copy.
  const bool rows_matter = column.wanted || !row.wanted || fp8::is_fp4(recipe);
  if (shape.columns % multiple != 0 || (rows_matter && shape.rows % multiple != 0))
    fail(ExitCode::kEnvironment, "te", "fp8_recipe ", config::name_of(recipe),
         ": wanted sides that are multiples of ", multiple, ", found a matrix of ", shape.rows,
         " x ", shape.columns);
}

namespace {

own::QuantizeJob job_of(const Tensor& x, const Output& out) {
  return {.x = x,
          .codes = out.as_it_lies().codes,
          .column_codes = out.transposed.codes,
          .scale = out.factor,
          .inverse = out.as_it_lies().scales,
          .amax = out.amax};
}

}  // namespace

bool quantizes_together(Recipe recipe) {
  return fp8::uses_history(recipe);
}

std::vector<Fp8Matrix> quantize_all(const std::vector<Fp8Linear::Request>& requests,
                                    Recipe recipe) {
  std::vector<Fp8Matrix> made;
  if (requests.empty()) return made;
  const OnDevice on(requests.front().x);
  const fp8::Format format = requests.front().row.side.format;
  bool alike = true, transposes = true;
  for (const auto& r : requests) {
    alike &=
        r.row.wanted && r.row.side.format == format && one_call(r.row, r.column) && r.x.numel() > 0;
    transposes &= !on.facts.any_layout && r.column.wanted;
  }
  // The library's call always transposes; without that it has none that is one launch.
  const bool by_own = !transposes && own::library().kernels != nullptr && on.device.is_cuda();
  if (!alike || (!transposes && !by_own)) {
    for (const auto& r : requests) made.push_back(quantize(r.x, recipe, r.row, r.column));
    return made;
  }
  std::vector<Output> outputs;
  std::vector<Handle> in;
  std::vector<own::QuantizeJob> jobs;
  outputs.reserve(requests.size());
  in.reserve(requests.size());
  for (const auto& r : requests) {
    check_quantizable(r.x, recipe, on);
    check_shape({r.x.size(0), r.x.size(1)}, recipe, r.row, r.column);
    const Output& out =
        outputs.emplace_back(Output::Shape{r.x.size(0), r.x.size(1)}, recipe, r.row, r.column, on);
    if (by_own)
      jobs.push_back(job_of(r.x, out));
    else
      in.emplace_back(r.x);
  }
  if (by_own) {
    own::quantize(own::found_kernels(), format, jobs);
  } else {
    std::vector<NVTETensor> from(in.begin(), in.end()), to;
    for (const Output& out : outputs) to.push_back(out.handle);
    library().nvte_multi_cast_transpose(from.size(), from.data(), to.data(), on.stream);
    if (traffic_listener() != nullptr)  // it sees no handle in a list
      for (size_t i = 0; i < from.size(); ++i)
        report_call("nvte_multi_cast_transpose", {from[i], to[i]});
  }
  for (Output& out : outputs) made.push_back(std::move(out.matrix));
  return made;
}

bool sums_columns() {
  return own::library().kernels != nullptr;
}

std::optional<Fp8Matrix> quantize_and_sum(const Tensor& x, Tensor& sums, Accumulate mode,
                                          Recipe recipe, const QuantizeSpec& row,
                                          const QuantizeSpec& column) {
  if (!sums_columns() || !x.is_cuda() || !fp8::uses_history(recipe) ||
      (!row.wanted && !column.wanted) || !one_call(row, column) || x.numel() == 0)
    return std::nullopt;
  const OnDevice on(x);
  check_quantizable(x, recipe, on);
  check_shape({x.size(0), x.size(1)}, recipe, row, column);
  Output out({x.size(0), x.size(1)}, recipe, row, column, on);
  const fp8::Format format = (row.wanted ? row : column).side.format;
  own::quantize_and_sum(own::found_kernels(), format, job_of(x, out), sums, mode);
  return std::move(out.matrix);
}

Fp8Matrix quantize(const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                   const QuantizeSpec& column) {
  if (!row.wanted && !column.wanted) return matrix_for(x, row, column);
  const OnDevice on(x);
  check_quantizable(x, recipe, on);
  check_shape({x.size(0), x.size(1)}, recipe, row, column);
  if (one_call(row, column)) return by_one_call(x, recipe, row, column, on);
  // Copies of two formats: fp8_format e5m2 has its inputs so.
  const QuantizeSpec none;
  Fp8Matrix matrix = matrix_for(x, row, column);
  matrix.row = by_one_call(x, recipe, row, none, on).row;
  matrix.column = by_one_call(x, recipe, none, column, on).column;
  return matrix;
}

}  // namespace octavo::engine::te
