#include "engine/cpu/adamw_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/adamw_blocks.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/adamw_step-inl.h"
#include "engine/cpu/fp8_round-inl.h"
#include "engine/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

constexpr auto kSize = static_cast<size_t>(adamw::kBlock);

// A block in FP32. The last one of a tensor is filled up with zeros, which stay zeros.
struct Block {
  HWY_ALIGN float w[kSize], m[kSize], v[kSize], g[kSize];
  HWY_ALIGN uint32_t words[kSize];
};

HWY_INLINE VU load_codes(const uint8_t* codes, size_t count) {
  const U32 du;
  if (HWY_LIKELY(count == hn::Lanes(du))) return hn::PromoteTo(du, hn::LoadU(U8Quarter(), codes));
  HWY_ALIGN uint32_t buffer[hn::MaxLanes(U32())] = {};
  for (size_t i = 0; i < count; ++i) buffer[i] = codes[i];
  return hn::Load(du, buffer);
}
HWY_INLINE void store_codes(VU values, uint8_t* codes, size_t count) {
  const U32 du;
  if (HWY_LIKELY(count == hn::Lanes(du))) {
    hn::StoreU(hn::TruncateTo(U8Quarter(), values), U8Quarter(), codes);
    return;
  }
  HWY_ALIGN uint32_t buffer[hn::MaxLanes(U32())];
  hn::Store(values, du, buffer);
  for (size_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(buffer[i]);
}

// As adamw::value_of_second().
HWY_INLINE VF value_of_second(F32 d, VU number) {
  const U32 du;
  const hn::RebindToSigned<F32> di;
  const VF small = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, number)), hn::Set(d, 0x1p-10f));
  const auto normal = hn::Add(hn::ShiftLeft<19>(number), hn::Set(du, adamw::kBelowNormals));
  return hn::IfThenElse(hn::RebindMask(d, hn::Lt(number, hn::Set(du, 16))), small,
                        hn::BitCast(d, normal));
}

HWY_INLINE VF decode_first(F32 d, VU code, VF scale) {
  return hn::Mul(value_of<fp8::Format::kE4M3>(d, code), scale);
}
HWY_INLINE VF decode_second(F32 d, VU code, VF scale) {
  const U32 du;
  const auto number =
      hn::Or(hn::ShiftLeft<1>(hn::And(code, hn::Set(du, 0x7F))), hn::ShiftRight<7>(code));
  const VF root = hn::Mul(value_of_second(d, number), scale);
  return hn::Mul(root, root);
}

// What encode_first() and encode_second() of adamw_storage.h do, lane by lane.
HWY_INLINE VU encode_first(F32 d, VF scaled, VU random) {
  const U32 du;
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(du, scaled);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const VF steps =
      hn::Add(hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p25f)), hn::Set(d, 0.5f));
  const auto small = hn::ShiftRight<16>(hn::Add(hn::BitCast(du, hn::ConvertTo(di, steps)), random));
  const auto dither = hn::Or(hn::ShiftLeft<4>(random), hn::Set(du, 8));
  const auto normal =
      hn::ShiftRight<20>(hn::Add(hn::Sub(magnitude, hn::Set(du, adamw::kBelowNormals)), dither));
  const auto is_small = hn::Lt(magnitude, hn::Set(du, adamw::kSmallestNormal));
  const auto code = hn::Min(hn::IfThenElse(is_small, small, normal), hn::Set(du, adamw::kMaxFirst));
  return hn::Or(code, hn::And(hn::ShiftRight<24>(bits), hn::Set(du, 0x80)));
}
HWY_INLINE VU encode_second(F32 d, VF scaled, VU random) {
  const U32 du;
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(du, scaled);
  const auto small = hn::BitCast(du, hn::ConvertTo(di, hn::Mul(scaled, hn::Set(d, 0x1p10f))));
  const auto normal = hn::ShiftRight<19>(hn::Sub(bits, hn::Set(du, adamw::kBelowNormals)));
  const auto is_small = hn::Lt(bits, hn::Set(du, adamw::kSmallestNormal));
  const auto max = hn::Set(du, adamw::kMaxSecond), one = hn::Set(du, 1);
  const auto below = hn::Min(hn::IfThenElse(is_small, small, normal), max);
  const VF low = value_of_second(d, below), high = value_of_second(d, hn::Add(below, one));
  const VF share = hn::Mul(hn::Add(hn::ConvertTo(d, hn::BitCast(di, random)), hn::Set(d, 0.5f)),
                           hn::Set(d, 0x1p-16f));
  const auto up = hn::Lt(hn::Mul(share, hn::Mul(hn::Sub(high, low), hn::Add(high, low))),
                         hn::Mul(hn::Sub(scaled, low), hn::Add(scaled, low)));
  const auto stepped = hn::Add(below, hn::IfThenElseZero(hn::RebindMask(du, up), one));
  const auto number = hn::Min(hn::Max(stepped, hn::Set(du, adamw::kMinSecond)), max);
  const auto code = hn::Or(hn::ShiftRight<1>(number), hn::ShiftLeft<7>(hn::And(number, one)));
  return hn::IfThenZeroElse(hn::RebindMask(du, hn::Eq(scaled, hn::Zero(d))), code);
}

enum class MomentOrder { kFirst, kSecond };

