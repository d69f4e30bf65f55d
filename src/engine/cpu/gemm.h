#pragma once
// One GEMM: c[M,N] (+)= scale * a[M,K] b[K,N] (+ bias[N]), BF16 operands, FP32 accumulation, and a
// BF16 (rounded once) or FP32 result. By oneDNN, or in a build without it by libtorch's BLAS.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace octavo::engine::cpu {

// What is multiplied. kFp32: BF16 operands are widened first, which is exact, so the result is that
// of kBf16 up to the order of the sums. Every CPU has FP32 GEMMs. kFp32Blas: the same by libtorch's
// BLAS, where kFp32 takes oneDNN if the build has it.
enum class GemmOperands : uint8_t { kBf16, kFp32, kFp32Blas };

struct GemmShape {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;                            // elements between stored rows
  bool a_transposed = false, b_transposed = false;  // stored as [K,M], [N,K]
  bool fp32_result = false;
  bool add = false;         // to what is in c
  bool bias = false;        // FP32
  bool scaled = false;      // by a factor given to run(), applied to the FP32 sums
  bool one_thread = false;  // run by the calling thread alone, inside a parallel region
  auto operator<=>(const GemmShape&) const = default;
};

// A BF16 matrix in dense blocks of 32 x 64 numbers, in each of them two rows at a time: a number of
// the first, the one below it, the next number of the first, ….
struct PairedLayout {
  static constexpr int64_t kRows = 32, kColumns = 64;
  int64_t row_step, column_step;  // numbers from a block to the one below, to the right
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual size_t scratch_bytes() const = 0;
  virtual void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
                   float scale) const = 0;

  // How whoever makes b may write it at the beginning of the scratch memory, for a run() that is
  // given no b. Null: b is read as it is stored.
  virtual const PairedLayout* layout_of_b() const { return nullptr; }
};

// Made once per shape; what it returns lives as long as the cache. Thread-safe.
class GemmCache {
 public:
  explicit GemmCache(GemmOperands operands);
  ~GemmCache();
  const Gemm& get(const GemmShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Working memory that run() needs; several threads may run one GEMM, each with its own.
inline size_t scratch_bytes(const Gemm& gemm) {
  return gemm.scratch_bytes();
}
inline void run(const Gemm& gemm, const void* a, const void* b, const void* bias, void* c,
                void* scratch, float scale = 1) {
  gemm.run(a, b, bias, c, scratch, scale);
}

// "" or that the build has no oneDNN.
std::string_view onednn_missing();
// What oneDNN uses of this CPU, as ONEDNN_MAX_CPU_ISA, which may limit it, spells it; without
// oneDNN what our own kernels use, by Highway's name.
std::string gemm_instruction_set();
// Without them FP32 GEMMs are faster than BF16 ones, which are emulated if there are any.
bool has_bf16_units();
// "" or why oneDNN has no BF16 GEMMs for this CPU; asked once, for all kinds that a run may need.
const std::string& bf16_gemms_missing();
// kBf16 when this CPU has units and oneDNN the GEMMs for them.
GemmOperands fastest_operands();

// A matrix in dense blocks of `rows` x `columns` numbers, those at the edges filled up with zeros.
struct BlockedLayout {
  int64_t rows = 0, columns = 0;          // of a block; 0: plain rows, no blocks
  int64_t row_step = 0, column_step = 0;  // numbers from a block to the one below, to the right
  int64_t size = 0;                       // numbers in all
  bool operator==(const BlockedLayout&) const = default;
};

// One primitive whose a and b are of `operands`' type; throws dnnl::error when there is none.
std::unique_ptr<Gemm> make_onednn(const GemmShape& shape, GemmOperands operands);
// BF16; packs b for its kernel when it is run. Null when the kernel reads b as it is stored. Sums
// may have another order than make_onednn's: it may cut a long k elsewhere.
std::unique_ptr<Gemm> make_onednn_packing(const GemmShape& shape);
// One in FP32 with b in blocks, as its kernel reads it: `layout` says how. Null when oneDNN
// reads plain rows just as well. Same results in every bit.
std::unique_ptr<Gemm> make_onednn_blocked(const GemmShape& shape, BlockedLayout& layout);
// FP32 a, b and c by libtorch's BLAS.
std::unique_ptr<Gemm> make_blas(const GemmShape& shape);
// BF16 a and b by FP32 GEMMs.
std::unique_ptr<Gemm> make_widened(const GemmShape& shape,
                                   GemmOperands operands = GemmOperands::kFp32);

}  // namespace octavo::engine::cpu
