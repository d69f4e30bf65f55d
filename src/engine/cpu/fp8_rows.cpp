#include "engine/cpu/fp8_rows.h"

#include <algorithm>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/fp8_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/fp8_round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

using U16 = hn::ScalableTag<uint16_t>;
using VU16 = hn::Vec<U16>;

HWY_INLINE VU16 magnitude_bits(U16 d, const uint16_t* p) {
  return hn::And(hn::LoadU(d, p), hn::Set(d, 0x7FFF));
}

uint16_t LargestIn(const uint16_t* x, int64_t n) {
  const U16 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VU16 a = hn::Zero(d), b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = hn::Max(a, magnitude_bits(d, x + i));
    b = hn::Max(b, magnitude_bits(d, x + i + lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Max(a, magnitude_bits(d, x + i));
  uint16_t largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
  for (; i < n; ++i) largest = std::max<uint16_t>(largest, x[i] & 0x7FFF);
  return largest;
}

// largest[c] = max(largest[c], |x[c]|), as bits.
void RaiseLargest(const uint16_t* x, int64_t n, uint16_t* largest) {
  const U16 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Max(hn::LoadU(d, largest + i), magnitude_bits(d, x + i)), d, largest + i);
  for (; i < n; ++i) largest[i] = std::max<uint16_t>(largest[i], x[i] & 0x7FFF);
}

// Lanes of a row with one scale for all of them, or one each. The second pair of functions is for
// two vectors at once, the elements with even and with odd numbers; decoders() is given what
// encoders() gave. decode_bits() are the decode factors in BF16, of as many elements.
struct SharedScale {
  static constexpr bool kPowersOfTwo = false;  // not always
  float encode, decode;
  HWY_INLINE VF encoder(F32 d, size_t, size_t) const { return hn::Set(d, encode); }
  HWY_INLINE VF decoder(F32 d, size_t, size_t) const { return hn::Set(d, decode); }
  HWY_INLINE void encoders(F32 d, size_t, VF& even, VF& odd) const {
    even = odd = hn::Set(d, encode);
  }
  HWY_INLINE void decoders(F32 d, VF& even, VF& odd) const { even = odd = hn::Set(d, decode); }
  HWY_INLINE SharedScale after(size_t) const { return *this; }
};
struct ScalePerElement {
  static constexpr bool kPowersOfTwo = true;
  const float *encode, *decode;
  HWY_INLINE VF encoder(F32 d, size_t i, size_t count) const {
    return load_any(d, encode + i, count);
  }
  HWY_INLINE VF decoder(F32 d, size_t i, size_t count) const {
    return load_any(d, decode + i, count);
  }
  HWY_INLINE void encoders(F32 d, size_t i, VF& even, VF& odd) const {
    hn::LoadInterleaved2(d, encode + i, even, odd);
  }
  // The reciprocals of the encoders, which are powers of two: 254 minus their exponents.
  HWY_INLINE void decoders(F32 d, VF& even, VF& odd) const {
    const U32 du;
    const auto all = hn::Set(du, 254u << 23);
    even = hn::BitCast(d, hn::Sub(all, hn::BitCast(du, even)));
    odd = hn::BitCast(d, hn::Sub(all, hn::BitCast(du, odd)));
  }
  HWY_INLINE VU16 decode_bits(U16 d, size_t i) const {
    const F32 df;
    const auto low = hn::BitCast(d, hn::LoadU(df, decode + i)),
               high = hn::BitCast(d, hn::LoadU(df, decode + i + hn::Lanes(df)));
    return hn::ConcatOdd(d, high, low);  // the upper halves
  }
  HWY_INLINE ScalePerElement after(size_t i) const { return {encode + i, decode + i}; }
};

// One for each block of 2^shift elements, which are whole pairs of vectors. A function of its own
// for every block would set its constants anew, which took longer than the block.
struct ScalePerBlock {
  static constexpr bool kPowersOfTwo = true;
  const float *encode, *decode;
  int shift;
  size_t first = 0;  // element that number 0 is
  mutable size_t pair = 0;
  HWY_INLINE size_t block(size_t i) const { return (first + i) >> shift; }
  HWY_INLINE VF encoder(F32 d, size_t i, size_t) const { return hn::Set(d, encode[block(i)]); }
  HWY_INLINE VF decoder(F32 d, size_t i, size_t) const { return hn::Set(d, decode[block(i)]); }
  HWY_INLINE void encoders(F32 d, size_t i, VF& even, VF& odd) const {
    pair = block(i);
    even = odd = hn::Set(d, encode[pair]);
  }
  HWY_INLINE void decoders(F32 d, VF& even, VF& odd) const {
    even = odd = hn::Set(d, decode[pair]);
  }
  HWY_INLINE VU16 decode_bits(U16 d, size_t i) const {
    return hn::Set(d, static_cast<uint16_t>(std::bit_cast<uint32_t>(decode[block(i)]) >> 16));
  }
  HWY_INLINE ScalePerBlock after(size_t i) const { return {encode, decode, shift, first + i}; }
};

template <fp8::Format kFormat, class Scales>
HWY_INLINE void encode_row(const uint16_t* x, size_t n, const Scales& scales, uint8_t* codes,
                           uint16_t* values) {
  const F32 d;
  for_vectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const VF v = hn::Mul(load_any(d, x + i, count), scales.encoder(d, i, count));
    const Rounded rounded = round_to<kFormat>(d, v);
    if (codes != nullptr) store_codes(rounded.code, d, codes + i, count);
    if (values == nullptr) return;
    store_values(hn::Mul(rounded.value, scales.decoder(d, i, count)), d, values + i, count);
  });
}

