// FP8 GEMMs by definition: plain-loop quantizers (fp8/quantize.cpp), and GEMMs of the decoded
// values in FP64.

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "engine/reference/reference.h"
#include "fp8/quantize.h"

namespace octavo::engine::reference {
namespace {

using at::Tensor;
using fp8::Direction;

class PlainFp8Linear final : public Fp8Linear {
 public:
  Fp8Matrix quantize(const Tensor& x, fp8::Recipe recipe, const QuantizeSpec& row,
                     const QuantizeSpec& column) override {
    Fp8Matrix result = matrix_for(x, row, column);
    if (row.wanted) result.row = one_copy(x, recipe, Direction::kRow, row);
    if (column.wanted) result.column = one_copy(x, recipe, Direction::kColumn, column);
    return result;
  }

  void forward(const Fp8Matrix& x, const Fp8Matrix& w, const Tensor& bias, Tensor& y) override {
    Tensor result = at::mm(exact(x, Direction::kRow), exact(w, Direction::kRow).t());
    if (bias.defined()) result += bias.to(at::kDouble);
    y.copy_(result);
  }
  void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, Tensor& dx) override {
    dx.copy_(at::mm(exact(dy, Direction::kRow), exact(w, Direction::kColumn)));
  }
  void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, Tensor& dw,
                       Accumulate mode) override {
    const Tensor result = at::mm(exact(dy, Direction::kColumn).t(), exact(x, Direction::kColumn));
    dw.copy_(mode == Accumulate::kAdd ? dw.to(at::kDouble) + result : result);
  }

  void update_factors(Tensor& history, Tensor& factors, const std::vector<fp8::Format>& formats,
                      fp8::AmaxAlgo algo, int64_t margin, bool recompute) override {
    update_factors_in_memory(history, factors, formats, algo, margin, recompute);
  }

  Tensor health_stats(const Tensor& x, const Fp8Matrix& quantized, Direction direction) override {
    const Fp8Copy& copy = quantized.copy(direction);
    const fp8::Side& side = quantized.side(direction);
    const fp8::Grid grid = quantized.grid(direction);
    const Tensor values = x.to(at::kFloat), decoded = exact(quantized, direction);
    fp8::TensorHealth health;
    fp8::Amax amax;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const float value = values.const_data_ptr<float>()[i];
      const int64_t block = grid.block_of(i / x.size(1), i % x.size(1));
      const auto scale = fp8::scale_from_decode(copy.scales.const_data_ptr<float>()[block]);
      const float before = amax.value;
      amax.add(value);
      if (amax.value > before || i == 0) health.factor = scale.encode;
      health.incidents.add(fp8::incident_of(side.format, value, scale));
      health.nonzero += value != 0;
      if (!std::isfinite(value)) continue;
      health.signal += std::pow(static_cast<double>(value), 2);
      health.noise += std::pow(value - decoded.const_data_ptr<double>()[i], 2);
    }
    health.elements = x.numel();
    health.amax = amax.value;
    return stats_in_memory(health);
  }

 private:
  static Fp8Copy one_copy(const Tensor& x, fp8::Recipe recipe, Direction direction,
                          const QuantizeSpec& order) {
    const Tensor values = x.to(at::kFloat).contiguous();
    const auto count = static_cast<size_t>(values.numel());
    const auto made =
        fp8::quantize(recipe, order.side, direction,
                      {std::span(values.const_data_ptr<float>(), count), x.size(0), x.size(1)},
                      order.factor.defined() ? order.factor.item<float>() : 1.0f);
    if (order.amax.defined()) {
      Tensor slot = order.amax;
      slot.fill_(std::max(slot.item<float>(), made.amax.value));
    }
    Fp8Copy copy;
    copy.codes = at::empty(x.sizes(), at::kByte);
    std::copy(made.codes.begin(), made.codes.end(), copy.codes.mutable_data_ptr<uint8_t>());
    copy.scales = at::empty({made.grid.count()}, at::kFloat);
    for (size_t i = 0; i < made.scales.size(); ++i)
      copy.scales.mutable_data_ptr<float>()[i] = made.scales[i].decode;
    return copy;
  }

  static Tensor exact(const Fp8Matrix& m, Direction direction) {
    const Fp8Copy& copy = m.copy(direction);
    const fp8::Side& side = m.side(direction);
    OCTAVO_ASSERT(copy.defined());
    const fp8::Grid grid = m.grid(direction);
    Tensor values = at::empty({m.rows, m.columns}, at::kDouble);
    auto* out = values.mutable_data_ptr<double>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      const int64_t block = grid.block_of(i / m.columns, i % m.columns);
      out[i] =
          static_cast<double>(fp8::decode(side.format, copy.codes.const_data_ptr<uint8_t>()[i])) *
          copy.scales.const_data_ptr<float>()[block];
    }
    return values;
  }
};

}  // namespace

std::unique_ptr<Fp8Linear> make_fp8_linear() {
  return std::make_unique<PlainFp8Linear>();
}

}  // namespace octavo::engine::reference
