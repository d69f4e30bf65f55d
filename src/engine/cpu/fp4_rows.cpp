#include "engine/cpu/fp4_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/fp4_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/fp8_round-inl.h"
#include "engine/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

using F64 = hn::RepartitionToWide<F32>;
using F32Half = hn::Half<F32>;
using VD = hn::Vec<F64>;
constexpr size_t kFp4Block = 16;

size_t Fp4Lanes() {
  return hn::Lanes(F32());
}

// Transformer Engine's signs, as the rows that are negated.
constexpr uint32_t kNegated = 1u << 3 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 8 | 1u << 9 | 1u << 10 |
                              1u << 12 | 1u << 14 | 1u << 15;

// Two stages of the butterfly over four vectors.
template <class V>
HWY_INLINE void butterfly(V& a, V& b, V& c, V& d) {
  const V ab = hn::Add(a, b), a_b = hn::Sub(a, b), cd = hn::Add(c, d), c_d = hn::Sub(c, d);
  a = hn::Add(ab, cd);
  b = hn::Add(a_b, c_d);
  c = hn::Sub(ab, cd);
  d = hn::Sub(a_b, c_d);
}

// 16 rows of a vector of FP32, or of two of FP64, in memory: SVE has no arrays of vectors.
template <class D>
struct Fp4Tile {
  HWY_ALIGN hn::TFromD<D> rows[kFp4Block][hn::MaxLanes(F32())];
};

// Returns whether sums of these rows are exact in FP32: all numbers are multiples of the smallest
// one's last bit, and 16 of the largest are below 2^24 of them.
HWY_INLINE bool load_rows(const uint16_t* x, size_t stride, size_t count, Fp4Tile<F32>& tile) {
  constexpr uint32_t kSpan = 24 - 8 - 4, kLargest = 254 - 4;  // of exponents, as they are stored
  const F32 d;
  const U32 du;
  auto most = hn::Zero(du), least = hn::Set(du, 255u << 23);
  for (size_t i = 0; i < kFp4Block; ++i) {
    const VF v = load_any(d, x + i * stride, count);
    const auto bits = hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FFFFFFFu));
    most = hn::Max(most, bits);
    least = hn::Min(least, hn::IfThenElse(hn::Eq(bits, hn::Zero(du)), least, bits));
    hn::Store((kNegated >> i & 1) != 0 ? hn::Neg(v) : v, d, tile.rows[i]);
  }
  const auto high = hn::ShiftRight<23>(most), low = hn::ShiftRight<23>(least);
  const auto is_normal = hn::And(hn::Gt(low, hn::Zero(du)), hn::Lt(high, hn::Set(du, kLargest)));
  return hn::AllTrue(du, hn::And(is_normal, hn::Lt(high, hn::Add(low, hn::Set(du, kSpan + 1)))));
}

HWY_INLINE void promote_rows(const Fp4Tile<F32>& from, Fp4Tile<F64>& to) {
  const F64 dd;
  for (size_t i = 0; i < kFp4Block; ++i)
    for (size_t at = 0; at < hn::Lanes(F32()); at += hn::Lanes(dd))
      hn::Store(hn::PromoteTo(dd, hn::Load(F32Half(), from.rows[i] + at)), dd, to.rows[i] + at);
}

// Rows first, first + step, first + 2 step, first + 3 step.
template <class D>
HWY_INLINE void transform_four(D d, Fp4Tile<D>& tile, size_t first, size_t step) {
  for (size_t at = 0; at < hn::Lanes(F32()); at += hn::Lanes(d)) {
    hn::TFromD<D>* rows[4];
    for (size_t k = 0; k < 4; ++k) rows[k] = tile.rows[first + k * step] + at;
    auto a = hn::Load(d, rows[0]), b = hn::Load(d, rows[1]), c = hn::Load(d, rows[2]),
         e = hn::Load(d, rows[3]);
    butterfly(a, b, c, e);
    hn::Store(a, d, rows[0]);
    hn::Store(b, d, rows[1]);
    hn::Store(c, d, rows[2]);
    hn::Store(e, d, rows[3]);
  }
}

template <class D>
HWY_INLINE void transform(D d, Fp4Tile<D>& tile) {
  for (size_t first = 0; first < kFp4Block; first += 4) transform_four(d, tile, first, 1);
  for (size_t first = 0; first < 4; ++first) transform_four(d, tile, first, 4);
}

HWY_INLINE VF quarter_of(const float* row) {
  return hn::Mul(hn::Load(F32(), row), hn::Set(F32(), 0.25f));
}
HWY_INLINE VF quarter_of(const double* row) {
  const F64 dd;
  const F32Half dh;
  const VD quarter = hn::Set(dd, 0.25);
  return hn::Combine(F32(), hn::DemoteTo(dh, hn::Mul(hn::Load(dd, row + hn::Lanes(dd)), quarter)),
                     hn::DemoteTo(dh, hn::Mul(hn::Load(dd, row), quarter)));
}

