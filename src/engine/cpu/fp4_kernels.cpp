#include "engine/cpu/fp4_kernels.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "base/error.h"
#include "engine/cpu/fp4_rows.h"
#include "engine/cpu/fp8_rows.h"
#include "engine/cpu/parts.h"

namespace octavo::engine::cpu {
namespace {

using fp8::Direction;
using fp8::Granularity;
using fp8::kNvfp4Block;

uint16_t to_bits(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);  // of a BF16 number
}

// By the definition: shapes that end within a block, and matrices with a NaN. `x` is rotated
// already.
class PlainFp4 {
 public:
  PlainFp4(const Bf16Matrix& x, const Fp4Request& request)
      : rows_(x.rows), columns_(x.columns), turned_(request.direction == Direction::kColumn) {
    std::vector<float> values(static_cast<size_t>(rows_ * columns_));
    for (int64_t i = 0; i < rows_ * columns_; ++i)
      values[place(i / columns_, i % columns_)] = from_bits(x.data[i]);
    blocks_ = request.granularity == Granularity::kSquare16 ? fp8::Nvfp4Blocks::k16x16
                                                            : fp8::Nvfp4Blocks::k1x16;
    made_ = fp8::quantize_nvfp4(values, height(), width(), blocks_, request.rounding);
  }

  float amax() const { return made_.amax; }

  void write(const Fp4Request& request, const Fp4Target& target) const {
    const auto numbers = fp8::scaled_values(made_, height(), width(), blocks_);
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < columns_; ++c) {
        const int64_t at = r * columns_ + c;
        const uint8_t code = made_.codes[place(r, c)];
        if (target.codes != nullptr)
          target.codes[at] = static_cast<uint8_t>((code & 7) | (code & 8) << 4);
        if (target.values != nullptr) target.values[at] = to_bits(numbers[place(r, c)]);
        if (target.packed == nullptr) continue;
        uint8_t& pair = target.packed[r / 2 * columns_ + c];
        pair = static_cast<uint8_t>(r % 2 == 0 ? code : pair | code << 4);
      }
    const fp8::Grid grid = fp8::grid_of(request.granularity, request.direction, rows_, columns_);
    for (int64_t b = 0; b < grid.count(); ++b) {
      const int64_t row = b / grid.grid_columns, column = b % grid.grid_columns;
      const int64_t from = turned_ ? column * grid.grid_rows + row : b;
      const uint8_t code = made_.scales[static_cast<size_t>(from)];
      target.scales[b] = fp8::decode(fp8::Format::kE4M3, code);
      if (target.scale_codes != nullptr) target.scale_codes[b] = code;
    }
  }

 private:
  int64_t height() const { return turned_ ? columns_ : rows_; }
  int64_t width() const { return turned_ ? rows_ : columns_; }
  size_t place(int64_t row, int64_t column) const {
    return static_cast<size_t>(turned_ ? column * rows_ + row : row * columns_ + column);
  }

  int64_t rows_, columns_;
  bool turned_;
  fp8::Nvfp4Blocks blocks_ = fp8::Nvfp4Blocks::k1x16;
  fp8::Nvfp4 made_;
};

// Whole blocks of numbers.
class FastFp4 {
 public:
  FastFp4(const Bf16Matrix& x, const Fp4Request& request, const Fp4Target& target, float amax)
      : x_(x),
        request_(request),
        target_(target),
        grid_(fp8::grid_of(request.granularity, request.direction, x.rows, x.columns)),
        amax_(amax) {}

  void run() {
    if (grid_.block_rows == 1)
      run_rows();
    else
      run_bands();
  }

 private:
  struct Scales {
    explicit Scales(int64_t blocks)
        : largest(static_cast<size_t>(blocks)), encode(largest.size()) {}
    std::vector<uint16_t> largest;
    std::vector<float> encode;
  };

  // The scales of one row of the grid; decode factors go to their place.
  const float* set_scales(int64_t grid_row, Scales& scales) const {
    const int64_t at = grid_row * grid_.grid_columns;
    float* decode = target_.scales + at;
    fp4_scales(scales.largest.data(), scales.largest.size(), amax_, scales.encode.data(), decode,
               target_.scale_codes == nullptr ? nullptr : target_.scale_codes + at);
    return decode;
  }