// The quick way, for rows that are safe (see fp8_rows.h): two BF16 values are the halves of a
// 32-bit lane, so nothing needs to be widened or narrowed. Returns how many elements were done.
template <fp8::Format kFormat, bool kCodes, bool kValues, class Scales>
HWY_INLINE size_t encode_pairs(const uint16_t* x, size_t n, const Scales& scales, uint8_t* codes,
                               uint16_t* values) {
  const F32 d;
  const U32 du;
  const U16 dh;
  const size_t step = 2 * hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) {
    const auto pair = hn::BitCast(du, hn::LoadU(dh, x + i));
    VF even, odd;
    scales.encoders(d, i, even, odd);
    const Rounded a =
        round_safe<kFormat>(d, hn::Mul(hn::BitCast(d, hn::ShiftLeft<16>(pair)), even));
    const Rounded b = round_safe<kFormat>(
        d, hn::Mul(hn::BitCast(d, hn::And(pair, hn::Set(du, 0xFFFF0000u))), odd));
    if (kCodes)
      hn::StoreU(hn::TruncateTo(U16Half(), hn::Or(a.code, hn::ShiftLeft<8>(b.code))), U16Half(),
                 reinterpret_cast<uint16_t*>(codes + i));
    if (kValues) {
      scales.decoders(d, even, odd);
      const auto low = hn::ShiftRight<16>(hn::BitCast(du, hn::Mul(a.value, even)));
      const auto high = hn::And(hn::BitCast(du, hn::Mul(b.value, odd)), hn::Set(du, 0xFFFF0000u));
      hn::StoreU(hn::BitCast(dh, hn::Or(low, high)), dh, values + i);
    }
  }
  return i;
}