// `count` columns from column `i` on.
template <class D>
HWY_INLINE void store_rotated(const Fp4Tile<D>& tile, size_t stride, size_t i, size_t count,
                              uint16_t* out, uint16_t* largest) {
  const F32 d;
  const U32 du;
  auto most = hn::Zero(du);
  for (size_t r = 0; r < kFp4Block; ++r) {
    const VF value = quarter_of(tile.rows[r]);
    // Of a NaN the magnitude stays one; what is stored of it does not matter.
    const VF kept = unless_nan(value, rounded_as(value, d, out));
    most = hn::Max(most, hn::And(hn::BitCast(du, kept), hn::Set(du, 0x7FFFFFFFu)));
    store_any(value, d, out + r * stride + i, count);
  }
  // As BF16 bits: a NaN's highest mantissa bit is set, so cutting it leaves one.
  store_values(hn::BitCast(d, most), d, largest + i, count);
}

// As in FP64, where the plain loops add: nearly always exact, then rounded to FP32 and to BF16.
void RotateBand(const uint16_t* x, size_t stride, size_t n, uint16_t* out, uint16_t* largest) {
  Fp4Tile<F32> tile;
  Fp4Tile<F64> wide;
  for_vectors(n, [&](size_t i, size_t count) HWY_ATTR {
    if (HWY_LIKELY(load_rows(x + i, stride, count, tile))) {
      transform(F32(), tile);
      store_rotated(tile, stride, i, count, out, largest);
    } else {
      promote_rows(tile, wide);
      transform(F64(), wide);
      store_rotated(wide, stride, i, count, out, largest);
    }
  });
}

void LargestOf16(const uint16_t* x, size_t n, uint16_t* largest) {
  const hn::CappedTag<uint16_t, kFp4Block> d;
  const size_t lanes = hn::Lanes(d);
  const auto mask = hn::Set(d, 0x7FFF);
  for (size_t b = 0; b < n / kFp4Block; ++b) {
    auto most = hn::Zero(d);
    for (size_t i = 0; i < kFp4Block; i += lanes)
      most = hn::Max(most, hn::And(hn::LoadU(d, x + b * kFp4Block + i), mask));
    largest[b] = hn::GetLane(hn::MaxOfLanes(d, most));
  }
}

void Fp4Scales(const uint16_t* largest, size_t n, float amax, float* encode, float* decode,
               uint8_t* codes) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const float quotient = std::min(448.0f * 6 / amax, kMost);
  const float global = amax == 0 || quotient == 0 ? 1 : quotient;
  const float of_block = global * (1.0f / 6), inverse = 1 / global;
  const F32 d;
  const VF one = hn::Set(d, 1.0f), most = hn::Set(d, kMost);
  for_vectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const VF magnitude = load_any(d, largest + i, count);
    const Rounded rounded =
        round_to<fp8::Format::kE4M3>(d, hn::Mul(magnitude, hn::Set(d, of_block)));
    const VF scale = rounded.value;
    if (codes != nullptr) store_codes(rounded.code, d, codes + i, count);
    const VF factor = hn::Min(hn::Div(one, hn::Mul(scale, hn::Set(d, inverse))), most);
    store_any(factor, d, encode + i, count);
    store_any(scale, d, decode + i, count);
  });
}

// By 8 random bits: a code's step is 256 parts, counted from the value below and rounded down; with
// the draw they are a step more or not. From 1 on the parts are bits of the mantissa.
HWY_INLINE Rounded round_stochastic(F32 d, VF v, VU draws) {
  const U32 du;
  const hn::RebindToSigned<F32> di;
  const auto sign = hn::And(hn::BitCast(du, v), hn::Set(du, 0x80000000u));
  const VF magnitude = hn::Min(hn::Abs(v), hn::Set(d, 6.0f));
  const auto large =
      hn::Sub(hn::ShiftRight<22>(hn::Add(hn::BitCast(du, magnitude), hn::ShiftLeft<14>(draws))),
              hn::Set(du, 252u));  // 1 is code 2
  const auto parts = hn::BitCast(du, hn::ConvertTo(di, hn::Mul(magnitude, hn::Set(d, 512.0f))));
  const auto small = hn::ShiftRight<8>(hn::Add(parts, draws));
  const auto is_small = hn::Lt(magnitude, hn::Set(d, 1.0f));
  const auto code = hn::IfThenElse(hn::RebindMask(du, is_small), small, large);
  const VF value = value_of<fp8::Format::kE2M1>(d, code);
  return {hn::Or(value, hn::BitCast(d, sign)), hn::Or(code, hn::ShiftRight<24>(sign))};
}

