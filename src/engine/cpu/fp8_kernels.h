#pragma once
// Quantizing BF16 matrices and taking codes back to BF16, by Highway. Same bits as
// fp8/quantize.cpp.

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/cpu/gemm.h"
#include "fp8/health.h"
#include "fp8/recipe.h"

namespace octavo::engine::cpu {

inline float from_bits(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

struct Bf16Matrix {
  const uint16_t* data;
  int64_t rows, columns;
  const uint16_t* row(int64_t r) const { return data + r * columns; }
};

// Where results go. `codes` and `values` are [rows, columns] and may be null. Values are codes
// times their decode factor when that is a power of two, else the codes' own values.
struct Fp8Target {
  fp8::Side side;
  uint8_t* codes = nullptr;
  uint16_t* values = nullptr;
};

// The largest magnitude of a matrix as BF16 bits; NaN counts as larger than infinity.
uint16_t largest_bits(const Bf16Matrix& x);
// The same of the numbers alone, as a float.
float amax_of_numbers(const Bf16Matrix& x, uint16_t largest);

// With one factor for all. Returns the largest magnitude as largest_bits() does.
uint16_t quantize_by_factor(const Bf16Matrix& x, float factor, const Fp8Target& target);

// By a recipe that takes its scales from the blocks; `decode` (grid.count() floats) receives them.
struct BlockCounts {
  int64_t below_range = 0;  // blocks that hold values below BF16's normal range
  int64_t infinite = 0;     // blocks with an infinity
};
BlockCounts quantize_blocks(const Bf16Matrix& x, fp8::Recipe recipe, fp8::Direction direction,
                            const Fp8Target& target, float* decode);
// The same of both directions (row, column) in one go, of a recipe whose row blocks have one row
// and whose column blocks have several.
std::pair<BlockCounts, BlockCounts> quantize_both(const Bf16Matrix& x, fp8::Recipe recipe,
                                                  const Fp8Target& row, float* row_decode,
                                                  const Fp8Target& column, float* column_decode);

// Codes to BF16 values. `decode` may be null: the codes' own values.
struct Fp8Codes {
  const uint8_t* data;
  int64_t rows, columns;
  fp8::Format format;
};
void decode_codes(const Fp8Codes& codes, const fp8::Grid& grid, const float* decode,
                  uint16_t* values);
// The same into the order in which a GEMM reads them, of codes whose factors are those of columns:
// blocks one column wide and an even number of rows high, or none.
bool can_decode_pairs(const fp8::Grid& grid, const float* decode);
void decode_pairs(const Fp8Codes& codes, const fp8::Grid& grid, const float* decode,
                  const PairedLayout& layout, uint16_t* values);

// What quantizing did: `values` as a target's. `decode` has a factor per block of the grid, which
// the values still want to be multiplied with unless `values_are_decoded`.
struct Fp8Scales {
  fp8::Format format;
  fp8::Grid grid;
  const float* decode;
  bool values_are_decoded;
  float rest = 1;  // what values that are decoded still want (nvfp4)
};
fp8::TensorHealth measure(const Bf16Matrix& x, const uint16_t* values, const Fp8Scales& scales);

}  // namespace octavo::engine::cpu