// The quickest, for safe rows whose scales are powers of two: they leave the mantissa alone, so
// rounding is done in the bits of the BF16 values, a vector of them at a time. Numbers that are
// subnormal as codes lose more bits than others; a vector with one of them goes by pairs.
template <fp8::Format kFormat, bool kCodes, bool kValues, class Scales>
HWY_INLINE size_t encode_bits(const uint16_t* x, size_t n, const Scales& scales, uint8_t* codes,
                              uint16_t* values) {
  using L = Fp8Lanes<kFormat>;
  constexpr int kDropped = 7 - L::kLayout.mantissa_bits;
  const U16 d;
  const hn::Rebind<uint8_t, U16> d8;
  const size_t lanes = hn::Lanes(d);
  const auto magnitudes = hn::Set(d, 0x7FFF), one = hn::Set(d, 1), zero = hn::Zero(d),
             below_half = hn::Set(d, (1u << (kDropped - 1)) - 1),
             kept = hn::Set(d, static_cast<uint16_t>(~((1u << kDropped) - 1))),
             to_smallest = hn::Set(d, static_cast<uint16_t>((L::kLayout.bias - 1) << 7)),
             first_normal = hn::Set(d, 1u << L::kLayout.mantissa_bits),
             sign_of_code = hn::Set(d, 0x80);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VU16 bits = hn::LoadU(d, x + i), magnitude = hn::And(bits, magnitudes),
               smallest = hn::Sub(scales.decode_bits(d, i), to_smallest);
    const auto is_number = hn::Ne(magnitude, zero);
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::And(hn::Lt(magnitude, smallest), is_number)))) {
      encode_pairs<kFormat, kCodes, kValues>(x + i, lanes, scales.after(i),
                                             kCodes ? codes + i : nullptr,
                                             kValues ? values + i : nullptr);
      continue;
    }
    const auto odd = hn::And(hn::ShiftRight<kDropped>(bits), one);
    const auto rounded = hn::And(hn::Add(bits, hn::Add(below_half, odd)), kept);
    if (kValues) hn::StoreU(rounded, d, values + i);
    if (kCodes) {
      const auto steps = hn::Sub(hn::ShiftRight<kDropped>(hn::And(rounded, magnitudes)),
                                 hn::Sub(hn::ShiftRight<kDropped>(smallest), first_normal));
      const auto code = hn::Or(hn::IfThenElseZero(is_number, steps),
                               hn::And(hn::ShiftRight<8>(bits), sign_of_code));
      hn::StoreU(hn::TruncateTo(d8, code), d8, codes + i);
    }
  }
  return i;
}

template <fp8::Format kFormat, bool kCodes, bool kValues, class Scales>
HWY_INLINE size_t encode_safe(const uint16_t* x, size_t n, const Scales& scales,
                              const RowTarget& to) {
  if constexpr (Scales::kPowersOfTwo)
    return encode_bits<kFormat, kCodes, kValues>(x, n, scales, to.codes, to.values);
  else
    return encode_pairs<kFormat, kCodes, kValues>(x, n, scales, to.codes, to.values);
}

template <fp8::Format kFormat, class Scales>
HWY_INLINE void encode_any(const uint16_t* x, size_t n, const Scales& scales, bool safe,
                           const RowTarget& to) {
  size_t done = 0;
  if (HWY_LIKELY(safe)) {
    if (to.codes == nullptr)
      done = encode_safe<kFormat, false, true>(x, n, scales, to);
    else if (to.values == nullptr)
      done = encode_safe<kFormat, true, false>(x, n, scales, to);
    else
      done = encode_safe<kFormat, true, true>(x, n, scales, to);
  }
  if (HWY_LIKELY(done == n)) return;
  const RowTarget rest = to.after(static_cast<int64_t>(done));
  encode_row<kFormat>(x + done, n - done, scales.after(done), rest.codes, rest.values);
}

template <class Scales>
HWY_INLINE void encode_format(const uint16_t* x, size_t n, const Scales& scales, bool safe,
                              const RowTarget& to) {
  if (to.format == fp8::Format::kE4M3)
    encode_any<fp8::Format::kE4M3>(x, n, scales, safe, to);
  else
    encode_any<fp8::Format::kE5M2>(x, n, scales, safe, to);
}

void EncodeOne(const uint16_t* x, size_t n, const fp8::Scale& scale, bool safe,
               const RowTarget& target) {
  encode_format(x, n, SharedScale{scale.encode, scale.decode}, safe, target);
}

void EncodeEach(const uint16_t* x, size_t n, const float* encode, const float* decode, bool safe,
                const RowTarget& target) {
  encode_format(x, n, ScalePerElement{encode, decode}, safe, target);
}

// A row in blocks, each with its own scale and all of them safe.
void EncodeBlocks(const uint16_t* x, size_t n, size_t block, const float* encode,
                  const float* decode, const RowTarget& target) {
  if (block % (2 * hn::Lanes(F32())) == 0 && (block & (block - 1)) == 0) {
    encode_format(x, n, ScalePerBlock{encode, decode, std::countr_zero(block)}, true, target);
    return;
  }
  for (size_t first = 0, b = 0; first < n; first += block, ++b)
    encode_format(x + first, std::min(block, n - first), SharedScale{encode[b], decode[b]}, true,
                  target.after(static_cast<int64_t>(first)));
}

