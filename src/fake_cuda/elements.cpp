// Number formats of matrix elements. Written here once more, because this module stands above those
// that have them, and because a test double should not share the code it tests.
#include <library_types.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "fake_cuda/gemm.h"

namespace octavo::fake_cuda {
namespace {

struct SmallFormat {
  int exponent_bits, mantissa_bits;
  bool infinities;  // and several NaNs, as IEEE has it; E4M3 has one NaN and no infinity
  float largest;
};
constexpr SmallFormat kE4M3 = {4, 3, false, 448};
constexpr SmallFormat kE5M2 = {5, 2, true, 57344};
constexpr SmallFormat kFP16 = {5, 10, true, 65504};

float decode(const SmallFormat& format, unsigned bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const unsigned mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const unsigned exponent = bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1);
  const bool negative = (bits >> (format.exponent_bits + format.mantissa_bits) & 1) != 0;
  const unsigned top = (1u << format.exponent_bits) - 1;
  float value = 0;
  if (format.infinities && exponent == top) {
    value = mantissa == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (!format.infinities && exponent == top &&
             mantissa == (1u << format.mantissa_bits) - 1) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - bias - format.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa | 1u << format.mantissa_bits),
                       static_cast<int>(exponent) - bias - format.mantissa_bits);
  }
  return negative ? -value : value;
}

// To nearest, ties to even; beyond the largest: saturates for FP8 (as the hardware converts),
// infinity for FP16.
unsigned encode(const SmallFormat& format, float value, bool saturate) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const unsigned sign =
      std::signbit(value) ? 1u << (format.exponent_bits + format.mantissa_bits) : 0;
  const unsigned all_ones = (1u << (format.exponent_bits + format.mantissa_bits)) - 1;
  if (std::isnan(value)) return sign | all_ones;
  const float size = std::fabs(value);
  int exponent = size == 0 ? 1 - bias : std::max(std::ilogb(size), 1 - bias);
  if (std::isinf(size)) exponent = bias + 1;
  const float scaled = std::nearbyint(std::ldexp(size, format.mantissa_bits - exponent));
  if (std::ldexp(scaled, exponent - format.mantissa_bits) > format.largest) {
    const unsigned infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
    if (!saturate) return sign | infinity;
    return sign | (format.infinities ? infinity - 1 : all_ones - 1);
  }
  // Adding instead of joining: a mantissa that was rounded up to the next power carries into the
  // exponent.
  const auto digits = static_cast<unsigned>(scaled);
  const unsigned hidden = 1u << format.mantissa_bits;
  if (digits < hidden) return sign | digits;
  return sign |
         ((static_cast<unsigned>(exponent + bias) << format.mantissa_bits) + (digits - hidden));
}

template <std::size_t size>
std::array<float, size> table_of(const SmallFormat& format) {
  std::array<float, size> table{};
  for (unsigned bits = 0; bits < size; ++bits) table[bits] = decode(format, bits);
  return table;
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

bool is_fp8(int type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

bool is_fp4(int type) {
  return type == CUDA_R_4F_E2M1;
}

int element_bytes(int type) {
  switch (type) {
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return 1;
    case CUDA_R_16BF:
    case CUDA_R_16F:
      return 2;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_64F:
      return 8;
    default:
      return 0;
  }
}

float load_element(const void* data, int type, std::int64_t index) {
  static const auto e4m3 = table_of<256>(kE4M3);
  static const auto e5m2 = table_of<256>(kE5M2);
  static const auto fp16 = table_of<65536>(kFP16);
  switch (type) {
    case CUDA_R_8F_E4M3:
      return e4m3[static_cast<const std::uint8_t*>(data)[index]];
    case CUDA_R_8F_E5M2:
      return e5m2[static_cast<const std::uint8_t*>(data)[index]];
    case CUDA_R_16F:
      return fp16[static_cast<const std::uint16_t*>(data)[index]];
    case CUDA_R_16BF: {
      const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[index];
      return std::bit_cast<float>(bits << 16);
    }
    case CUDA_R_64F:
      return static_cast<float>(static_cast<const double*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

void store_element(void* data, int type, std::int64_t index, float value) {
  switch (type) {
    case CUDA_R_8F_E4M3:
      static_cast<std::uint8_t*>(data)[index] =
          static_cast<std::uint8_t>(encode(kE4M3, value, true));
      break;
    case CUDA_R_8F_E5M2:
      static_cast<std::uint8_t*>(data)[index] =
          static_cast<std::uint8_t>(encode(kE5M2, value, true));
      break;
    case CUDA_R_16F:
      static_cast<std::uint16_t*>(data)[index] =
          static_cast<std::uint16_t>(encode(kFP16, value, false));
      break;
    case CUDA_R_16BF:
      static_cast<std::uint16_t*>(data)[index] = to_bf16(value);
      break;
    case CUDA_R_64F:
      static_cast<double*>(data)[index] = value;
      break;
    default:
      static_cast<float*>(data)[index] = value;
  }
}

}  // namespace octavo::fake_cuda