  Fp4Row row(int64_t r, const float* encode, const float* decode, const uint8_t* draws) const {
    const int64_t at = r * x_.columns;
    return {.x = x_.row(r),
            .n = static_cast<size_t>(x_.columns),
            .encode = encode,
            .decode = decode,
            .draws = draws,
            .codes = target_.codes == nullptr ? nullptr : target_.codes + at,
            .values = target_.values == nullptr ? nullptr : target_.values + at};
  }

  void run_rows() const {
    const auto columns = static_cast<size_t>(x_.columns);
    const fp8::Nvfp4Rounding& rounding = request_.rounding;
    for_parts(x_.rows, x_.columns, [&](int64_t, int64_t first, int64_t end) {
      Scales scales(grid_.grid_columns);
      std::vector<uint8_t> draws(rounding.stochastic ? columns : 0);
      for (int64_t r = first; r < end; ++r) {
        largest_of_16(x_.row(r), columns, scales.largest.data());
        const float* decode = set_scales(r, scales);
        if (rounding.stochastic)
          fp4_draws(rounding.seed, rounding.stream, static_cast<uint64_t>(r * x_.columns), columns,
                    draws.data());
        encode_fp4_blocks(
            row(r, scales.encode.data(), decode, rounding.stochastic ? draws.data() : nullptr));
      }
    });
  }

  // 16 rows at a time: a scale for each column, or for 16 of them.
  void run_bands() const {
    const auto columns = static_cast<size_t>(x_.columns);
    const bool squares = grid_.block_columns > 1, stochastic = request_.rounding.stochastic;
    const int64_t grain = grain_of_rows(kNvfp4Block * x_.columns);
    parallel_for(0, grid_.grid_rows, grain, [&](int64_t begin, int64_t stop) {
      Scales scales(grid_.grid_columns);
      std::vector<uint16_t> of_columns(columns);
      std::vector<uint8_t> draws(stochastic ? columns * kNvfp4Block : 0),
          codes(target_.packed != nullptr ? columns * kNvfp4Block : 0);
      for (int64_t band = begin; band < stop; ++band) {
        std::fill(of_columns.begin(), of_columns.end(), uint16_t{0});
        for (int64_t k = 0; k < kNvfp4Block; ++k)
          raise_largest(x_.row(band * kNvfp4Block + k), x_.columns, of_columns.data());
        if (squares)
          largest_of_16(of_columns.data(), columns, scales.largest.data());
        else
          scales.largest = of_columns;
        const float* decode = set_scales(band, scales);
        if (stochastic) draw(band, draws.data());
        for (int64_t k = 0; k < kNvfp4Block; ++k) {
          Fp4Row one = row(band * kNvfp4Block + k, scales.encode.data(), decode,
                           stochastic ? draws.data() + k * x_.columns : nullptr);
          if (target_.packed != nullptr) one.codes = codes.data() + k * x_.columns;
          squares ? encode_fp4_blocks(one) : encode_fp4_each(one);
        }
        if (target_.packed != nullptr) pack_band(band, codes.data());
      }
    });
  }

  void pack_band(int64_t band, const uint8_t* codes) const {
    uint8_t* to = target_.packed + band * kNvfp4Block / 2 * x_.columns;
    for (int64_t k = 0; k < kNvfp4Block; k += 2, to += x_.columns)
      pack_fp4(codes + k * x_.columns, codes + (k + 1) * x_.columns,
               static_cast<size_t>(x_.columns), to);
  }

  // A block is of one counter: that of the transposed matrix, or, of squares, of the matrix itself.
  void draw(int64_t band, uint8_t* draws) const {
    const fp8::Nvfp4Rounding& rounding = request_.rounding;
    if (request_.direction == Direction::kColumn)
      fp4_band_draws(rounding.seed, rounding.stream, static_cast<uint32_t>(x_.rows / kNvfp4Block),
                     static_cast<uint32_t>(band), static_cast<size_t>(x_.columns), draws);
    else
      fp4_draws(rounding.seed, rounding.stream,
                static_cast<uint64_t>(band * kNvfp4Block * x_.columns),
                static_cast<size_t>(kNvfp4Block * x_.columns), draws);
  }

  const Bf16Matrix& x_;
  const Fp4Request& request_;
  const Fp4Target& target_;
  fp8::Grid grid_;
  float amax_;
};

bool is_whole(const Bf16Matrix& x, const Fp4Request& request) {
  const bool squares = request.granularity == Granularity::kSquare16;
  const bool by_rows = request.direction == Direction::kRow;
  return (!(squares || by_rows) || x.columns % kNvfp4Block == 0) &&
         (!(squares || !by_rows) || x.rows % kNvfp4Block == 0);
}

