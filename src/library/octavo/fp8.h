#pragma once
// FP8 numbers and quantized matrices as octavo trains with them. Link octavo::fp8.
//
// Errors of the caller (sizes that do not fit) are std::runtime_error with a text that says what
// was wanted. No function keeps state: all may be called from several threads.

#include <cstdint>
#include <span>
#include <vector>

namespace octavo::v0::fp8 {

// E4M3 is the "fn" variant: no infinity, largest value 448. E5M2 is as IEEE: largest value 57344.
enum class Format : uint8_t { kE4M3, kE5M2 };

// Round to nearest, ties to even; what is past the largest value becomes the largest value, as
// hardware does when it quantizes. NaN stays NaN.
uint8_t encode(Format format, float value);
// `random_bits` uniform: the mean of the decoded codes is the value.
uint8_t encode_stochastic(Format format, float value, uint32_t random_bits);
float decode(Format format, uint8_t code);
float max_value(Format format);  // 448 or 57344

// Which numbers share a scale. Scales of all but kTensor are powers of two.
enum class Scaling : uint8_t {
  kTensor,     // one for the matrix, from its largest magnitude
  kRow,        // one for each row (of the column copy: each column)
  kBlock128,   // 1 x 128 numbers
  kSquare128,  // 128 x 128 numbers: weights beside kBlock128
  kMx32,       // 1 x 32 numbers, E8M0 scales: the OCP's MXFP8
};

// Which way the blocks lie: along what the GEMM that reads the copy sums over.
enum class Along : uint8_t { kRows, kColumns };

// Codes are [rows, columns], row-major, never transposed. The block of element (r, c) is
// (r / block_rows, c / block_columns); its value is decode(code) * scales[block].
struct Quantized {
  Format format = Format::kE4M3;
  int64_t rows = 0, columns = 0;
  int64_t block_rows = 1, block_columns = 1, grid_rows = 1, grid_columns = 1;
  std::vector<uint8_t> codes;
  std::vector<float> scales;  // [grid_rows, grid_columns]
};

// By plain loops: the definition. `values` is row-major.
Quantized quantize(std::span<const float> values, int64_t rows, int64_t columns, Scaling scaling,
                   Format format, Along along = Along::kRows);

// The same of BF16 numbers, given as their bits, by vector instructions that are chosen at run time
// (AVX2, AVX-512, NEON): the same codes and scales, bit for bit, many times faster. On the calling
// thread.
Quantized quantize_bf16(std::span<const uint16_t> bits, int64_t rows, int64_t columns,
                        Scaling scaling, Format format, Along along = Along::kRows);

// Codes times scales, in FP32.
std::vector<float> dequantize(const Quantized& quantized);

}  // namespace octavo::v0::fp8
