#include <ATen/ATen.h>

#include <vector>

#include "base/error.h"
#include "engine/cpu/adamw_blocks.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/adamw_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

// FP32 master and moments: nothing to round but the copy.
template <typename T>
void update(float* w, float* m, float* v, const T* g, uint16_t* compute, size_t n,
            const adamw::Factors& factors) {
  const F32 d;
  const StepConstants constants(d, factors);
  for_vectors(n, [&](size_t i, size_t count) {
    VF w1 = load_any(d, w + i, count), m1 = load_any(d, m + i, count),
       v1 = load_any(d, v + i, count);
    constants.advance(load_any(d, g + i, count), w1, m1, v1);
    store_any(m1, d, m + i, count);
    store_any(v1, d, v + i, count);
    store_any(w1, d, w + i, count);
    if (compute != nullptr) store_any(w1, d, compute + i, count);
  });
}

// Four FP32 sums over at most so many values, so that additions overlap; added up in double.
constexpr size_t kSquaresBlock = 4096;

HWY_INLINE double sum_of(F32 d, const VF* sums) {
  return sum_lanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

// Whole blocks, kStreams of them at a time, since memory gives more to several streams than to one.
// Returns how many values were done; `total` receives the blocks' sums in their order.
template <size_t kStreams, typename T>
size_t square_blocks(const T* g, size_t n, double& total) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  size_t begin = 0;
  for (; begin + kStreams * kSquaresBlock <= n; begin += kStreams * kSquaresBlock) {
    VF sums[kStreams][4];
    for (auto& stream : sums)
      for (VF& sum : stream) sum = hn::Zero(d);
    for (size_t i = begin; i < begin + kSquaresBlock; i += 4 * lanes)
      for (size_t s = 0; s < kStreams; ++s)
        for (size_t k = 0; k < 4; ++k) {
          const VF x = load(d, g + s * kSquaresBlock + i + k * lanes);
          sums[s][k] = hn::MulAdd(x, x, sums[s][k]);
        }
    for (const auto& stream : sums) total += sum_of(d, stream);
  }
  return begin;
}

template <typename T>
double squares(const T* g, size_t n) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  double total = 0;
  size_t i = square_blocks<4>(g, n, total);
  i += square_blocks<1>(g + i, n - i, total);
  if (i == n) return total;
  VF sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (; i + 4 * lanes <= n; i += 4 * lanes)
    for (size_t k = 0; k < 4; ++k) {
      const VF x = load(d, g + i + k * lanes);
      sums[k] = hn::MulAdd(x, x, sums[k]);
    }
  for_vectors(n - i, [&](size_t offset, size_t count) {
    const VF x = load_any(d, g + i + offset, count);
    sums[0] = hn::MulAdd(x, x, sums[0]);
  });
  return total + sum_of(d, sums);
}

void update_f32(float* w, float* m, float* v, const float* g, uint16_t* compute, size_t n,
                const adamw::Factors& f) {
  update(w, m, v, g, compute, n, f);
}
void update_bf16(float* w, float* m, float* v, const uint16_t* g, uint16_t* compute, size_t n,
                 const adamw::Factors& f) {
  update(w, m, v, g, compute, n, f);
}
double squares_f32(const float* g, size_t n) {
  return squares(g, n);
}
double squares_bf16(const uint16_t* g, size_t n) {
  return squares(g, n);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(update_f32);
HWY_EXPORT(update_bf16);
HWY_EXPORT(squares_f32);
HWY_EXPORT(squares_bf16);

constexpr int64_t kChunk = int64_t{1} << 16;

StoredAs stored_as(const at::Tensor& t) {
  if (t.scalar_type() == at::kFloat) return StoredAs::kFp32;
  OCTAVO_ASSERT(t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kByte);
  return t.scalar_type() == at::kBFloat16 ? StoredAs::kBf16 : StoredAs::kFp8;
}

StoredArray array_of(at::Tensor& values, at::Tensor& scales) {
  OCTAVO_ASSERT(values.is_contiguous());
  const StoredAs as = stored_as(values);
  if (as == StoredAs::kFp8)
    OCTAVO_ASSERT(scales.defined() && scales.numel() == adamw::block_count(values.numel()));
  return {values.mutable_data_ptr(), mutable_data<float>(scales), as};
}

struct SimdAdamW final : AdamW {
  void step(at::Tensor& master, Moment& m, Moment& v, const at::Tensor& grad, at::Tensor& compute,
            const Hyper& h) override {
    OCTAVO_ASSERT(grad.is_contiguous());
    at::Tensor no_scales;
    const AdamWArrays arrays{.master = array_of(master, no_scales),
                             .m = array_of(m.values, m.scales),
                             .v = array_of(v.values, v.scales),
                             .grad = grad.const_data_ptr(),
                             .grad_as = stored_as(grad),
                             .compute = mutable_data<uint16_t>(compute),
                             .seed = h.seed,
                             .stream = h.stream,
                             .offset = static_cast<uint64_t>(h.first)};
    const adamw::Factors factors = adamw::factors_of(h);
    const int64_t n = master.numel();
    const bool all_fp32 = arrays.master.as == StoredAs::kFp32 && arrays.m.as == StoredAs::kFp32 &&
                          arrays.v.as == StoredAs::kFp32;
    // Whole blocks to each thread.
    const int64_t blocks = adamw::block_count(n);
    parallel_for(0, blocks, kChunk / adamw::kBlock, [&](int64_t first, int64_t last) {
      const int64_t begin = first * adamw::kBlock, end = std::min(last * adamw::kBlock, n);
      if (all_fp32)
        update_fp32(arrays, begin, end, factors);
      else
        update_blocks(arrays, static_cast<size_t>(begin), static_cast<size_t>(end), factors);
    });
  }

  double sum_of_squares(const at::Tensor& grad) override {
    OCTAVO_ASSERT(grad.is_contiguous());
    const int64_t n = grad.numel(), chunks = (n + kChunk - 1) / kChunk;
    std::vector<double> sums(static_cast<size_t>(chunks));
    parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const auto count = static_cast<size_t>(std::min(kChunk, n - c * kChunk));
        sums[static_cast<size_t>(c)] =
            stored_as(grad) == StoredAs::kBf16
                ? HWY_DYNAMIC_DISPATCH(squares_bf16)(data<uint16_t>(grad) + c * kChunk, count)
                : HWY_DYNAMIC_DISPATCH(squares_f32)(data<float>(grad) + c * kChunk, count);
      }
    });
    double total = 0;
    for (const double s : sums) total += s;
    return total;
  }

 private:
  static void update_fp32(const AdamWArrays& a, int64_t begin, int64_t end,
                          const adamw::Factors& factors) {
    const auto from = [&](const StoredArray& array) {
      return static_cast<float*>(array.values) + begin;
    };
    uint16_t* compute = a.compute != nullptr ? a.compute + begin : nullptr;
    const auto count = static_cast<size_t>(end - begin);
    if (a.grad_as == StoredAs::kBf16) HWY_DYNAMIC_DISPATCH(update_bf16)
    (from(a.master), from(a.m), from(a.v), static_cast<const uint16_t*>(a.grad) + begin, compute,
     count, factors);
    else HWY_DYNAMIC_DISPATCH(update_f32)(from(a.master), from(a.m), from(a.v),
                                          static_cast<const float*>(a.grad) + begin, compute, count,
                                          factors);
  }
};

}  // namespace

std::unique_ptr<AdamW> make_adamw() {
  return std::make_unique<SimdAdamW>();
}

}  // namespace octavo::engine::cpu
#endif