void LargestInBlocks(const uint16_t* x, size_t n, size_t block, uint16_t* largest) {
  const U16 d;
  size_t first = 0, b = 0;
  if (block == hn::Lanes(d))
    for (; first + block <= n; first += block, ++b)
      largest[b] = hn::GetLane(hn::MaxOfLanes(d, magnitude_bits(d, x + first)));
  for (; first < n; first += block, ++b)
    largest[b] = LargestIn(x + first, static_cast<int64_t>(std::min(block, n - first)));
}

bool UsualScales(const uint16_t* largest, size_t n, fp8::Format format, const fp8::Scale& zero,
                 float* encode, float* decode) {
  const F32 d;
  const U32 du;
  const uint32_t k = format == fp8::Format::kE4M3 ? 8 : 15;
  const auto all = hn::Set(du, 254), middle = hn::Set(du, 128);
  auto lowest = middle, highest = middle;
  for_vectors(n, [&](size_t i, size_t count) HWY_ATTR {
    const auto bits = hn::ShiftRight<16>(hn::BitCast(du, load_any(d, largest + i, count)));
    const auto exponent = hn::ShiftRight<7>(bits);
    const auto is_zero = hn::Eq(bits, hn::Zero(du));
    const auto seen = hn::IfThenElse(is_zero, middle, exponent);
    lowest = hn::Min(lowest, seen);
    highest = hn::Max(highest, seen);
    const auto carry = hn::IfThenElseZero(hn::Gt(hn::And(bits, hn::Set(du, 0x7F)), hn::Set(du, 96)),
                                          hn::Set(du, 1));
    const auto code = hn::Add(hn::Sub(exponent, hn::Set(du, k)), carry);
    const auto zeros = hn::RebindMask(d, is_zero);
    const VF up = hn::BitCast(d, hn::ShiftLeft<23>(hn::Sub(all, code)));
    const VF down = hn::BitCast(d, hn::ShiftLeft<23>(code));
    store_any(hn::IfThenElse(zeros, hn::Set(d, zero.encode), up), d, encode + i, count);
    store_any(hn::IfThenElse(zeros, hn::Set(d, zero.decode), down), d, decode + i, count);
  });
  return hn::GetLane(hn::MinOfLanes(du, lowest)) > 90 &&
         hn::GetLane(hn::MaxOfLanes(du, highest)) < 230;
}

template <fp8::Format kFormat, class Scales>
HWY_INLINE void decode_row(const uint8_t* codes, size_t n, const Scales& scales, uint16_t* values) {
  const F32 d;
  for_vectors(n, [&](size_t i, size_t count) HWY_ATTR {
    HWY_ALIGN uint32_t buffer[hn::MaxLanes(U32())] = {};
    VU code;
    if (HWY_LIKELY(count == hn::Lanes(d))) {
      code = hn::PromoteTo(U32(), hn::LoadU(U8Quarter(), codes + i));
    } else {
      for (size_t k = 0; k < count; ++k) buffer[k] = codes[i + k];
      code = hn::Load(U32(), buffer);
    }
    const VF value = hn::Mul(value_of<kFormat>(d, code), scales.decoder(d, i, count));
    store_values(value, d, values + i, count);
  });
}

template <class Scales>
HWY_INLINE void decode_format(fp8::Format format, const uint8_t* codes, size_t n,
                              const Scales& scales, uint16_t* values) {
  switch (format) {
    case fp8::Format::kE4M3:
      return decode_row<fp8::Format::kE4M3>(codes, n, scales, values);
    case fp8::Format::kE5M2:
      return decode_row<fp8::Format::kE5M2>(codes, n, scales, values);
    case fp8::Format::kE2M1:
      return decode_row<fp8::Format::kE2M1>(codes, n, scales, values);
  }
}

void DecodeOne(fp8::Format format, const uint8_t* codes, size_t n, float decode, uint16_t* values) {
  decode_format(format, codes, n, SharedScale{0, decode}, values);
}

void DecodeEach(fp8::Format format, const uint8_t* codes, size_t n, const float* decode,
                uint16_t* values) {
  decode_format(format, codes, n, ScalePerElement{nullptr, decode}, values);
}

