#include "engine/cpu/fp8_kernels.h"

#include <array>
#include <atomic>
#include <mutex>

#include "base/error.h"
#include "engine/cpu/fp8_rows.h"
#include "engine/cpu/parts.h"
#include "fp8/quantize.h"

namespace octavo::engine::cpu {
namespace {

using fp8::Direction;
using fp8::Recipe;

// A decode factor below this puts the smallest code (2^-9) below BF16's normal range.
constexpr float kSmallestSafeDecode = 0x1p-117f;

// The largest number of a block that has a NaN in it.
float slow_amax(const Bf16Matrix& x, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  fp8::Amax amax;
  for (int64_t r = row; r < std::min(row + rows, x.rows); ++r)
    for (int64_t c = column; c < std::min(column + columns, x.columns); ++c)
      amax.add(from_bits(x.row(r)[c]));
  return amax.value;
}

template <class T>
T* at_row(T* data, int64_t row, int64_t columns) {
  return data == nullptr ? nullptr : data + row * columns;
}

RowTarget row_target(const Fp8Target& target, int64_t row, int64_t columns) {
  return {target.side.format, at_row(target.codes, row, columns),
          at_row(target.values, row, columns)};
}

// By a recipe whose scales are powers of two and come from the blocks.
class BlockQuantizer {
 public:
  BlockQuantizer(const Bf16Matrix& x, Recipe recipe, Direction direction, const Fp8Target& target,
                 float* decode)
      : x_(x),
        recipe_(recipe),
        target_(target),
        grid_(fp8::grid_of(target.side.granularity, direction, x.rows, x.columns)),
        zero_(scale_from_amax(recipe, target.side.format, 0, false)),
        decode_(decode) {}

  void run() {
    if (grid_.block_rows == 1)
      run_rows();
    else if (grid_.grid_rows == 1)
      run_one_band(nullptr);
    else
      run_bands(nullptr);
  }

  // Both copies in as few passes over x as their scales allow: a row is quantized along itself
  // while the band that it belongs to is in a cache. `rows` has blocks of one row, this has not.
  void run_with(BlockQuantizer& rows) {
    if (grid_.grid_rows == 1)
      run_one_band(&rows);
    else
      run_bands(&rows);
  }

  BlockCounts counts() const { return {below_range_, infinite_}; }

 private:
  // The scales of one row of the grid.
  struct Scales {
    explicit Scales(int64_t blocks)
        : largest(static_cast<size_t>(blocks)), encode(largest.size()), decode(largest.size()) {}
    std::vector<uint16_t> largest;
    std::vector<float> encode, decode;
    bool are_safe = true;
  };

  void set_scales(int64_t grid_row, Scales& s) {
    const size_t blocks = s.largest.size();
    s.are_safe = usual_scales(s.largest.data(), blocks, target_.side.format, zero_, s.encode.data(),
                              s.decode.data());
    for (size_t b = 0; b < blocks && !s.are_safe; ++b) {
      const fp8::Scale scale = any_scale(s.largest[b], grid_row, static_cast<int64_t>(b));
      s.encode[b] = scale.encode;
      s.decode[b] = scale.decode;
      if (s.largest[b] != 0 && scale.decode < kSmallestSafeDecode)
        below_range_.fetch_add(1, std::memory_order_relaxed);
      if (s.largest[b] == kInfinityBits) infinite_.fetch_add(1, std::memory_order_relaxed);
    }
    std::copy(s.decode.begin(), s.decode.end(), decode_ + grid_row * grid_.grid_columns);
  }
  fp8::Scale any_scale(uint16_t largest, int64_t grid_row, int64_t grid_column) const {
    const bool has_nan = largest > kInfinityBits;
    const float amax = has_nan ? slow_amax(x_, grid_row * grid_.block_rows, grid_.block_rows,
                                           grid_column * grid_.block_columns, grid_.block_columns)
                               : from_bits(largest);
    return scale_from_amax(recipe_, target_.side.format, amax, has_nan);
  }

  // Blocks inside rows: magnitudes, scales and codes while the row is in the first cache.
  void run_rows() {
    for_parts(x_.rows, x_.columns, [&](int64_t, int64_t first, int64_t end) {
      Scales scales(grid_.grid_columns);
      for (int64_t r = first; r < end; ++r) quantize_row(r, scales);
    });
  }
  void quantize_row(int64_t r, Scales& scales) {
    largest_in_blocks(x_.row(r), static_cast<size_t>(x_.columns),
                      static_cast<size_t>(grid_.block_columns), scales.largest.data());
    set_scales(r, scales);
    encode_row_of_blocks(r, scales);
  }