HWY_INLINE Rounded round_nearest(F32 d, VF v) {
  const U32 du;
  const VF sign = hn::BitCast(d, hn::And(hn::BitCast(du, v), hn::Set(du, 0x80000000u)));
  return round_safe<fp8::Format::kE2M1>(d, hn::Or(hn::Min(hn::Abs(v), hn::Set(d, 6.0f)), sign));
}

HWY_INLINE VU load_draws(F32 d, const uint8_t* draws, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d))) return hn::PromoteTo(U32(), hn::LoadU(U8Quarter(), draws));
  HWY_ALIGN uint32_t buffer[hn::MaxLanes(U32())] = {};
  for (size_t i = 0; i < count; ++i) buffer[i] = draws[i];
  return hn::Load(U32(), buffer);
}

template <bool kBlocks, bool kStochastic>
HWY_INLINE void encode_fp4_row(const Fp4Row& row) {
  const F32 d;
  for_vectors(row.n, [&](size_t i, size_t count) HWY_ATTR {
    const auto factor = [&](const float* factors) HWY_ATTR {
      return kBlocks ? hn::Set(d, factors[i / kFp4Block]) : load_any(d, factors + i, count);
    };
    const VF v = hn::Mul(load_any(d, row.x + i, count), factor(row.encode));
    Rounded made;
    if constexpr (kStochastic)
      made = round_stochastic(d, v, load_draws(d, row.draws + i, count));
    else
      made = round_nearest(d, v);
    if (row.codes != nullptr) store_codes(made.code, d, row.codes + i, count);
    if (row.values != nullptr)
      store_values(hn::Mul(made.value, factor(row.decode)), d, row.values + i, count);
  });
}

void EncodeFp4Each(const Fp4Row& row) {
  if (row.draws != nullptr)
    encode_fp4_row<false, true>(row);
  else
    encode_fp4_row<false, false>(row);
}

void EncodeFp4Blocks(const Fp4Row& row) {
  if (row.draws != nullptr)
    encode_fp4_row<true, true>(row);
  else
    encode_fp4_row<true, false>(row);
}

// A byte of Format::kE2M1 as a nibble.
template <class D>
HWY_INLINE hn::Vec<D> nibble(D d, hn::Vec<D> byte) {
  return hn::Or(hn::And(byte, hn::Set(d, 7)), hn::And(hn::ShiftRight<4>(byte), hn::Set(d, 8)));
}

void PackFp4(const uint8_t* first, const uint8_t* second, size_t n, uint8_t* packed) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Or(nibble(d, hn::LoadU(d, first + i)),
                      hn::ShiftLeft<4>(nibble(d, hn::LoadU(d, second + i)))),
               d, packed + i);
  const auto one = [](uint8_t byte) { return (byte & 7) | (byte >> 4 & 8); };
  for (; i < n; ++i) packed[i] = static_cast<uint8_t>(one(first[i]) | one(second[i]) << 4);
}

HWY_INLINE VF value_of_nibble(F32 d, VU code) {
  const U32 du;
  return value_of<fp8::Format::kE2M1>(
      d, hn::Or(hn::And(code, hn::Set(du, 7)), hn::ShiftLeft<4>(hn::And(code, hn::Set(du, 8)))));
}

void UnpackFp4(const uint8_t* packed, size_t n, const float* decode, uint16_t* first,
               uint16_t* second) {
  const F32 d;
  for_vectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const VU codes = load_draws(d, packed + i, count);
    const VF factor = load_any(d, decode + i, count);
    store_values(hn::Mul(value_of_nibble(d, codes), factor), d, first + i, count);
    store_values(hn::Mul(value_of_nibble(d, hn::ShiftRight<4>(codes)), factor), d, second + i,
                 count);
  });
}

void UnpackFp4Pairs(const uint8_t* packed, size_t n, const float* decode, uint16_t* values) {
  const F32 d;
  const U32 du;
  for_vectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const VU codes = load_draws(d, packed + i, count);
    const VF factor = load_any(d, decode + i, count);
    const auto low =
        hn::ShiftRight<16>(hn::BitCast(du, hn::Mul(value_of_nibble(d, codes), factor)));
    const auto high =
        hn::And(hn::BitCast(du, hn::Mul(value_of_nibble(d, hn::ShiftRight<4>(codes)), factor)),
                hn::Set(du, 0xFFFF0000u));
    HWY_ALIGN uint32_t pairs[hn::MaxLanes(U32())];
    hn::Store(hn::Or(low, high), du, pairs);
    std::memcpy(values + 2 * i, pairs, 4 * count);
  });
}

