#include "engine/aten/fp8_layout.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Granularity;

int64_t missing_to(int64_t size, int64_t multiple) {
  return (multiple - size % multiple) % multiple;
}

// [a, b] filled up with zeros.
Tensor padded(const Tensor& t, int64_t rows, int64_t columns) {
  return rows == 0 && columns == 0 ? t : at::constant_pad_nd(t, {0, columns, 0, rows});
}

}  // namespace

bool is_transposed(Granularity granularity, Direction direction, const GemmRules& rules) {
  if (direction == Direction::kRow || granularity == Granularity::kBlock32) return false;
  return granularity != Granularity::kTensor || !rules.any_layout;
}

Tensor swizzled(const Tensor& codes) {
  const Tensor whole = padded(codes, missing_to(codes.size(0), 128), missing_to(codes.size(1), 4));
  return whole.view({whole.size(0) / 128, 4, 32, whole.size(1) / 4, 4})
      .permute({0, 3, 2, 1, 4})
      .contiguous()
      .view({-1});
}

Fp8Copy lay_out(const PlainFp8& made, Granularity granularity, Direction direction,
                const GemmRules& rules) {
  const bool by_row = direction == Direction::kRow;
  Fp8Copy copy;
  copy.codes =
      is_transposed(granularity, direction, rules) ? made.codes.t().contiguous() : made.codes;
  switch (granularity) {
    case Granularity::kTensor:
    case Granularity::kVector:
      copy.scales = made.decode.flatten();
      break;
    case Granularity::kBlock128: {
      // Rows that are missing to a multiple of 4 are made, in codes and scales.
      const Tensor by_block = by_row ? made.decode.t() : made.decode;
      const int64_t rows = missing_to(by_block.size(1), 4);
      copy.scales = padded(by_block, 0, rows).contiguous();
      copy.codes = padded(copy.codes, rows, 0);
      break;
    }
    case Granularity::kSquare128: {
      const Tensor along = by_row ? made.decode : made.decode.t();
      copy.scales = padded(along, 0, missing_to(along.size(1), 4)).contiguous();
      break;
    }
    case Granularity::kBlock32: {
      const Tensor codes = to_e8m0(made.decode);
      copy.scales = swizzled(by_row ? codes : codes.t());
      break;
    }
    case Granularity::kBlock16:
    case Granularity::kSquare16:
      OCTAVO_ASSERT(false && "fp8::decide takes no GPU for nvfp4");
  }
  return copy;
}

}  // namespace octavo::engine::aten
