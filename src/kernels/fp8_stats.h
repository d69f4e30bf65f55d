#pragma once
// What quantizing did to a BF16 matrix: the stats of fp8/health.h, in two launches and without the
// host. Bytes of an element: 2 for its value, 1 for its code; once every fp8_stats_freq steps.

#include "kernels/fp8_encode.h"
#include "kernels/portable.h"
#include "kernels/reduce.h"

namespace octavo::kernels {

constexpr int kStats = 10;  // as fp8::kHealthStats
constexpr int64_t kMostStatsBlocks = 512;

struct Fp8Stats {
  int64_t place = INT64_MAX;  // of the largest magnitude: the first element that has it
  double signal = 0, noise = 0;
  float amax = 0, decode = 1;  // decode: of the block that has the amax
  uint32_t nonzero = 0, nan = 0, inf = 0, saturated = 0, underflowed = 0;
  uint32_t elements = 0;

  OCTAVO_ON_BOTH Fp8Stats joined(const Fp8Stats& other) const {
    const bool mine = amax > other.amax || (amax == other.amax && place < other.place);
    Fp8Stats all = mine ? *this : other;
    all.signal = signal + other.signal;
    all.noise = noise + other.noise;
    all.nonzero = nonzero + other.nonzero;
    all.nan = nan + other.nan;
    all.inf = inf + other.inf;
    all.saturated = saturated + other.saturated;
    all.underflowed = underflowed + other.underflowed;
    all.elements = elements + other.elements;
    return all;
  }
};

// Of at most 2^32 - 1 elements.
struct Fp8StatsArguments {
  const Bf16* x;         // [rows, columns]
  const uint8_t* codes;  // the same
  const float* decode;   // [grid rows, grid_columns]
  Fp8Stats* parts;       // one for each block of the launch
  int64_t rows;
  int32_t columns;
  int32_t block_rows, block_columns, grid_columns;  // as fp8::Grid
};

template <fp8::Format kFormat>
struct Fp8StatsKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kHasBarriers = true;

  using Arguments = Fp8StatsArguments;
  struct Shared {
    Fp8Stats per_warp[kThreads / kWarp];
  };

  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    Fp8Stats stats;
    for (int64_t row = block.index(); row < a.rows; row += block.count()) {
      const float* decode = a.decode + row / a.block_rows * a.grid_columns;
      for (int32_t c = block.thread() * kLane; c < a.columns; c += kThreads * kLane) {
        float x[kLane];
        uint8_t codes[kLane];
        const int64_t at = row * a.columns + c;
        load(a.x + at, a.columns - c, 0, x);
        load_bytes(a.codes + at, a.columns - c, codes);
        for (int k = 0; k < kLane; ++k)
          if (c + k < a.columns)
            add(stats, x[k], codes[k], decode[(c + k) / a.block_columns], at + k);
      }
    }
    stats =
        join_threads<kThreads>(block, shared.per_warp, stats,
                               [](const Fp8Stats& p, const Fp8Stats& q) { return p.joined(q); });
    if (block.thread() == 0) a.parts[block.index()] = stats;
  }

 private:
  // The smallest magnitude that rounds past the largest value. E4M3's tie, 464, goes down to 448;
  // E5M2's, 61440, goes up.
  static constexpr float kFirstSaturated = kFormat == fp8::Format::kE4M3 ? 464.00003f : 61440.0f;

  static OCTAVO_KERNEL_BODY void add(Fp8Stats& s, float x, uint8_t code, float decode,
                                     int64_t place) {
    ++s.elements;
    const uint32_t magnitude_bits = std::bit_cast<uint32_t>(x) & 0x7FFFFFFF;
    s.nonzero += magnitude_bits != 0;
    if (magnitude_bits > 0x7F800000) {
      ++s.nan;
      return;
    }
    const float magnitude = std::bit_cast<float>(magnitude_bits);
    if (magnitude > s.amax || s.place == INT64_MAX) {
      s.amax = magnitude;
      s.decode = decode;
      s.place = place;
    }
    if (magnitude_bits == 0x7F800000) {
      ++s.inf;
      return;
    }
    // A factor of 0 or NaN is the doing of another value, which is counted itself.
    const float encode = encode_factor(decode);
    s.saturated += magnitude * encode >= kFirstSaturated;
    const float value = decode_code<kFormat>(code) * decode;
    s.underflowed += magnitude_bits != 0 && value == 0 && encode != 0;
    const double difference = static_cast<double>(x) - value;
    s.signal += static_cast<double>(x) * x;
    s.noise += difference * difference;
  }

 public:
  // As fp8::scale_from_decode(): 1 / decode is past float32 for the tiniest tensors.
  static OCTAVO_ON_BOTH float encode_factor(float decode) {
    constexpr float kLargest = 3.402823466e38f;
    const float encode = 1 / decode;
    return kLargest < encode ? kLargest : encode;
  }
};

// The parts in one, as numbers in the order of fp8::to_stats(). One block.
struct JoinFp8StatsKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kHasBarriers = true;

  struct Arguments {
    const Fp8Stats* parts;
    int64_t count;
    double* stats;  // [kStats]
  };
  struct Shared {
    Fp8Stats per_warp[kThreads / kWarp];
  };

  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    Fp8Stats sum;
    for (int64_t i = block.thread(); i < a.count; i += kThreads) sum = sum.joined(a.parts[i]);
    sum = join_threads<kThreads>(block, shared.per_warp, sum,
                                 [](const Fp8Stats& p, const Fp8Stats& q) { return p.joined(q); });
    if (block.thread() != 0) return;
    const double all[kStats] = {
        static_cast<double>(sum.elements),
        static_cast<double>(sum.nonzero),
        static_cast<double>(sum.nan),
        static_cast<double>(sum.inf),
        static_cast<double>(sum.saturated),
        static_cast<double>(sum.underflowed),
        static_cast<double>(sum.amax),
        static_cast<double>(Fp8StatsKernel<fp8::Format::kE4M3>::encode_factor(sum.decode)),
        sum.signal,
        sum.noise};
    for (int i = 0; i < kStats; ++i) a.stats[i] = all[i];
  }
};

}  // namespace octavo::kernels