  // Blocks of several rows: first the largest magnitude of every column of the band. With `rows`,
  // its copy on the way.
  void run_bands(BlockQuantizer* rows) {
    const int64_t grain = grain_of_rows(grid_.block_rows * x_.columns);
    parallel_for(0, grid_.grid_rows, grain, [&](int64_t begin, int64_t stop) {
      Scales scales(grid_.grid_columns), of_row(rows != nullptr ? rows->grid_.grid_columns : 0);
      std::vector<uint16_t> columns(static_cast<size_t>(x_.columns));
      for (int64_t band = begin; band < stop; ++band) {
        const int64_t first = band * grid_.block_rows;
        const int64_t end = std::min(first + grid_.block_rows, x_.rows);
        std::fill(columns.begin(), columns.end(), uint16_t{0});
        raise_by_rows(first, end, columns, rows, of_row);
        set_scales_of_columns(band, columns, scales);
        encode_rows(first, end, scales);
      }
    });
  }

  void raise_by_rows(int64_t first, int64_t end, std::vector<uint16_t>& columns,
                     BlockQuantizer* rows, Scales& of_row) {
    for (int64_t r = first; r < end; ++r) {
      raise_largest(x_.row(r), x_.columns, columns.data());
      if (rows != nullptr) rows->quantize_row(r, of_row);
    }
  }

  // One band alone: its magnitudes are worth several threads.
  void run_one_band(BlockQuantizer* rows) {
    std::vector<uint16_t> columns(static_cast<size_t>(x_.columns), 0);
    std::mutex mutex;
    for_parts(x_.rows, x_.columns, [&](int64_t, int64_t first, int64_t end) {
      std::vector<uint16_t> mine(columns.size(), 0);
      Scales of_row(rows != nullptr ? rows->grid_.grid_columns : 0);
      raise_by_rows(first, end, mine, rows, of_row);
      const std::lock_guard lock(mutex);  // a maximum does not depend on the order
      raise_largest(mine.data(), x_.columns, columns.data());
    });
    Scales scales(grid_.grid_columns);
    set_scales_of_columns(0, columns, scales);
    for_parts(x_.rows, x_.columns,
              [&](int64_t, int64_t first, int64_t end) { encode_rows(first, end, scales); });
  }

  void set_scales_of_columns(int64_t band, const std::vector<uint16_t>& columns, Scales& scales) {
    if (grid_.block_columns == 1)
      scales.largest = columns;
    else
      largest_in_blocks(columns.data(), columns.size(), static_cast<size_t>(grid_.block_columns),
                        scales.largest.data());
    set_scales(band, scales);
  }

  void encode_rows(int64_t first, int64_t end, const Scales& scales) {
    for (int64_t r = first; r < end; ++r) {
      if (grid_.block_columns > 1)
        encode_row_of_blocks(r, scales);
      else
        encode_each(x_.row(r), static_cast<size_t>(x_.columns), scales.encode.data(),
                    scales.decode.data(), scales.are_safe, row_target(target_, r, x_.columns));
    }
  }

  void encode_row_of_blocks(int64_t r, const Scales& scales) {
    const RowTarget target = row_target(target_, r, x_.columns);
    if (scales.are_safe) {
      encode_blocks(x_.row(r), static_cast<size_t>(x_.columns),
                    static_cast<size_t>(grid_.block_columns), scales.encode.data(),
                    scales.decode.data(), target);
      return;
    }
    for (size_t b = 0; b < scales.encode.size(); ++b) {
      const int64_t column = static_cast<int64_t>(b) * grid_.block_columns;
      const int64_t n = std::min(grid_.block_columns, x_.columns - column);
      encode_one(x_.row(r) + column, static_cast<size_t>(n), {scales.encode[b], scales.decode[b]},
                 false, target.after(column));
    }
  }

