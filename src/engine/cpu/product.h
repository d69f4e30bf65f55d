#pragma once
// One matrix product by oneDNN: c[M,N] (+)= scale * a[M,K] b[K,N] (+ bias[N]), BF16 operands, FP32
// accumulation, and a BF16 (rounded once) or FP32 result.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace octavo::engine::cpu {

struct ProductShape {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;                            // elements between stored rows
  bool a_transposed = false, b_transposed = false;  // stored as [K,M], [N,K]
  bool fp32_result = false;
  bool add = false;         // to what is in c
  bool bias = false;        // FP32
  bool scaled = false;      // by a factor given to run(), applied to the FP32 sums
  bool one_thread = false;  // run by the calling thread alone, inside a parallel region
  auto operator<=>(const ProductShape&) const = default;
};

class Product;

// Made once per shape; what it returns lives as long as the cache. Thread-safe.
class ProductCache {
 public:
  ProductCache();
  ~ProductCache();
  const Product& get(const ProductShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Working memory that run() needs; several threads may run one product, each with its own.
size_t scratch_bytes(const Product& product);
void run(const Product& product, const void* a, const void* b, const void* bias, void* c,
         void* scratch, float scale = 1);

}  // namespace octavo::engine::cpu