void Fp4Draws(uint64_t seed, uint64_t stream, uint64_t first, size_t n, uint8_t* draws) {
  constexpr uint64_t kCounters = 32;  // of philox_block
  HWY_ALIGN uint32_t words[4 * kCounters];
  uint64_t counter = first / kFp4Block;
  const uint64_t end = counter + n / kFp4Block;
  while (counter < end) {
    const uint64_t base = counter / kCounters * kCounters;
    const uint64_t stop = std::min(end, base + kCounters);
    philox_block(seed, stream, base, words);
    std::memcpy(draws, words + 4 * (counter - base),
                kFp4Block * (stop - counter));  // little-endian
    draws += kFp4Block * (stop - counter);
    counter = stop;
  }
}

void Fp4BandDraws(uint64_t seed, uint64_t stream, uint32_t step, uint32_t band, size_t n,
                  uint8_t* draws) {
  const U32 du;
  const F32 d;
  for_vectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const auto columns = hn::Iota(du, static_cast<uint32_t>(i));
    const PhiloxWords words =
        philox_lanes(seed, stream, hn::Add(hn::Mul(columns, hn::Set(du, step)), hn::Set(du, band)),
                     hn::Zero(du));
    const auto four_rows = [&](size_t first, VU word) HWY_ATTR {
      const VU byte = hn::Set(du, 255u);
      store_codes(hn::And(word, byte), d, draws + first * n + i, count);
      store_codes(hn::And(hn::ShiftRight<8>(word), byte), d, draws + (first + 1) * n + i, count);
      store_codes(hn::And(hn::ShiftRight<16>(word), byte), d, draws + (first + 2) * n + i, count);
      store_codes(hn::ShiftRight<24>(word), d, draws + (first + 3) * n + i, count);
    };
    four_rows(0, words.c0);
    four_rows(4, words.c1);
    four_rows(8, words.c2);
    four_rows(12, words.c3);
  });
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {

HWY_EXPORT(Fp4Lanes);
HWY_EXPORT(RotateBand);
HWY_EXPORT(LargestOf16);
HWY_EXPORT(Fp4Scales);
HWY_EXPORT(EncodeFp4Each);
HWY_EXPORT(EncodeFp4Blocks);
HWY_EXPORT(PackFp4);
HWY_EXPORT(UnpackFp4);
HWY_EXPORT(UnpackFp4Pairs);
HWY_EXPORT(Fp4Draws);
HWY_EXPORT(Fp4BandDraws);

size_t fp4_lanes() {
  return HWY_DYNAMIC_DISPATCH(Fp4Lanes)();
}
void rotate_band(const uint16_t* x, size_t stride, size_t n, uint16_t* out, uint16_t* largest) {
  HWY_DYNAMIC_DISPATCH(RotateBand)(x, stride, n, out, largest);
}
void largest_of_16(const uint16_t* x, size_t n, uint16_t* largest) {
  HWY_DYNAMIC_DISPATCH(LargestOf16)(x, n, largest);
}
void fp4_scales(const uint16_t* largest, size_t n, float amax, float* encode, float* decode,
                uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(Fp4Scales)(largest, n, amax, encode, decode, codes);
}
void pack_fp4(const uint8_t* first, const uint8_t* second, size_t n, uint8_t* packed) {
  HWY_DYNAMIC_DISPATCH(PackFp4)(first, second, n, packed);
}
void unpack_fp4(const uint8_t* packed, size_t n, const float* decode, uint16_t* first,
                uint16_t* second) {
  HWY_DYNAMIC_DISPATCH(UnpackFp4)(packed, n, decode, first, second);
}
void unpack_fp4_pairs(const uint8_t* packed, size_t n, const float* decode, uint16_t* values) {
  HWY_DYNAMIC_DISPATCH(UnpackFp4Pairs)(packed, n, decode, values);
}
void encode_fp4_each(const Fp4Row& row) {
  HWY_DYNAMIC_DISPATCH(EncodeFp4Each)(row);
}
void encode_fp4_blocks(const Fp4Row& row) {
  HWY_DYNAMIC_DISPATCH(EncodeFp4Blocks)(row);
}
void fp4_draws(uint64_t seed, uint64_t stream, uint64_t first, size_t n, uint8_t* draws) {
  HWY_DYNAMIC_DISPATCH(Fp4Draws)(seed, stream, first, n, draws);
}
void fp4_band_draws(uint64_t seed, uint64_t stream, uint32_t step, uint32_t band, size_t n,
                    uint8_t* draws) {
  HWY_DYNAMIC_DISPATCH(Fp4BandDraws)(seed, stream, step, band, n, draws);
}

}  // namespace octavo::engine::cpu
#endif  // HWY_ONCE
