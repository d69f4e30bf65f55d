#pragma once
// Matrix products small enough to stay in one core's cache, run by one thread inside a parallel
// region: the building block of attention. c[M,N] (+)= a[M,K] b[K,N], BF16 operands, BF16 or FP32
// result, arbitrary row strides.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace octavo::engine::cpu {

struct SmallGemmShape {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;            // elements between rows, as stored
  bool a_transposed, b_transposed;  // stored as [K,M], [N,K]
  bool fp32_result, add;
  auto operator<=>(const SmallGemmShape&) const = default;
};

class SmallGemm;

// Made once per shape, by any thread; safe to run from several threads at a time, each with its own
// scratch.
class SmallGemmCache {
 public:
  SmallGemmCache();
  ~SmallGemmCache();
  const SmallGemm& get(const SmallGemmShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

size_t scratch_bytes(const SmallGemm& gemm);
void run(const SmallGemm& gemm, const void* a, const void* b, void* c, std::byte* scratch);

}  // namespace octavo::engine::cpu
