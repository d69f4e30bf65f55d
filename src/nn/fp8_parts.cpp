// The side of Fp8Layer for weights whose rows are spread over ranks.

#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/fp8_layer.h"

namespace octavo::nn {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Granularity;
using fp8::Recipe;
using fp8::Role;

}  // namespace

std::string Fp8Layer::no_parts_reason(const Param& param) const {
  if (param.chunk == 0) return "it is whole on every rank";
  for (const Direction direction : {Direction::kRow, Direction::kColumn}) {
    const Granularity granularity = side(Role::kWeight, direction).granularity;
    // These scales are of all rows, and agreed on.
    if (granularity == Granularity::kTensor || granularity == Granularity::kVector) continue;
    const auto grid = grid_of(granularity, direction, param.chunk, param.sizes()[1]);
    if (param.chunk % grid.block_rows != 0)
      return octavo::str("a rank has ", param.chunk, " rows, and a scale is of ", grid.block_rows);
  }
  return std::string(shared_.engine->fp8_linear->no_parts_reason(shared_.options.recipe));
}

std::optional<Tensor> Fp8Layer::magnitudes(const Param& param) const {
  const Tensor rows = param.own.narrow(0, 0, param.master.size(0));
  const Recipe recipe = shared_.options.recipe;
  const Granularity granularity = fp8::traits_of(recipe).weights;
  if (granularity == Granularity::kTensor && !fp8::uses_history(recipe))
    return rows.numel() == 0 ? at::zeros({1}, rows.options().dtype(at::kFloat))
                             : rows.abs().amax().to(at::kFloat).reshape({1});
  if (granularity == Granularity::kVector)
    return rows.numel() == 0 ? at::zeros({rows.size(1)}, rows.options().dtype(at::kFloat))
                             : rows.abs().amax(0).to(at::kFloat);
  return std::nullopt;
}

Fp8Layer::Part Fp8Layer::part(const Param& param, Direction direction) {
  auto& kept = parts_[static_cast<size_t>(direction)];
  if (kept && kept->version == param.version) return kept->part;
  engine::QuantizeSpec made = order(Role::kWeight, direction, true, true);
  Part result;
  result.shared_scales = made.side.granularity == Granularity::kTensor;
  Recipe recipe = shared_.options.recipe;
  Tensor rows = param.own;
  if (result.shared_scales && !fp8::uses_history(recipe)) {
    // As delayed scaling does it, with the factor that the whole tensor gives.
    made.factor = engine::Fp8Linear::factor_of(made.side.format, agreed_);
    recipe = fp8::recipe_with(fp8::ScaleRule::kHistory);
  } else if (made.side.granularity == Granularity::kVector && direction == Direction::kColumn) {
    // One row more, of the magnitudes that the columns have on all ranks: it gives the scales.
    rows = at::cat({rows, agreed_.to(rows.scalar_type()).unsqueeze(0)});
    result.shared_scales = true;
  }
  const engine::Fp8Copy copy =
      shared_.engine->fp8_linear->quantize_part(rows, recipe, direction, made);
  result.codes = copy.codes.narrow(0, 0, param.chunk);
  result.scales = copy.scales;
  kept = VersionedPart{result, param.version};
  return result;
}

void Fp8Layer::adopt(const Param& param, Direction direction, const Part& whole) {
  const int64_t rows = param.sizes()[0], columns = param.sizes()[1];
  if (weight_version_ != param.version) weight_ = {};
  weight_.rows = rows;
  weight_.columns = columns;
  weight_.row_side = side(Role::kWeight, Direction::kRow);
  weight_.column_side = side(Role::kWeight, Direction::kColumn);
  const int64_t scales = weight_.grid(direction).count();
  const engine::Fp8Copy codes{.codes = whole.codes.narrow(0, 0, rows),
                              .scales = whole.scales.narrow(0, 0, scales),
                              .values = {}};
  shared_.engine->fp8_linear->adopt_part(codes, direction, one_part_serves_both(), weight_);
  weight_version_ = param.version;
}

}  // namespace octavo::nn
