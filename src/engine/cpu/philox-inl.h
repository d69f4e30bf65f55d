// The random numbers of base/random.h, many at a time. No #pragma once: Highway includes this again
// for each instruction set.

#if defined(OCTAVO_ENGINE_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ENGINE_CPU_PHILOX_INL_H_
#undef OCTAVO_ENGINE_CPU_PHILOX_INL_H_
#else
#define OCTAVO_ENGINE_CPU_PHILOX_INL_H_
#endif

#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

struct WideProduct {
  hn::Vec<U32> high, low;
};

// The 64 bits of each lane's product with `factor`.
HWY_INLINE WideProduct wide_product(hn::Vec<U32> a, hn::Vec<U32> factor) {
  const U32 du;
  const hn::RepartitionToWide<U32> dw;
  const auto even = hn::MulEven(a, factor);
  const auto odd = hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(dw, a))), factor);
  return {hn::OddEven(hn::BitCast(du, odd), hn::BitCast(du, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(odd)), hn::BitCast(du, even))};
}

// The four words of philox(seed, stream, counter) of each lane's own counter, in its two halves.
struct PhiloxWords {
  hn::Vec<U32> c0, c1, c2, c3;
};
HWY_INLINE PhiloxWords philox_lanes(uint64_t seed, uint64_t stream, hn::Vec<U32> low,
                                    hn::Vec<U32> high) {
  const U32 du;
  PhiloxWords w{low, high, hn::Set(du, static_cast<uint32_t>(stream)),
                hn::Set(du, static_cast<uint32_t>(stream >> 32))};
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const WideProduct p0 = wide_product(w.c0, hn::Set(du, 0xD2511F53u));
    const WideProduct p1 = wide_product(w.c2, hn::Set(du, 0xCD9E8D57u));
    w.c0 = hn::Xor(hn::Xor(p1.high, w.c1), hn::Set(du, k0));
    w.c1 = p1.low;
    w.c2 = hn::Xor(hn::Xor(p0.high, w.c3), hn::Set(du, k1));
    w.c3 = p0.low;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return w;
}

// words[4 k + j] = word j of philox(seed, stream, counter + k), for k below 32. `counter` is a
// multiple of 32, so that its upper half is the same for all of them.
HWY_INLINE void philox_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t* words) {
  const U32 du;
  const size_t lanes = hn::Lanes(du);
  static_assert(hn::MaxLanes(U32()) <= 32);
  for (size_t k = 0; k < 32; k += lanes) {
    const PhiloxWords w =
        philox_lanes(seed, stream, hn::Iota(du, static_cast<uint32_t>(counter + k)),
                     hn::Set(du, static_cast<uint32_t>(counter >> 32)));
    hn::StoreInterleaved4(w.c0, w.c1, w.c2, w.c3, du, words + 4 * k);
  }
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
