#pragma once
// AdamW of many parameters in one launch, bit for bit as adamw_storage.h says.
//
// Bytes of an element: gradient, master twice, both moments twice, and 2 for the compute copy: 30
// with everything in FP32, 10 with everything in the fewest bits (BF16 gradient and master, FP8
// moments, no copy), which at an H100's 3.3 TB/s is 330 G elements/s. Random words, a division and
// a square root are some 100 instructions an element, about as long: the kernel is bound by both.
//
// A thread takes 8 elements, so that a block of 128 that shares an FP8 scale belongs to 16
// neighbouring lanes, and Philox, which makes four words at a time, is called twice.

#include <type_traits>

#include "kernels/adamw_storage.h"
#include "kernels/block_table.h"
#include "kernels/portable.h"
#include "kernels/random_words.h"
#include "kernels/reduce.h"

namespace octavo::kernels {

// One parameter. All pointers are to its first element here.
struct AdamWTensor {
  void* master = nullptr;
  void *m = nullptr, *v = nullptr;
  float *m_scales = nullptr, *v_scales = nullptr;  // of FP8 moments: one for each 128 elements
  const void* gradient = nullptr;
  Bf16* compute = nullptr;  // may be null
  int64_t count = 0;        // elements
  int64_t first_block = 0;  // of the launch: see plan_blocks()
  uint64_t seed = 0, stream = 0;
  uint64_t first_counter =
      0;  // a quarter of the element of the whole parameter that this begins with
  adamw::Factors factors{};
};

struct AdamWArguments {
  const AdamWTensor* tensors;  // in the device's memory, ascending by first_block
  int32_t count;
};

// Master and Gradient: float or Bf16. Moment: float, Bf16, or uint8_t for FP8 codes.
template <class Master, class Gradient, class Moment>
struct AdamWKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kHasBarriers = true;
  static constexpr int64_t kTile = int64_t{kThreads} * kLane;
  static constexpr int64_t kElementsOfBlock = 8 * kTile;
  static constexpr int kLanesOfScale = adamw::kBlock / kLane;
  static constexpr bool kDraws = std::is_same_v<Master, Bf16> || !std::is_same_v<Moment, float>;

