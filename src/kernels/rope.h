#pragma once
// Rotary positions in place, as engine::Rope: the first `heads` heads of every row of q, k and v
// side by side are rotated, the rest is not touched.
//
// Bytes of a rotated element: 2 read and 2 written in BF16; the table of angles stays in caches.

#include "kernels/portable.h"

namespace octavo::kernels {

struct RopeArguments {
  void* x;                   // [rows, row]
  const int32_t* positions;  // [rows]
  const float* table;        // [positions, dim]: dim / 2 cosines, then as many sines
  int64_t rows, row;
  int32_t heads, dim;
  bool back;  // rotates the other way: the gradient
};

// T: float or Bf16.
template <class T>
struct RopeKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kHasBarriers = false;

  using Arguments = RopeArguments;
  struct Shared {};

  // One block for each row; a thread has eight channels and their eight partners of a head.
  template <class Block>
  static OCTAVO_KERNEL_BODY void run(Block& block, Shared&, const Arguments& a) {
    const int32_t half = a.dim / 2, groups = (half + kLane - 1) / kLane;
    T* x = static_cast<T*>(a.x) + block.index() * a.row;
    const float* cosines = a.table + int64_t{a.positions[block.index()]} * a.dim;
    const float sign = a.back ? -1.0f : 1.0f;
    for (int32_t unit = block.thread(); unit < a.heads * groups; unit += kThreads) {
      const int32_t channel = unit % groups * kLane, count = half - channel;
      T* first = x + int64_t{unit / groups} * a.dim + channel;
      float c[kLane], s[kLane], p[kLane], q[kLane];
      load(cosines + channel, count, 0, c);
      load(cosines + half + channel, count, 0, s);
      load(first, count, 0, p);
      load(first + half, count, 0, q);
      for (int k = 0; k < kLane; ++k) {
        const float sine = s[k] * sign, old = p[k];
        p[k] = std::fma(-q[k], sine, old * c[k]);
        q[k] = std::fma(old, sine, q[k] * c[k]);
      }
      store(p, count, first);
      store(q, count, first + half);
    }
  }
};

}  // namespace octavo::kernels