// Counters of 32 bits are enough for every matrix that fits into memory.
constexpr int64_t kMostElements = int64_t{1} << 36;

}  // namespace

uint16_t rotate_columns(const Bf16Matrix& x, uint16_t* out) {
  OCTAVO_ASSERT(x.rows % kNvfp4Block == 0);
  const int64_t bands = x.rows / kNvfp4Block;
  std::array<uint16_t, kMaxParts> parts{};
  for_parts(bands, kNvfp4Block * x.columns, [&](int64_t part, int64_t first, int64_t end) {
    std::vector<uint16_t> largest(static_cast<size_t>(x.columns));
    uint16_t most = 0;
    for (int64_t band = first; band < end; ++band) {
      const int64_t at = band * kNvfp4Block * x.columns;
      rotate_band(x.data + at, largest.size(), largest.size(), out + at, largest.data());
      most = std::max(most, *std::ranges::max_element(largest));
    }
    parts[static_cast<size_t>(part)] = most;
  });
  return *std::ranges::max_element(parts);
}

Fp4Done quantize_fp4(const Bf16Matrix& x, const Fp4Request& request, const Fp4Target& target) {
  OCTAVO_ASSERT(x.rows > 0 && x.columns > 0 && x.rows * x.columns < kMostElements);
  OCTAVO_ASSERT(target.packed == nullptr || (target.codes == nullptr && x.rows % 2 == 0 &&
                                             request.direction == Direction::kColumn));
  Bf16Matrix from = x;
  std::unique_ptr<uint16_t[]> scratch;
  uint16_t largest = 0;
  if (request.rotate) {
    OCTAVO_ASSERT(request.direction == Direction::kColumn);
    uint16_t* rotated = target.values;  // it is read before it is written there
    if (rotated == nullptr) {
      scratch = std::make_unique_for_overwrite<uint16_t[]>(static_cast<size_t>(x.rows * x.columns));
      rotated = scratch.get();
    }
    largest = rotate_columns(x, rotated);
    from.data = rotated;
  } else {
    largest = largest_bits(x);
  }
  if (largest > kInfinityBits || !is_whole(x, request) || fp4_lanes() > kNvfp4Block) {
    const PlainFp4 plain(from, request);
    plain.write(request, target);
    return {largest, plain.amax()};
  }
  FastFp4(from, request, target, from_bits(largest)).run();
  return {largest, from_bits(largest)};
}

void decode_packed(const Fp4Packed& codes, uint16_t* values) {
  const auto columns = static_cast<size_t>(codes.columns);
  parallel_for(
      0, codes.rows / 2, grain_of_rows(2 * codes.columns), [&](int64_t begin, int64_t end) {
        for (int64_t pair = begin; pair < end; ++pair)
          unpack_fp4(codes.data + pair * codes.columns, columns,
                     codes.scales + 2 * pair / kNvfp4Block * codes.columns,
                     values + 2 * pair * codes.columns, values + (2 * pair + 1) * codes.columns);
      });
}

void decode_packed_pairs(const Fp4Packed& codes, const PairedLayout& layout, uint16_t* values) {
  constexpr int64_t kRows = PairedLayout::kRows, kColumns = PairedLayout::kColumns;
  OCTAVO_ASSERT(codes.rows % kRows == 0 && codes.columns % kColumns == 0);
  parallel_for(0, codes.rows / 2, grain_of_rows(2 * codes.columns),
               [&](int64_t begin, int64_t end) {
                 for (int64_t pair = begin; pair < end; ++pair) {
                   const int64_t r = 2 * pair;
                   const uint8_t* in = codes.data + pair * codes.columns;
                   const float* scales = codes.scales + r / kNvfp4Block * codes.columns;
                   uint16_t* out = values + r / kRows * layout.row_step + r % kRows * kColumns;
                   for (int64_t c = 0; c < codes.columns; c += kColumns, out += layout.column_step)
                     unpack_fp4_pairs(in + c, kColumns, scales + c, out);
                 }
               });
}

float fp4_rest(float amax) {
  const float scale = std::min(448.0f * 6 / amax, std::numeric_limits<float>::max());
  return amax == 0 || scale == 0 ? 1 : 1 / scale;
}

}  // namespace octavo::engine::cpu
