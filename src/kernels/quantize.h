#pragma once
// Codes of matrices, E4M3 or E5M2 with one scale per tensor, and the same transposed, of many
// matrices in one launch; of a single one also the sums of its columns, which are a bias's
// gradient. As nvte_multi_cast_transpose and nvte_quantize_dbias of Transformer Engine, but the
// second takes another launch there.
//
// Bytes of an element: 2 read, 1 written for each copy. A block has a tile of 128 x 128, a thread
// eight rows of eight columns of it.

#include "kernels/block_table.h"
#include "kernels/fp8_encode.h"
#include "kernels/last_block.h"
#include "kernels/portable.h"
#include "kernels/reduce.h"

namespace octavo::kernels {

struct QuantizeTensor {
  const Bf16* x = nullptr;          // [rows, columns]
  uint8_t* codes = nullptr;         // the same shape; or null
  uint8_t* column_codes = nullptr;  // transposed; or null
  const float* scale = nullptr;     // x is multiplied with it
  float* inverse = nullptr;         // becomes 1 / *scale; or null
  uint32_t* amax = nullptr;  // raised to the largest magnitude of x, as float32 bits; or null
  int32_t rows = 0, columns = 0;
  int32_t first_block = 0;  // of the launch: see plan_quantize()
};

// By value: the table goes with the launch, which has room for 4 KB.
struct QuantizeArguments {
  static constexpr int kMost = 60;
  QuantizeTensor tensors[kMost];
  int32_t count;
  bool adds;          // to the sums, else overwrites them
  float* sums;        // [columns] of the one tensor; or null
  float* parts;       // see quantize_scratch()
  uint32_t* tickets;  // zeros; see quantize_scratch()
};
static_assert(sizeof(QuantizeArguments) <= 4096);

constexpr int kQuantizeTile = 128;
constexpr int32_t quantize_tiles(int64_t length) {
  return static_cast<int32_t>((length + kQuantizeTile - 1) / kQuantizeTile);
}

template <fp8::Format kFormat>
struct QuantizeKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kHasBarriers = true;
  static constexpr int kGroups = kQuantizeTile / kLane;  // of eight rows, and of eight columns
  static_assert(kThreads == kGroups * kGroups && kWarp == 2 * kGroups);

