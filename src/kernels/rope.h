#pragma once
// Rotary positions in place, as engine::Rope: the first `heads` heads of every row of q, k and v
// side by side are rotated, the rest is not touched. Or from q, k and v apart, which are put side
// by side at the same time.
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
  // q null: in place. Otherwise x is written alone, from these, [rows, heads * dim] each: rotated
  // as far as `heads` says, the rest as it is.
  struct Sources {
    const void *q, *k, *v;
    int32_t q_heads, k_heads, v_heads;
  } packs;
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
    const bool packs = a.packs.q != nullptr;
    const int32_t heads = packs ? a.packs.q_heads + a.packs.k_heads + a.packs.v_heads : a.heads;
    for (int32_t unit = block.thread(); unit < heads * groups; unit += kThreads) {
      const int32_t channel = unit % groups * kLane, count = half - channel, head = unit / groups;
      T* first = x + int64_t{head} * a.dim + channel;
      const T* from = packs ? source(a, block.index(), head) + channel : first;
      float c[kLane], s[kLane], p[kLane], q[kLane];
      load(from, count, 0, p);
      load(from + half, count, 0, q);
      load(cosines + channel, count, 0, c);
      load(cosines + half + channel, count, 0, s);
      if (head < a.heads)
        for (int k = 0; k < kLane; ++k) {
          const float sine = s[k] * sign, old = p[k];
          p[k] = std::fma(-q[k], sine, old * c[k]);
          q[k] = std::fma(old, sine, q[k] * c[k]);
        }
      store(p, count, first);
      store(q, count, first + half);
    }
  }

 private:
  static OCTAVO_KERNEL_BODY const T* source(const Arguments& a, int64_t row, int32_t head) {
    const RopeArguments::Sources& s = a.packs;
    const void* from = s.q;
    int32_t heads = s.q_heads;
    if (head >= s.q_heads) {
      head -= s.q_heads;
      const bool of_k = head < s.k_heads;
      from = of_k ? s.k : s.v;
      heads = of_k ? s.k_heads : s.v_heads;
      if (!of_k) head -= s.k_heads;
    }
    return static_cast<const T*>(from) + (row * heads + head) * a.dim;
  }
};

}  // namespace octavo::kernels