template <fp8::Format kFormat>
HWY_INLINE void decode_two_rows(const uint8_t* first, const uint8_t* second, size_t n,
                                const float* decode, uint16_t* values) {
  const F32 d;
  const U32 du;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const VF factor = decode == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, decode + i);
    const auto bits = [&](const uint8_t* codes) HWY_ATTR {
      const VU code = hn::PromoteTo(du, hn::LoadU(U8Quarter(), codes + i));
      return hn::BitCast(du, hn::Mul(value_of<kFormat>(d, code), factor));
    };
    const auto low = hn::ShiftRight<16>(bits(first)),
               high = hn::And(bits(second), hn::Set(du, 0xFFFF0000u));
    hn::StoreU(hn::BitCast(U16(), hn::Or(low, high)), U16(), values + 2 * i);
  }
}

void DecodePair(fp8::Format format, const uint8_t* first, const uint8_t* second, size_t n,
                const float* decode, uint16_t* values) {
  switch (format) {
    case fp8::Format::kE4M3:
      return decode_two_rows<fp8::Format::kE4M3>(first, second, n, decode, values);
    case fp8::Format::kE5M2:
      return decode_two_rows<fp8::Format::kE5M2>(first, second, n, decode, values);
    case fp8::Format::kE2M1:
      return decode_two_rows<fp8::Format::kE2M1>(first, second, n, decode, values);
  }
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {

HWY_EXPORT(LargestIn);
HWY_EXPORT(RaiseLargest);
HWY_EXPORT(EncodeOne);
HWY_EXPORT(EncodeEach);
HWY_EXPORT(DecodeOne);
HWY_EXPORT(DecodeEach);
HWY_EXPORT(DecodePair);
HWY_EXPORT(UsualScales);
HWY_EXPORT(EncodeBlocks);
HWY_EXPORT(LargestInBlocks);

uint16_t largest_in(const uint16_t* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(LargestIn)(x, n);
}
void raise_largest(const uint16_t* x, int64_t n, uint16_t* largest) {
  HWY_DYNAMIC_DISPATCH(RaiseLargest)(x, n, largest);
}
void encode_one(const uint16_t* x, size_t n, const fp8::Scale& scale, bool safe,
                const RowTarget& target) {
  HWY_DYNAMIC_DISPATCH(EncodeOne)(x, n, scale, safe, target);
}
void encode_each(const uint16_t* x, size_t n, const float* encode, const float* decode, bool safe,
                 const RowTarget& target) {
  HWY_DYNAMIC_DISPATCH(EncodeEach)(x, n, encode, decode, safe, target);
}
void decode_one(fp8::Format format, const uint8_t* codes, size_t n, float decode,
                uint16_t* values) {
  HWY_DYNAMIC_DISPATCH(DecodeOne)(format, codes, n, decode, values);
}
void decode_each(fp8::Format format, const uint8_t* codes, size_t n, const float* decode,
                 uint16_t* values) {
  HWY_DYNAMIC_DISPATCH(DecodeEach)(format, codes, n, decode, values);
}
void decode_pair(fp8::Format format, const uint8_t* first, const uint8_t* second, size_t n,
                 const float* decode, uint16_t* values) {
  HWY_DYNAMIC_DISPATCH(DecodePair)(format, first, second, n, decode, values);
}
bool usual_scales(const uint16_t* largest, size_t n, fp8::Format format, const fp8::Scale& zero,
                  float* encode, float* decode) {
  return HWY_DYNAMIC_DISPATCH(UsualScales)(largest, n, format, zero, encode, decode);
}
void encode_blocks(const uint16_t* x, size_t n, size_t block, const float* encode,
                   const float* decode, const RowTarget& target) {
  HWY_DYNAMIC_DISPATCH(EncodeBlocks)(x, n, block, encode, decode, target);
}
void largest_in_blocks(const uint16_t* x, size_t n, size_t block, uint16_t* largest) {
  HWY_DYNAMIC_DISPATCH(LargestInBlocks)(x, n, block, largest);
}

}  // namespace octavo::engine::cpu
#endif  // HWY_ONCE
