#include "nn/fp8_layer.h"

#include <ATen/ATen.h>

#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "fp8/channels.h"
#include "nn/linear.h"

namespace octavo::nn {
namespace {

using at::Tensor;
using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;
using fp8::Role;

constexpr std::array<Role, 3> kRoles = {Role::kInput, Role::kWeight, Role::kGradient};
constexpr std::array<Direction, 2> kDirections = {Direction::kRow, Direction::kColumn};

size_t index(Role role) {
  return static_cast<size_t>(role);
}
size_t index(Direction direction) {
  return static_cast<size_t>(direction);
}

// As fp8/channels.h has them; on the device of x, which is not waited for.
Tensor channel_stats(const Tensor& x) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor largest = at::linalg_vector_norm(x, infinity, {0}, /*keepdim=*/false, at::kFloat)
                             .nan_to_num_(0, infinity);
  const auto [value, channel] = largest.max(0);
  return at::stack(
      {value.to(at::kDouble), largest.median().to(at::kDouble), channel.to(at::kDouble)});
}

}  // namespace

Fp8Layer::Fp8Layer(Fp8Shared& shared, const std::string& layer_name)
    : shared_(shared),
      stream_(stream_of(layer_name)),
      watches_channels_(layer_name.ends_with(".down_proj")) {
  if (!fp8::uses_history(shared.options.recipe)) return;
  for (const Role role : kRoles) {
    const std::string name = octavo::str(layer_name, ".", name_of(role));
    const fp8::Format row = side(role, Direction::kRow).format;
    const fp8::Format column = side(role, Direction::kColumn).format;
    auto& slots = slots_[index(role)];
    const bool of_step = role == Role::kWeight;
    slots[0] = shared.scaling.add(name, row, of_step);
    // Another format has another largest value, and so a factor of its own.
    slots[1] = row == column ? slots[0] : shared.scaling.add(name + ".column", column, of_step);
  }
}

fp8::Side Fp8Layer::side(Role role, Direction direction) const {
  return side_of(shared_.options, role, direction);
}

QuantizeSpec Fp8Layer::order(Role role, Direction direction, bool wanted, bool record) const {
  QuantizeSpec made{
      .side = side(role, direction), .wanted = wanted, .keep = false, .factor = {}, .amax = {}};
  made.rotate = is_rotated(shared_.options, role, direction);
  // Row and column copy, layers and passes have draws of their own.
  made.rounding = {.stochastic = is_stochastic(shared_.options, role),
                   .seed = shared_.seed,
                   .stream = mix64(stream_ ^ mix64(2 * shared_.pass + index(direction)))};
  if (!fp8::uses_history(shared_.options.recipe)) return made;
  const int64_t slot = slots_[index(role)][index(direction)];
  made.factor = shared_.scaling.factor(slot);
  if (record) made.amax = shared_.scaling.amax(slot);
  return made;
}

Fp8Matrix Fp8Layer::input(const Tensor& x, bool training, bool keep) {
  QuantizeSpec column = order(Role::kInput, Direction::kColumn, keep, training);
  column.keep = true;
  const Fp8Matrix quantized = shared_.engine->fp8_linear->quantize(
      x, shared_.options.recipe, order(Role::kInput, Direction::kRow, true, training), column);
  if (training) measure(Role::kInput, x, quantized);
  return quantized;
}

std::optional<engine::Fp8Linear::Normed> Fp8Layer::normed_input(const Tensor& x,
                                                                const Tensor& delta,
                                                                const Norm& norm, bool training,
                                                                bool keep) {
  if (shared_.measuring && training) return std::nullopt;
  QuantizeSpec column = order(Role::kInput, Direction::kColumn, keep, training);
  column.keep = true;
  return shared_.engine->fp8_linear->norm_quantize(
      x, delta, norm.gamma->compute, norm.beta ? norm.beta->compute : Tensor(), norm.eps,
      shared_.options.recipe, order(Role::kInput, Direction::kRow, true, training), column);
}

std::optional<Fp8Matrix> Fp8Layer::activated_input(engine::Activation activation, const Tensor& x,
                                                   bool training, bool keep) {
  if (shared_.measuring && training) return std::nullopt;
  QuantizeSpec column = order(Role::kInput, Direction::kColumn, keep, training);
  column.keep = true;
  return shared_.engine->fp8_linear->activate_quantize(
      activation, x, shared_.options.recipe, order(Role::kInput, Direction::kRow, true, training),
      column);
}

Fp8Matrix Fp8Layer::kept_input(int64_t rows, int64_t columns,
                               const std::vector<Tensor>& kept) const {
  return {.rows = rows,
          .columns = columns,
          .row_side = side(Role::kInput, Direction::kRow),
          .column_side = side(Role::kInput, Direction::kColumn),
          .row = {},
          .column = {.codes = kept[0], .scales = kept[1], .values = {}}};
}