// Block `number` of an array as FP32.
template <MomentOrder kOrder>
HWY_INLINE void read_block(const void* values, const float* scales, StoredAs as, size_t number,
                           size_t count, float* to) {
  const F32 d;
  const size_t first = number * kSize;
  for_vectors(count, [&](size_t i, size_t lanes) {
    VF x;
    if (as == StoredAs::kFp32) {
      x = load_any(d, static_cast<const float*>(values) + first + i, lanes);
    } else if (as == StoredAs::kBf16) {
      x = load_any(d, static_cast<const Bf16*>(values) + first + i, lanes);
    } else {
      const VU codes = load_codes(static_cast<const uint8_t*>(values) + first + i, lanes);
      const VF scale = hn::Set(d, scales[number]);
      x = kOrder == MomentOrder::kFirst ? decode_first(d, codes, scale)
                                        : decode_second(d, codes, scale);
    }
    hn::Store(x, d, to + i);
  });
}
template <MomentOrder kOrder>
HWY_INLINE void read_block(const StoredArray& from, size_t number, size_t count, float* to) {
  read_block<kOrder>(from.values, from.scales, from.as, number, count, to);
}

// As adamw::to_bf16(), with the result in the upper half.
HWY_INLINE VF rounded_to_bf16(F32 d, VF x, VU random) {
  const U32 du;
  const auto bits = hn::BitCast(du, x);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto result =
      hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, hn::Add(bits, random));
  return hn::BitCast(d, hn::And(result, hn::Set(du, 0xFFFF0000u)));
}

// The block's scale, from its largest magnitude.
HWY_INLINE float scale_of(const float* values, size_t count) {
  const U32 du;
  auto largest = hn::Zero(du);
  for_vectors(count, [&](size_t i, size_t) {
    const auto bits = hn::BitCast(du, hn::Load(F32(), values + i));
    largest = hn::Max(largest, hn::And(bits, hn::Set(du, 0x7FFFFFFFu)));
  });
  return adamw::block_scale(hn::GetLane(hn::MaxOfLanes(du, largest)));
}

// Stores a block, rounded with the halves of the words that kShift (0 or 16) selects.
template <MomentOrder kOrder, int kShift>
HWY_INLINE void write_block(float* values, const uint32_t* words, size_t number, size_t count,
                            const StoredArray& to) {
  const F32 d;
  const U32 du;
  const size_t first = number * kSize;
  float inverse = 1;
  if (to.as == StoredAs::kFp8) {
    if (kOrder == MomentOrder::kSecond)
      for_vectors(count, [&](size_t i, size_t) {
        hn::Store(hn::Sqrt(hn::Load(d, values + i)), d, values + i);
      });
    to.scales[number] = scale_of(values, count);
    inverse = 1 / to.scales[number];
  }
  for_vectors(count, [&](size_t i, size_t lanes) {
    const VF x = hn::Load(d, values + i);
    const auto random =
        hn::And(hn::ShiftRight<kShift>(hn::Load(du, words + i)), hn::Set(du, 0xFFFF));
    if (to.as == StoredAs::kFp32) {
      store_any(x, d, static_cast<float*>(to.values) + first + i, lanes);
    } else if (to.as == StoredAs::kBf16) {
      store_any(rounded_to_bf16(d, x, random), d, static_cast<Bf16*>(to.values) + first + i, lanes);
    } else {
      const VF scaled = hn::Mul(x, hn::Set(d, inverse));
      store_codes(kOrder == MomentOrder::kFirst ? encode_first(d, scaled, random)
                                                : encode_second(d, scaled, random),
                  static_cast<uint8_t*>(to.values) + first + i, lanes);
    }
  });
}

void update_some(const AdamWArrays& a, size_t begin, size_t end, const adamw::Factors& factors) {
  const F32 d;
  const StepConstants constants(d, factors);
  Block block;
  for (size_t first = begin; first < end; first += kSize) {
    const size_t count = std::min(kSize, end - first), number = first / kSize;
    philox_block(a.seed, a.stream, (a.offset + first) / 4, block.words);
    read_block<MomentOrder::kFirst>(a.master, number, count, block.w);
    read_block<MomentOrder::kFirst>(a.m, number, count, block.m);
    read_block<MomentOrder::kSecond>(a.v, number, count, block.v);
    read_block<MomentOrder::kFirst>(a.grad, nullptr, a.grad_as, number, count, block.g);
    for_vectors(count, [&](size_t i, size_t lanes) {
      VF w = hn::Load(d, block.w + i), m = hn::Load(d, block.m + i), v = hn::Load(d, block.v + i);
      constants.advance(hn::Load(d, block.g + i), w, m, v);
      hn::Store(w, d, block.w + i);
      hn::Store(m, d, block.m + i);
      hn::Store(v, d, block.v + i);
      if (a.compute != nullptr) store_any(w, d, a.compute + first + i, lanes);
    });
    write_block<MomentOrder::kFirst, 0>(block.w, block.words, number, count, a.master);
    write_block<MomentOrder::kFirst, 16>(block.m, block.words, number, count, a.m);
    write_block<MomentOrder::kSecond, 16>(block.v, block.words, number, count, a.v);
  }
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {
HWY_EXPORT(update_some);
}  // namespace

void update_blocks(const AdamWArrays& arrays, size_t first, size_t end,
                   const adamw::Factors& factors) {
  HWY_DYNAMIC_DISPATCH(update_some)(arrays, first, end, factors);
}

}  // namespace octavo::engine::cpu
#endif
