#include "engine/cpu/fp4_copy.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/error.h"
#include "engine/cpu/fp8_rows.h"
#include "engine/cpu/rows.h"

namespace octavo::engine::cpu {
namespace {

using at::Tensor;
using fp8::Direction;

// Behind the scales, in both of their types.
constexpr int64_t kAmaxBytes = sizeof(float);

Bf16Matrix bf16_matrix(const Tensor& x) {
  OCTAVO_ASSERT(x.dim() == 2 && x.scalar_type() == at::kBFloat16 && x.is_contiguous());
  return {data<uint16_t>(x), x.size(0), x.size(1)};
}

}  // namespace

Fp4Copy make_fp4_copy(const Tensor& x, Direction direction, const QuantizeSpec& order, bool codes,
                      bool values) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const int64_t blocks = fp8::grid_of(order.side.granularity, direction, rows, columns).count();
  const bool packs = codes && direction == Direction::kColumn && rows % 2 == 0 &&
                     order.side.granularity == fp8::Granularity::kBlock16;
  const auto bytes = x.options().dtype(at::kByte), floats = x.options().dtype(at::kFloat);
  Fp4Copy made{.copy = {}, .has_other_than_numbers = false};
  Fp8Copy& copy = made.copy;
  copy.rotated = order.rotate;
  if (packs)
    copy.codes = at::empty({rows / 2, columns}, bytes);
  else if (codes)
    copy.codes = at::empty({rows, columns}, bytes);
  if (values) copy.values = at::empty({rows, columns}, x.options());
  copy.scales = packs ? at::empty({blocks + kAmaxBytes}, bytes) : at::empty({blocks + 1}, floats);
  Tensor scales = packs ? at::empty({blocks}, floats) : copy.scales;
  const Fp4Done done =
      quantize_fp4(bf16_matrix(x),
                   {.granularity = order.side.granularity,
                    .direction = direction,
                    .rotate = order.rotate,
                    .rounding = order.rounding},
                   {.codes = packs ? nullptr : mutable_data<uint8_t>(copy.codes),
                    .packed = packs ? mutable_data<uint8_t>(copy.codes) : nullptr,
                    .values = mutable_data<uint16_t>(copy.values),
                    .scales = mutable_data<float>(scales),
                    .scale_codes = packs ? mutable_data<uint8_t>(copy.scales) : nullptr});
  auto* behind = static_cast<char*>(copy.scales.mutable_data_ptr()) + copy.scales.nbytes();
  std::memcpy(behind - kAmaxBytes, &done.amax, kAmaxBytes);
  made.has_other_than_numbers = done.largest >= kInfinityBits;
  return made;
}

float fp4_amax(const Fp8Copy& copy) {
  float amax = 0;
  const auto* behind =
      static_cast<const char*>(copy.scales.const_data_ptr()) + copy.scales.nbytes();
  std::memcpy(&amax, behind - kAmaxBytes, kAmaxBytes);
  return amax;
}

Tensor fp4_block_scales(const Fp8Copy& copy) {
  if (copy.scales.scalar_type() == at::kFloat)
    return copy.scales.narrow(0, 0, copy.scales.numel() - 1);
  Tensor made =
      at::empty({copy.scales.numel() - kAmaxBytes}, copy.scales.options().dtype(at::kFloat));
  fp8::decode(fp8::Format::kE4M3,
              std::span(data<uint8_t>(copy.scales), static_cast<size_t>(made.numel())),
              std::span(mutable_data<float>(made), static_cast<size_t>(made.numel())));
  return made;
}

bool is_packed(const Fp8Copy& copy) {
  return copy.scales.scalar_type() == at::kByte;
}

Tensor fp4_values(const Fp8Matrix& m, Direction direction) {
  const Fp8Copy& copy = m.copy(direction);
  Tensor made = at::empty({m.rows, m.columns}, copy.codes.options().dtype(at::kBFloat16));
  const Tensor scales = fp4_block_scales(copy);
  if (is_packed(copy))
    decode_packed({data<uint8_t>(copy.codes), m.rows, m.columns, data<float>(scales)},
                  mutable_data<uint16_t>(made));
  else
    decode_codes({data<uint8_t>(copy.codes), m.rows, m.columns, m.side(direction).format},
                 m.grid(direction), data<float>(scales), mutable_data<uint16_t>(made));
  return made;
}

void write_fp4_pairs(const Fp8Matrix& m, const PairedLayout& layout, uint16_t* to) {
  OCTAVO_ASSERT(is_packed(m.column));
  const Tensor scales = fp4_block_scales(m.column);
  decode_packed_pairs({data<uint8_t>(m.column.codes), m.rows, m.columns, data<float>(scales)},
                      layout, to);
}

Tensor fp4_rotated(const Tensor& x) {
  Tensor made = at::empty_like(x);
  rotate_columns(bf16_matrix(x), mutable_data<uint16_t>(made));
  return made;
}

}  // namespace octavo::engine::cpu