const Fp8Matrix& Fp8Layer::weight(const Param& param, bool column) {
  const bool current = weight_version_ == param.version;
  const bool has_row = current && weight_.row.defined();
  const bool has_column = current && weight_.column.defined();
  if (column ? has_column : has_row) return weight_;
  if (awaits_weight(param)) {
    quantize_together();
    return weight_;
  }
  // Symmetric copies are one: both at once. Otherwise the column copy waits until backward needs
  // it.
  const bool both = is_symmetric(side(Role::kWeight, Direction::kRow).granularity);
  const bool row_wanted = !column || both;
  const bool column_wanted = column || both;
  const Tensor values = param.weights();
  Fp8Matrix made = shared_.engine->fp8_linear->quantize(
      values, shared_.options.recipe, order(Role::kWeight, Direction::kRow, row_wanted, true),
      order(Role::kWeight, Direction::kColumn, column_wanted, true));
  measure(Role::kWeight, values, made);
  if (has_row && !row_wanted) made.row = weight_.row;
  if (has_column && !column_wanted) made.column = weight_.column;
  weight_ = std::move(made);
  weight_version_ = param.version;
  return weight_;
}

bool Fp8Layer::awaits_weight(const Param& param) const {
  return shared_.copies != WeightCopies::kGemm && !shared_.measuring &&
         weight_version_ != param.version && param.chunk == 0 && param.gatherer == nullptr &&
         param.compute.defined() && one_part_serves_both() &&
         shared_.engine->fp8_linear->quantizes_together(shared_.options.recipe);
}

void Fp8Layer::quantize_together() {
  std::vector<Linear*> waiting;
  std::vector<engine::Fp8Linear::Request> requests;
  for (Linear* layer : shared_.layers) {
    if (layer->fp8 == nullptr || !layer->fp8->awaits_weight(*layer->weight)) continue;
    waiting.push_back(layer);
    requests.push_back({layer->weight->weights(),
                        layer->fp8->order(Role::kWeight, Direction::kRow, true, true),
                        layer->fp8->order(Role::kWeight, Direction::kColumn, true, true)});
  }
  auto made = shared_.engine->fp8_linear->quantize_all(requests, shared_.options.recipe);
  for (size_t i = 0; i < waiting.size(); ++i) {
    Fp8Layer& layer = *waiting[i]->fp8;
    layer.weight_ = std::move(made[i]);
    layer.weight_version_ = waiting[i]->weight->version;
  }
}

void Fp8Layer::release_weight(Direction direction, bool training) {
  if (shared_.copies == WeightCopies::kGemm) {
    weight_.row = weight_.column = {};
    return;
  }
  const bool serves_both = is_symmetric(side(Role::kWeight, direction).granularity);
  if (shared_.copies == WeightCopies::kKeep || !training || serves_both) return;
  (direction == Direction::kRow ? weight_.row : weight_.column) = {};
}

Fp8Matrix Fp8Layer::gradient(const Tensor& dy, bool row, bool column, Param* bias) {
  engine::Fp8Linear& fp8 = *shared_.engine->fp8_linear;
  const fp8::Recipe recipe = shared_.options.recipe;
  const QuantizeSpec by_row = order(Role::kGradient, Direction::kRow, row, true),
                     by_column = order(Role::kGradient, Direction::kColumn, column, true);
  std::optional<Fp8Matrix> summed;
  if (bias != nullptr) {
    const auto mode = bias->next_write();
    summed = fp8.quantize_and_sum(dy, bias->grad, mode, recipe, by_row, by_column);
    if (!summed) shared_.engine->column_sum->add(dy, bias->grad, mode);
  }
  const Fp8Matrix quantized =
      summed ? std::move(*summed) : fp8.quantize(dy, recipe, by_row, by_column);
  measure(Role::kGradient, dy, quantized);
  return quantized;
}

std::optional<Fp8Matrix> Fp8Layer::activation_gradient(engine::Activation activation,
                                                       const Tensor& dy, const Tensor& x,
                                                       Param* bias, bool row, bool column) {
  if (shared_.measuring) return std::nullopt;
  Tensor none;
  const bool was_fresh = bias != nullptr && bias->grad_fresh;
  const auto mode = bias != nullptr ? bias->next_write() : engine::Accumulate::kOverwrite;
  auto made = shared_.engine->fp8_linear->activation_gradient_quantize(
      activation, dy, x, bias != nullptr ? bias->grad : none, mode, shared_.options.recipe,
      order(Role::kGradient, Direction::kRow, row, true),
      order(Role::kGradient, Direction::kColumn, column, true));
  if (!made && bias != nullptr) bias->grad_fresh = was_fresh;  // nothing was written
  return made;
}

void Fp8Layer::measure(Role role, const Tensor& x, const Fp8Matrix& quantized) {
  if (!shared_.measuring) return;
  const bool same =
      quantized.row_side == quantized.column_side && is_symmetric(quantized.row_side.granularity);
  for (const Direction direction : kDirections) {
    if (!quantized.copy(direction).defined() ||
        (same && direction == Direction::kColumn && quantized.row.defined()))
      continue;
    const bool is_nothing = idle_ && role != Role::kWeight;
    Tensor stats = is_nothing ? at::zeros({fp8::kHealthStats}, x.options().dtype(at::kDouble))
                              : shared_.engine->fp8_linear->health_stats(x, quantized, direction);
    if (watches_channels_ && !is_nothing && x.numel() > 0 && role == Role::kInput &&
        direction == Direction::kRow)
      stats = at::cat({stats, channel_stats(x)});
    measured_.push_back({role, direction, stats});
  }
}

}  // namespace octavo::nn