  using Arguments = AdamWArguments;
  struct Shared {
    AdamWTensor tensor;
  };

  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared& shared, const Arguments& a) {
    if (block.thread() == 0) shared.tensor = entry_of_block(a.tensors, a.count, block.index());
    block.barrier();
    const AdamWTensor& t = shared.tensor;
    const int64_t begin = (block.index() - t.first_block) * kElementsOfBlock;
    // All threads of a block stay together, since lanes ask each other: those behind the end of a
    // parameter have zeros and store nothing.
    for (int64_t tile = begin; tile < begin + kElementsOfBlock && tile < t.count; tile += kTile)
      update(block, t, tile + int64_t{block.thread()} * kLane);
  }

 private:
  struct Lane {
    float w[kLane], m[kLane], v[kLane], g[kLane];
    uint32_t words[kLane];
  };

  // Elements first to first + 7.
  template <class Block>
  static OCTAVO_KERNEL_BODY void update(Block& block, const AdamWTensor& t, int64_t first) {
    const int64_t count = t.count - first;
    Lane lane;
    load(static_cast<const Master*>(t.master) + first, count, 0, lane.w);
    load(static_cast<const Gradient*>(t.gradient) + first, count, 0, lane.g);
    load_moments(t, first, count, lane);
    for (int i = 0; i < kLane; ++i) {
      const adamw::Element made =
          adamw::advance({lane.w[i], lane.m[i], lane.v[i]}, lane.g[i], t.factors);
      lane.w[i] = made.w;
      lane.m[i] = made.m;
      lane.v[i] = made.v;
    }
    if constexpr (kDraws) draw(t, first, lane);  // only now: fewer registers above
    store_master(t, first, count, lane);
    store_moments(block, t, first, count, lane);
  }

  static OCTAVO_KERNEL_BODY void draw(const AdamWTensor& t, int64_t first, Lane& lane) {
    for (int half = 0; half < 2; ++half) {
      const uint64_t counter = t.first_counter + static_cast<uint64_t>(first / 4 + half);
      const FourWords four = random_words(t.seed, t.stream, counter);
      for (int i = 0; i < 4; ++i) lane.words[4 * half + i] = four.at[i];
    }
  }

  static OCTAVO_KERNEL_BODY void load_moments(const AdamWTensor& t, int64_t first, int64_t count,
                                              Lane& lane) {
    const Moment* m = static_cast<const Moment*>(t.m) + first;
    const Moment* v = static_cast<const Moment*>(t.v) + first;
    if constexpr (std::is_same_v<Moment, uint8_t>) {
      uint8_t m_codes[kLane], v_codes[kLane];
      load_bytes(m, count, m_codes);
      load_bytes(v, count, v_codes);
      const float m_scale = count > 0 ? t.m_scales[first / adamw::kBlock] : 0;
      const float v_scale = count > 0 ? t.v_scales[first / adamw::kBlock] : 0;
      for (int i = 0; i < kLane; ++i) {
        lane.m[i] = adamw::decode_first(m_codes[i], m_scale);
        lane.v[i] = adamw::decode_second(v_codes[i], v_scale);
      }
    } else {
      load(m, count, 0, lane.m);
      load(v, count, 0, lane.v);
    }
  }

  static OCTAVO_KERNEL_BODY void store_master(const AdamWTensor& t, int64_t first, int64_t count,
                                              const Lane& lane) {
    Master* master = static_cast<Master*>(t.master) + first;
    if constexpr (std::is_same_v<Master, Bf16>) {
      Bf16 rounded[kLane];
      for (int i = 0; i < kLane; ++i)
        rounded[i] = adamw::to_bf16(lane.w[i], adamw::weight_bits(lane.words[i]));
      store_as_is(rounded, count, master);
      if (t.compute != nullptr) store_as_is(rounded, count, t.compute + first);
    } else {
      store(lane.w, count, master);
      if (t.compute != nullptr) store(lane.w, count, t.compute + first);
    }
  }

  template <class Block>
  static OCTAVO_KERNEL_BODY void store_moments(Block& block, const AdamWTensor& t, int64_t first,
                                               int64_t count, const Lane& lane) {
    Moment* m = static_cast<Moment*>(t.m) + first;
    Moment* v = static_cast<Moment*>(t.v) + first;
    if constexpr (std::is_same_v<Moment, uint8_t>) {
      float roots[kLane];
      for (int i = 0; i < kLane; ++i) roots[i] = std::sqrt(lane.v[i]);
      store_codes<adamw::encode_first>(block, lane.m, lane.words, first, count, m, t.m_scales);
      store_codes<adamw::encode_second>(block, roots, lane.words, first, count, v, t.v_scales);
    } else if constexpr (std::is_same_v<Moment, Bf16>) {
      store_rounded(lane.m, lane.words, count, m);
      store_rounded(lane.v, lane.words, count, v);
    } else {
      store(lane.m, count, m);
      store(lane.v, count, v);
    }
  }

  static OCTAVO_KERNEL_BODY void store_rounded(const float (&values)[kLane],
                                               const uint32_t (&words)[kLane], int64_t count,
                                               Bf16* out) {
    Bf16 rounded[kLane];
    for (int i = 0; i < kLane; ++i)
      rounded[i] = adamw::to_bf16(values[i], adamw::moment_bits(words[i]));
    store_as_is(rounded, count, out);
  }

  template <auto kEncode, class Block>
  static OCTAVO_KERNEL_BODY void store_codes(Block& block, const float (&values)[kLane],
                                             const uint32_t (&words)[kLane], int64_t first,
                                             int64_t count, uint8_t* out, float* scales) {
    uint32_t largest = 0;
    for (int i = 0; i < kLane; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF;
      if (i < count && magnitude > largest) largest = magnitude;
    }
    largest = join_lanes<kLanesOfScale>(block, largest,
                                        [](uint32_t a, uint32_t b) { return a > b ? a : b; });
    const float scale = adamw::block_scale(largest), inverse = 1 / scale;
    uint8_t codes[kLane];
    for (int i = 0; i < kLane; ++i)
      codes[i] = kEncode(values[i] * inverse, adamw::moment_bits(words[i]));
    store_bytes(codes, count, out);
    if (count > 0 && first % adamw::kBlock == 0) scales[first / adamw::kBlock] = scale;
  }
};

}  // namespace octavo::kernels
