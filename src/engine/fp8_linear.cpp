#include "engine/fp8_linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "engine/aten/fp8_quantize.h"
#include "fp8/scaling.h"

namespace octavo::engine {

Fp8Copy Fp8Linear::quantize_part(const at::Tensor& x, fp8::Recipe recipe, fp8::Direction direction,
                                 const QuantizeSpec& order) {
  const auto made = aten::quantize_plain(x, recipe, direction, order);
  const at::Tensor scales = made.decode.reshape({-1});
  return {.codes = made.codes,
          .scales = fp8::has_e8m0_scales(recipe) ? aten::to_e8m0(scales) : scales,
          .values = {}};
}

void Fp8Linear::adopt_part(const Fp8Copy& whole, fp8::Direction direction, bool both,
                           Fp8Matrix& matrix) {
  if (both || direction == fp8::Direction::kRow) matrix.row = whole;
  if (both || direction == fp8::Direction::kColumn) matrix.column = whole;
}

std::vector<Fp8Matrix> Fp8Linear::quantize_all(const std::vector<Request>& requests,
                                               fp8::Recipe recipe) {
  std::vector<Fp8Matrix> made;
  made.reserve(requests.size());
  for (const Request& r : requests) made.push_back(quantize(r.x, recipe, r.row, r.column));
  return made;
}

at::Tensor Fp8Linear::factor_of(fp8::Format format, const at::Tensor& amax) {
  // As fp8::scale_from_amax has it, without waiting for the device.
  const at::Tensor factor = at::full_like(amax, fp8::max_value(format))
                                .div_(amax)
                                .clamp_max_(std::numeric_limits<float>::max());
  return at::where(amax.eq(0).logical_or_(amax.isfinite().logical_not_()), at::ones_like(amax),
                   factor);
}

fp8::TensorHealth Fp8Linear::measure(const at::Tensor& x, const Fp8Matrix& quantized,
                                     fp8::Direction direction) {
  const at::Tensor stats = health_stats(x, quantized, direction).cpu();
  return fp8::from_stats(std::span<const double, fp8::kHealthStats>(stats.const_data_ptr<double>(),
                                                                    fp8::kHealthStats));
}

at::Tensor stats_in_memory(const fp8::TensorHealth& health) {
  at::Tensor made = at::empty({fp8::kHealthStats}, at::kDouble);
  std::ranges::copy(fp8::to_stats(health), made.mutable_data_ptr<double>());
  return made;
}

void update_factors_in_memory(at::Tensor& history, at::Tensor& factors,
                              const std::vector<fp8::Format>& formats, fp8::AmaxAlgo algo,
                              int64_t margin, bool recompute) {
  const auto floats = [](at::Tensor& t) {
    return std::span(t.mutable_data_ptr<float>(), static_cast<size_t>(t.numel()));
  };
  fp8::update_factors({.amax = floats(history),
                       .factors = floats(factors),
                       .format = formats,
                       .length = history.size(0)},
                      algo, margin, recompute);
}

}  // namespace octavo::engine
