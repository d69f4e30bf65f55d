#include "fp8/nvfp4.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace octavo::fp8 {
namespace {

constexpr uint8_t kSign = 8;
constexpr uint8_t kLargest = 7;
constexpr float kMost = std::numeric_limits<float>::max();
constexpr float kLargestProduct = 448 * 6;

uint8_t with_sign(uint8_t magnitude, float value) {
  return static_cast<uint8_t>(magnitude | (std::signbit(value) ? kSign : 0));
}

// The code at or below a magnitude.
uint8_t code_below(float magnitude) {
  uint8_t code = 0;
  while (code < kLargest && kE2M1Values[code + 1] <= magnitude) ++code;
  return code;
}

struct Blocks {
  int64_t height, across;  // rows of a block, blocks beside each other
  int64_t down;
  size_t of(int64_t row, int64_t column) const {
    return static_cast<size_t>(row / height * across + column / kNvfp4Block);
  }
};

Blocks blocks_of(Nvfp4Blocks kind, int64_t rows, int64_t columns) {
  const int64_t height = kind == Nvfp4Blocks::k16x16 ? kNvfp4Block : 1;
  return {height, (columns + kNvfp4Block - 1) / kNvfp4Block, (rows + height - 1) / height};
}

float global_scale(float amax) {
  const float scale = std::min(kLargestProduct / amax, kMost);
  return amax == 0 || scale == 0 ? 1 : scale;
}

float to_bf16(float value) {
  if (std::isnan(value)) return value;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}

// Draws for one element after the other.
class Bytes {
 public:
  explicit Bytes(const Nvfp4Rounding& rounding) : rounding_(rounding) {}
  uint8_t at(uint64_t element) {
    if (element / 16 != block_) {
      block_ = element / 16;
      words_ = philox(rounding_.seed, rounding_.stream, block_);
    }
    return static_cast<uint8_t>(words_[element % 16 / 4] >> (8 * (element % 4)));
  }

 private:
  const Nvfp4Rounding& rounding_;
  uint64_t block_ = ~uint64_t{0};
  std::array<uint32_t, 4> words_{};
};

}  // namespace

uint8_t encode_e2m1(float value) {
  if (std::isnan(value)) return kLargest;
  const float magnitude = std::fabs(value);
  const uint8_t below = code_below(magnitude);
  if (below == kLargest) return with_sign(kLargest, value);
  const float middle = (kE2M1Values[below] + kE2M1Values[below + 1]) / 2;
  const bool up = magnitude > middle || (magnitude == middle && below % 2 == 1);
  return with_sign(static_cast<uint8_t>(below + (up ? 1 : 0)), value);
}

uint8_t encode_e2m1_stochastic(float value, uint8_t random_bits) {
  if (std::isnan(value)) return kLargest;
  const float magnitude = std::fabs(value);
  const uint8_t below = code_below(magnitude);
  if (below == kLargest) return with_sign(kLargest, value);
  const double step = static_cast<double>(kE2M1Values[below + 1]) - kE2M1Values[below];
  const double way = (static_cast<double>(magnitude) - kE2M1Values[below]) / step;
  const bool up = way + random_bits / 256.0 >= 1;
  return with_sign(static_cast<uint8_t>(below + (up ? 1 : 0)), value);
}

Nvfp4 quantize_nvfp4(std::span<const float> values, int64_t rows, int64_t columns, Nvfp4Blocks kind,
                     const Nvfp4Rounding& rounding) {
  OCTAVO_ASSERT(std::ssize(values) == rows * columns);
  const Blocks blocks = blocks_of(kind, rows, columns);
  std::vector<float> amax(static_cast<size_t>(blocks.down * blocks.across), 0);
  Nvfp4 result;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      // As the GPU's maximum, which takes the number where the other is NaN. Not std::fmax: of a
      // signalling NaN it makes a number on x86 and a NaN on aarch64.
      float& largest = amax[blocks.of(r, c)];
      const float magnitude = std::fabs(values[static_cast<size_t>(r * columns + c)]);
      if (magnitude > largest) largest = magnitude;
      if (largest > result.amax) result.amax = largest;
    }
  const float global = global_scale(result.amax);
  const float of_block = global * (1.0f / 6), inverse = 1 / global;
  std::vector<float> encode;
  for (const float largest : amax) {
    const uint8_t scale = fp8::encode(Format::kE4M3, largest * of_block);
    result.scales.push_back(scale);
    encode.push_back(std::min(1 / (decode(Format::kE4M3, scale) * inverse), kMost));
  }
  result.codes.resize(values.size());
  Bytes bytes(rounding);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const auto i = static_cast<size_t>(r * columns + c);
      const float scaled = values[i] * encode[blocks.of(r, c)];
      result.codes[i] =
          rounding.stochastic ? encode_e2m1_stochastic(scaled, bytes.at(i)) : encode_e2m1(scaled);
    }
  return result;
}

std::vector<float> scaled_values(const Nvfp4& quantized, int64_t rows, int64_t columns,
                                 Nvfp4Blocks kind) {
  const Blocks blocks = blocks_of(kind, rows, columns);
  std::vector<float> values;
  values.reserve(quantized.codes.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      values.push_back(decode_e2m1(quantized.codes[static_cast<size_t>(r * columns + c)]) *
                       decode(Format::kE4M3, quantized.scales[blocks.of(r, c)]));
  return values;
}

float nvfp4_alpha(float amax_a, float amax_b) {
  constexpr float kInverse = 1.0f / (36 * 448 * 448);
  return amax_a * amax_b * kInverse;
}

std::vector<uint8_t> packed(std::span<const uint8_t> codes) {
  std::vector<uint8_t> bytes((codes.size() + 1) / 2, 0);
  for (size_t i = 0; i < codes.size(); ++i)
    bytes[i / 2] = static_cast<uint8_t>(bytes[i / 2] | codes[i] << (4 * (i % 2)));
  return bytes;
}

std::vector<float> rotated(std::span<const float> values) {
  OCTAVO_ASSERT(values.size() % kNvfp4Block == 0);
  constexpr std::array<int, kNvfp4Block> kSigns = {1,  1,  1,  -1, 1,  -1, -1, -1,
                                                   -1, -1, -1, 1,  -1, 1,  -1, -1};
  std::vector<float> result(values.size());
  for (size_t first = 0; first < values.size(); first += kNvfp4Block) {
    std::array<double, kNvfp4Block> sums{};
    for (size_t i = 0; i < kNvfp4Block; ++i)
      sums[i] = kSigns[i] * static_cast<double>(values[first + i]);
    // The sums are exact but for numbers that are 2^30 apart; their order is the fast one.
    for (size_t half = 1; half < kNvfp4Block; half *= 2)
      for (size_t i = 0; i < kNvfp4Block; ++i)
        if ((i & half) == 0) {
          const double a = sums[i], b = sums[i + half];
          sums[i] = a + b;
          sums[i + half] = a - b;
        }
    for (size_t j = 0; j < kNvfp4Block; ++j)
      result[first + j] = to_bf16(static_cast<float>(sums[j] / 4));
  }
  return result;
}

}  // namespace octavo::fp8