  const Bf16Matrix& x_;
  Recipe recipe_;
  const Fp8Target& target_;
  fp8::Grid grid_;
  fp8::Scale zero_;  // of a block of zeros
  float* decode_;
  std::atomic<int64_t> below_range_ = 0, infinite_ = 0;
};

}  // namespace

uint16_t largest_bits(const Bf16Matrix& x) {
  std::array<uint16_t, kMaxParts> parts{};
  for_parts(x.rows, x.columns, [&](int64_t part, int64_t first, int64_t end) {
    parts[static_cast<size_t>(part)] = largest_in(x.row(first), (end - first) * x.columns);
  });
  return *std::max_element(parts.begin(), parts.end());
}

float amax_of_numbers(const Bf16Matrix& x, uint16_t largest) {
  return largest > kInfinityBits ? slow_amax(x, 0, x.rows, 0, x.columns) : from_bits(largest);
}

uint16_t quantize_by_factor(const Bf16Matrix& x, float factor, const Fp8Target& target) {
  const float limit = fp8::max_value(target.side.format) * (1 + 0x1p-20f);  // rounds to the largest
  std::array<uint16_t, kMaxParts> parts{};
  for_parts(x.rows, x.columns, [&](int64_t part, int64_t first, int64_t end) {
    uint16_t largest = 0;
    for (int64_t r = first; r < end; ++r) {
      const uint16_t most = largest_in(x.row(r), x.columns);
      const bool safe = most < kInfinityBits && from_bits(most) * factor <= limit;
      // Codes times a scale that is no power of two are no BF16 values: theirs are not decoded.
      encode_one(x.row(r), static_cast<size_t>(x.columns), {factor, 1.0f}, safe,
                 row_target(target, r, x.columns));
      largest = std::max(largest, most);
    }
    parts[static_cast<size_t>(part)] = largest;
  });
  return *std::max_element(parts.begin(), parts.end());
}

BlockCounts quantize_blocks(const Bf16Matrix& x, Recipe recipe, Direction direction,
                            const Fp8Target& target, float* decode) {
  BlockQuantizer quantizer(x, recipe, direction, target, decode);
  quantizer.run();
  return quantizer.counts();
}

std::pair<BlockCounts, BlockCounts> quantize_both(const Bf16Matrix& x, Recipe recipe,
                                                  const Fp8Target& row, float* row_decode,
                                                  const Fp8Target& column, float* column_decode) {
  BlockQuantizer rows(x, recipe, Direction::kRow, row, row_decode),
      columns(x, recipe, Direction::kColumn, column, column_decode);
  columns.run_with(rows);
  return {rows.counts(), columns.counts()};
}

void decode_codes(const Fp8Codes& codes, const fp8::Grid& grid, const float* decode,
                  uint16_t* values) {
  const auto columns = static_cast<size_t>(codes.columns);
  const auto block = static_cast<size_t>(grid.block_columns);
  for_parts(codes.rows, codes.columns, [&](int64_t, int64_t first, int64_t end) {
    for (int64_t r = first; r < end; ++r) {
      const uint8_t* in = at_row(codes.data, r, codes.columns);
      uint16_t* out = at_row(values, r, codes.columns);
      const float* scales = at_row(decode, r / grid.block_rows, grid.grid_columns);
      if (scales == nullptr)
        decode_one(codes.format, in, columns, 1.0f, out);
      else if (block == 1)
        decode_each(codes.format, in, columns, scales, out);
      else
        for (size_t column = 0, b = 0; column < columns; column += block, ++b)
          decode_one(codes.format, in + column, std::min(block, columns - column), scales[b],
                     out + column);
    }
  });
}

bool can_decode_pairs(const fp8::Grid& grid, const float* decode) {
  return decode == nullptr ||
         (grid.block_columns == 1 && (grid.block_rows % 2 == 0 || grid.grid_rows == 1));
}

void decode_pairs(const Fp8Codes& codes, const fp8::Grid& grid, const float* decode,
                  const PairedLayout& layout, uint16_t* values) {
  constexpr int64_t kRows = PairedLayout::kRows, kColumns = PairedLayout::kColumns;
  OCTAVO_ASSERT(can_decode_pairs(grid, decode) && codes.rows % kRows == 0 &&
                codes.columns % kColumns == 0);
  const auto decode_two = [&](int64_t r) {
    const uint8_t* in = at_row(codes.data, r, codes.columns);
    const float* scales = at_row(decode, r / grid.block_rows, grid.grid_columns);
    uint16_t* out = values + r / kRows * layout.row_step + r % kRows * kColumns;
    for (int64_t c = 0; c < codes.columns; c += kColumns, out += layout.column_step)
      decode_pair(codes.format, in + c, in + codes.columns + c, kColumns,
                  scales == nullptr ? nullptr : scales + c, out);
  };
  const int64_t grain = grain_of_rows(2 * codes.columns);
  parallel_for(0, codes.rows / 2, grain, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) decode_two(2 * pair);
  });
}

}  // namespace octavo::engine::cpu