  using Arguments = QuantizeArguments;
  struct Shared {
    // Of column c the codes of the rows 8 s to 8 s + 7 are at [c][s ^ (c / 8)]: so neighbouring
    // threads, which have neighbouring groups of columns, write to different banks.
    Bits64 codes[kQuantizeTile][kGroups];
    float sums[kThreads / kWarp][kQuantizeTile];
    QuantizeTensor tensor;
    uint32_t answer;
  };
  struct Tile {
    int64_t row, column;           // where it begins
    int32_t row_tile, tile_count;  // of all tiles of these columns
    int32_t column_tile;
  };

  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    if (block.thread() == 0) shared.tensor = entry_of_block(a.tensors, a.count, block.index());
    block.barrier();
    const QuantizeTensor& t = shared.tensor;
    const int32_t across = quantize_tiles(t.columns);
    const auto number = static_cast<int32_t>(block.index()) - t.first_block;
    const Tile tile{int64_t{number / across} * kQuantizeTile,
                    int64_t{number % across} * kQuantizeTile, number / across,
                    quantize_tiles(t.rows), number % across};
    float sums[kLane];
    const uint32_t largest = encode_tile(block, shared, tile, sums);
    if (number == 0 && block.thread() == 0 && t.inverse != nullptr) *t.inverse = 1.0f / *t.scale;
    if (t.amax != nullptr) {
      const uint32_t joined =
          join_lanes<kWarp>(block, largest, [](uint32_t x, uint32_t y) { return x > y ? x : y; });
      if (block.thread() % kWarp == 0) block.atomic_max(t.amax, joined);
    }
    if (a.sums != nullptr) add_sums(block, shared, a, tile, sums);
    if (t.column_codes == nullptr) return;
    block.barrier();
    store_transposed(block, shared, tile);
  }

 private:
  // The eight rows and columns of a thread. Returns the largest magnitude.
  template <class Block>
  static OCTAVO_KERNEL_BODY uint32_t encode_tile(const Block& block, Shared& shared,
                                                 const Tile& tile, float (&sums)[kLane]) {
    const QuantizeTensor& t = shared.tensor;
    const int group = block.thread() % kGroups, row_group = block.thread() / kGroups;
    const int64_t column = tile.column + group * kLane, row = tile.row + row_group * kLane;
    const int64_t there = t.columns - column;
    const float scale = *t.scale;
    uint8_t codes[kLane][kLane];  // by column
    uint32_t largest = 0;
    for (int k = 0; k < kLane; ++k) sums[k] = 0;
    OCTAVO_UNROLL
    for (int r = 0; r < kLane; ++r) {
      float x[kLane];
      load(t.x + (row + r) * t.columns + column, row + r < t.rows ? there : 0, 0, x);
      uint8_t of_row[kLane];
      OCTAVO_UNROLL
      for (int k = 0; k < kLane; ++k) {
        const uint32_t magnitude = std::bit_cast<uint32_t>(x[k]) & 0x7FFFFFFF;
        if (magnitude <= 0x7F800000 && magnitude > largest) largest = magnitude;
        sums[k] += x[k];
        of_row[k] = codes[k][r] = encode_nearest<kFormat>(x[k] * scale);
      }
      if (t.codes != nullptr && row + r < t.rows)
        store_bytes(of_row, there, t.codes + (row + r) * t.columns + column);
    }
    OCTAVO_UNROLL
    for (int k = 0; k < kLane; ++k)
      shared.codes[group * kLane + k][row_group ^ group] = packed_bytes(codes[k]);
    return largest;
  }

  // A thread has sixteen rows of a column at a time: two neighbouring places, in either order.
  template <class Block>
  static OCTAVO_KERNEL_BODY void store_transposed(const Block& block, const Shared& shared,
                                                  const Tile& tile) {
    const QuantizeTensor& t = shared.tensor;
    constexpr int kPairs = kGroups / 2;
    for (int c = block.thread() / kPairs; c < kQuantizeTile; c += kThreads / kPairs) {
      if (tile.column + c >= t.columns) return;
      const int pair = block.thread() % kPairs, group = c / kLane;
      const Bits64 first = shared.codes[c][(2 * pair) ^ group],
                   second = shared.codes[c][(2 * pair + 1) ^ group];
      const int64_t row = tile.row + pair * 2 * kLane, there = t.rows - row;
      uint8_t* to = t.column_codes + (tile.column + c) * t.rows + row;
      if (there >= 2 * kLane && is_aligned(to, 16)) {
        store128({{first.word[0], first.word[1], second.word[0], second.word[1]}}, to);
        continue;
      }
      OCTAVO_UNROLL
      for (int i = 0; i < 2 * kLane; ++i) {
        const uint32_t word = (i < kLane ? first : second).word[i % kLane / 4];
        if (i < there) to[i] = static_cast<uint8_t>(word >> (8 * (i % 4)));
      }
    }
  }

  // Over the rows of the tile, then by the last block of these columns over all tiles.
  template <class Block>
  static OCTAVO_KERNEL_BODY void add_sums(Block& block, Shared& shared, const Arguments& a,
                                          const Tile& tile, const float (&sums)[kLane]) {
    const int warp = block.thread() / kWarp, group = block.thread() % kGroups;
    for (int k = 0; k < kLane; ++k) {
      const float both = sums[k] + block.shuffle_xor(sums[k], kGroups);
      if (block.thread() % kWarp < kGroups) shared.sums[warp][group * kLane + k] = both;
    }
    block.barrier();
    const int64_t column = tile.column + block.thread(), columns = shared.tensor.columns;
    const bool mine = block.thread() < kQuantizeTile && column < columns;
    if (mine) {
      float total = shared.sums[0][block.thread()];
      for (int w = 1; w < kThreads / kWarp; ++w) total += shared.sums[w][block.thread()];
      a.parts[int64_t{tile.row_tile} * columns + column] = total;
    }
    if (!is_last_block(block, a.tickets + tile.column_tile, static_cast<uint32_t>(tile.tile_count),
                       shared.answer) ||
        !mine)
      return;
    float total = a.adds ? a.sums[column] : 0.0f;
    for (int32_t i = 0; i < tile.tile_count; ++i) total += a.parts[i * columns + column];
    a.sums[column] = total;
  }
};

}  // namespace octavo::kernels
