#pragma once
// What makes a kernel's body one text for nvcc and for a host compiler: who may call a function,
// BF16 as its bits, and eight elements at a time through loads and stores of 128 bits.
//
// Both compile without contraction (-fmad=false, -ffp-contract=off): a product and a sum are
// rounded twice unless the text says std::fma. Square roots and divisions are rounded correctly on
// both. So the same text gives the same bits.

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/compiler.h"

namespace octavo::kernels {

using Bf16 = uint16_t;  // the upper half of a float32

constexpr int kLane = 8;  // elements that a thread takes at once

OCTAVO_ON_BOTH inline float widened(float value) {
  return value;
}
OCTAVO_ON_BOTH inline float widened(Bf16 bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// Round to nearest even; NaN stays NaN.
OCTAVO_ON_BOTH inline Bf16 nearest_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<Bf16>((bits | 0x400000) >> 16);
  return static_cast<Bf16>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
OCTAVO_ON_BOTH inline void narrow_to(float value, float& out) {
  out = value;
}
OCTAVO_ON_BOTH inline void narrow_to(float value, Bf16& out) {
  out = nearest_bf16(value);
}

struct alignas(16) Bits128 {
  uint32_t word[4];
};
struct alignas(8) Bits64 {
  uint32_t word[2];
};

OCTAVO_ON_BOTH inline bool is_aligned(const void* p, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// Pointers from a table in shared memory could be to any kind of memory, for all that nvcc knows;
// what kernels load and store here is global memory, and LDG is cheaper than LD.
OCTAVO_ON_BOTH inline void assume_global([[maybe_unused]] const void* p) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(p));
#endif
}

// One instruction each on a device: uint4 is the type that says so.
OCTAVO_ON_BOTH inline Bits128 load128(const void* p) {
#ifdef __CUDA_ARCH__
  assume_global(p);
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
#else
  return *static_cast<const Bits128*>(p);
#endif
}
OCTAVO_ON_BOTH inline void store128(const Bits128& v, void* p) {
#ifdef __CUDA_ARCH__
  // Said outright: of words that were put together of halves nvcc makes two stores of 64 bits.
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
               "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
#else
  *static_cast<Bits128*>(p) = v;
#endif
}

// Where a thread's n-th vector begins in a row that the block reads together.
template <int kThreads, class Block>
OCTAVO_KERNEL_BODY int64_t column_of(const Block& block, int n) {
  return (int64_t{n} * kThreads + block.thread()) * kLane;
}

OCTAVO_ON_BOTH inline void load_whole(const float* p, float (&out)[kLane]) {
  for (int half = 0; half < 2; ++half) {
    const Bits128 bits = load128(p + 4 * half);
    for (int i = 0; i < 4; ++i) out[4 * half + i] = std::bit_cast<float>(bits.word[i]);
  }
}
OCTAVO_ON_BOTH inline void load_whole(const Bf16* p, float (&out)[kLane]) {
  const Bits128 bits = load128(p);
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = std::bit_cast<float>(bits.word[i] << 16);
    out[2 * i + 1] = std::bit_cast<float>(bits.word[i] & 0xFFFF0000);
  }
}
OCTAVO_ON_BOTH inline void store_whole(const float (&in)[kLane], float* p) {
  for (int half = 0; half < 2; ++half) {
    Bits128 bits;
    for (int i = 0; i < 4; ++i) bits.word[i] = std::bit_cast<uint32_t>(in[4 * half + i]);
    store128(bits, p + 4 * half);
  }
}
OCTAVO_ON_BOTH inline void store_whole(const Bf16 (&in)[kLane], Bf16* p) {
  Bits128 bits;
  for (int i = 0; i < 4; ++i)
    bits.word[i] = static_cast<uint32_t>(in[2 * i]) | static_cast<uint32_t>(in[2 * i + 1]) << 16;
  store128(bits, p);
}

// Elements 0 to 7 behind p, of which `count` are there (more than 8 is 8, less than 0 none); the
// others are `fill`. Arrays that are not aligned are read element by element.
template <class T>
OCTAVO_ON_BOTH inline void load(const T* p, int64_t count, float fill, float (&out)[kLane]) {
  assume_global(p);
  if (count >= kLane && is_aligned(p, 16)) {
    load_whole(p, out);
    return;
  }
  for (int i = 0; i < kLane; ++i) out[i] = i < count ? widened(p[i]) : fill;
}
template <class T>
OCTAVO_ON_BOTH inline void store_as_is(const T (&in)[kLane], int64_t count, T* p) {
  assume_global(p);
  if (count >= kLane && is_aligned(p, 16)) {
    store_whole(in, p);
    return;
  }
  for (int i = 0; i < kLane; ++i)
    if (i < count) p[i] = in[i];
}
// Rounded to the nearest.
template <class T>
OCTAVO_ON_BOTH inline void store(const float (&in)[kLane], int64_t count, T* p) {
  T narrow[kLane];
  for (int i = 0; i < kLane; ++i) narrow_to(in[i], narrow[i]);
  store_as_is(narrow, count, p);
}

// Bytes: 64 bits at a time.
OCTAVO_ON_BOTH inline void load_bytes(const uint8_t* p, int64_t count, uint8_t (&out)[kLane]) {
  assume_global(p);
  if (count >= kLane && is_aligned(p, 8)) {
    const Bits64 bits = *reinterpret_cast<const Bits64*>(p);
    for (int i = 0; i < kLane; ++i)
      out[i] = static_cast<uint8_t>(bits.word[i / 4] >> (8 * (i % 4)));
    return;
  }
  for (int i = 0; i < kLane; ++i) out[i] = i < count ? p[i] : uint8_t{0};
}
OCTAVO_ON_BOTH inline Bits64 packed_bytes(const uint8_t (&in)[kLane]) {
  Bits64 bits{};
  for (int i = 0; i < kLane; ++i) bits.word[i / 4] |= static_cast<uint32_t>(in[i]) << (8 * (i % 4));
  return bits;
}
OCTAVO_ON_BOTH inline void store_bytes(const uint8_t (&in)[kLane], int64_t count, uint8_t* p) {
  assume_global(p);
  if (count >= kLane && is_aligned(p, 8)) {
    *reinterpret_cast<Bits64*>(p) = packed_bytes(in);
    return;
  }
  for (int i = 0; i < kLane; ++i)
    if (i < count) p[i] = in[i];
}

}  // namespace octavo::kernels
