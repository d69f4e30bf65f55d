#pragma once
// Quantizing by libtorch's kernels, bit for bit as fp8/quantize.h says, on any device and without
// waiting for it. Everything here is of one direction of one matrix, [rows, columns] as it is
// stored; how a GEMM wants it is fp8_layout.h's affair.

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/fp8_linear.h"

namespace octavo::engine::aten {

struct PlainFp8 {
  at::Tensor codes;   // bytes, [rows, columns]
  at::Tensor decode;  // FP32, [grid_rows, grid_columns]
};

// Delayed: also raises the order's slot.
PlainFp8 quantize_plain(const at::Tensor& x, fp8::Recipe recipe, fp8::Direction direction,
                        const QuantizeSpec& order);

at::ScalarType dtype_of(fp8::Format format);
// The codes' values, FP32 or BF16: exact in both.
at::Tensor values_of(const at::Tensor& codes, fp8::Format format, at::ScalarType type);
// One number for each block, for every element: [rows, columns].
at::Tensor spread(const at::Tensor& per_block, const fp8::Grid& grid, int64_t rows,
                  int64_t columns);

// E8M0 codes of FP32 powers of two (or NaN), and back.
at::Tensor to_e8m0(const at::Tensor& decode);
at::Tensor from_e8m0(const at::Tensor& codes);

// What quantizing did to x: the stats of fp8/health.h, FP64 on its device, which is not waited
// for. On a GPU by our own kernels where they were built (engine/own). Otherwise, of a matrix with
// more elements than these, every n-th row is looked at, so that neither the time nor the memory
// that it takes grows with the batch; the largest magnitude, and whether there is a NaN or an
// infinity at all, are of every element.
constexpr int64_t kMostMeasured = int64_t{1} << 20;
at::Tensor measure_plain(const at::Tensor& x, const PlainFp8& quantized, const fp8::Side& side,
                         const fp8::Grid& grid);

// Delayed scaling's update on the device that has the history. Keeps the formats there.
class FactorUpdate {
 public:
  void run(at::Tensor& history, at::Tensor& factors, const std::vector<fp8::Format>& formats,
           fp8::AmaxAlgo algo, int64_t margin, bool recompute);

 private:
  const at::Tensor& largest_values(const std::vector<fp8::Format>& formats, int64_t margin,
                                   const at::Tensor& like);

  std::vector<fp8::Format> formats_;
  int64_t margin_ = 0;
  at::Tensor largest_;  // MAX / 2^margin of each slot
};

}  // namespace octavo::engine::aten
